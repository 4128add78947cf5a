"""`spool-worker witness`: checks a transcript, whoever made it, against the sounds of its recording, without
a queue.

`--format json` is the contract of `worker.witness.report`.
"""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from spool.errors import InvalidRequest
from spool.sounds.dictionary import DEFAULT_WITNESS
from worker.machine.blas import preload_blas


def witness(
    recording: Annotated[Path, Parameter(help="The recording.")],
    /,
    *,
    transcript: Annotated[
        Path, Parameter(help="Its transcript: JSON with `segments`, Spool's own record, SRT or WebVTT.")
    ],
    model: Annotated[
        str, Parameter(help="The phoneme model: a name of the catalogue, or a folder with its files.")
    ] = DEFAULT_WITNESS,
    language: Annotated[
        str | None, Parameter(help="The transcript's language, if it does not say itself. Only en is judged.")
    ] = None,
    form: Annotated[
        Literal["json", "txt"], Parameter(name="--format", help="json, or txt for people.")
    ] = "txt",
) -> None:
    """Print which sentences the sound does not support, and where speech has no words (English only)."""
    preload_blas()
    from worker.local.witness import check_file, load_listener
    from worker.witness.report import findings_json, findings_text
    from worker.witness.transcripts import MAX_BYTES, read_transcript

    try:
        with transcript.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidRequest(f"{transcript}: the transcript cannot be read: {error.strerror}") from error
    given = read_transcript(data, transcript.name)
    if language is not None:
        given = given.in_language(language)
    listener = load_listener(model)
    findings = check_file(listener, recording, given)
    print(findings_json(findings, listener.facts) if form == "json" else findings_text(findings), end="")
    if form == "json":
        print()
    if findings.abstained:
        print(f"{transcript}: nothing was judged: {findings.abstained}", file=sys.stderr)
