"""`spool-worker verify`: decodes a sample of a job's chunks again, and compares it with the job's receipt.

`spool verify JOB` runs it with what it has fetched from the server.
"""

import json
import random
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from spool.errors import InvalidRequest
from worker.machine.blas import preload_blas

_SEEDS = 1 << 32


def verify(
    receipt: Annotated[Path, Parameter(help="The job's receipt. Its signature is not checked.")],
    /,
    *,
    audio: Annotated[Path, Parameter(help="The recording.")],
    transcript: Annotated[Path, Parameter(help="The stored transcript, which has the job's options.")],
    sample: Annotated[
        str, Parameter(help="How many chunks to decode again: a share such as 1%, or a number.")
    ] = "1%",
    seed: Annotated[int | None, Parameter(help="Which ones. Default: chosen by chance, and printed.")] = None,
    model: Annotated[
        str | None,
        Parameter(help="Folder or file of the model. Default: where the settings have the job's model."),
    ] = None,
    phrases: Annotated[
        Path | None, Parameter(help="JSON list of the phrases that the job boosted, if it did.")
    ] = None,
    as_json: Annotated[bool, Parameter(name="--json", help="Print JSON.")] = False,
) -> None:
    """Decode a sample of a job's chunks again, and compare it with the job's receipt. The exit code is 1 if
    one differs."""
    preload_blas()
    from spool.domain.archive.stretch import Stretch
    from spool.domain.options import JobOptions
    from spool.domain.receipts import digest
    from spool.domain.transcript import Transcript
    from spool.objects.integrity import hash_file
    from worker.local.verify import read_statement, report
    from worker.local.verify import verify as verify_sample
    from worker.segmentation.stretch import StretchCore

    try:
        statement = read_statement(receipt.read_bytes())
        record = json.loads(transcript.read_bytes())
        options = record["options"]
        spoken = () if phrases is None else tuple(json.loads(phrases.read_bytes()))
        found = hash_file(audio, lambda: None)[0]
    except OSError as error:
        raise InvalidRequest(f"{error.filename}: the file cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError):
        raise InvalidRequest(f"{transcript}: the file is not a stored transcript.") from None
    if digest(options) != statement.options_sha256:
        raise InvalidRequest(f"{transcript}: the options are not those of the receipt.")
    if found != statement.audio_sha256:
        raise InvalidRequest(f"{audio}: the recording is not that of the receipt: SHA-256 is {found}.")
    chosen = random.SystemRandom().randrange(_SEEDS) if seed is None else seed
    stretch = record.get("stretch")
    core = stretch and StretchCore.of(Stretch.model_validate(stretch), record["audio"]["duration"])
    asked = JobOptions.model_validate(options)
    aligned = None if asked.align is None else Transcript.model_validate(record)
    done = verify_sample(statement, asked, audio, sample, chosen, spoken, model, core, aligned)
    print(done.model_dump_json(indent=2) if as_json else report(done))
    if done.differences:
        raise SystemExit(1)
