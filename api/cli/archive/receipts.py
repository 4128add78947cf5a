"""The subcommands of receipts: fetch one, check one without a server, decode a sample of its chunks again."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import httpx
from cyclopts import Parameter

from api.cli.completion import JobId
from api.cli.connection import Exit, Server, Url, connect, out
from spool.client import Spool
from spool.domain.receipts import Origin, PublicKey, Receipt
from spool.errors import InvalidRequest
from spool.settings.signing_key import check_audio, check_options, check_receipt, check_transcript

Key = Annotated[
    Path | None,
    Parameter(name="--key", metavar="FILE", help="Public keys in PEM, of which one signed the receipt."),
]
_OF_WORDS = ("words", "segments", "nbest", "lattice")
_Closed = Annotated[
    bool, Parameter(negative=(), help="Also of a recording that is closed in part; this is logged.")
]


def receipt(
    job_id: JobId,
    /,
    *,
    output: Annotated[
        Path | None, Parameter(name=["--out", "-o"], help="Write to this file instead of standard output.")
    ] = None,
    attempt: Annotated[int | None, Parameter(help="Of this attempt, not of the last one.")] = None,
    closed: _Closed = False,
    url: Url = None,
) -> None:
    """Fetch the signed receipt of a job."""
    with connect(url) as spool:
        data = spool.receipt(job_id, attempt=attempt, closed=closed)
    if output is not None:
        output.write_bytes(data)
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def receipt_keys(*, server: Server = Server()) -> None:
    """Print the public keys of receipts.

    `spool verify-receipt` takes them as `--key`.
    """
    with server.connect() as spool:
        keys = spool.receipt_keys()
    server.show(keys, _pem_of(keys).rstrip(), markup=False)


def verify_receipt(
    file: Annotated[Path, Parameter(help="The receipt.")],
    /,
    *,
    key: Annotated[
        Path, Parameter(metavar="FILE", help="Public keys in PEM, of which one signed the receipt.")
    ],
    audio: Annotated[Path | None, Parameter(help="Compare this recording with it.")] = None,
    transcript: Annotated[
        Path | None,
        Parameter(help="Compare this transcript with it: `spool transcript ID --recorded`."),
    ] = None,
) -> None:
    """Check a receipt, without a server."""
    try:
        checked = check_receipt(file.read_bytes(), [key.read_bytes()])
        compared = ["the signature"]
        if audio is not None:
            check_audio(checked.statement, audio)
            compared.append("the recording")
        if transcript is not None:
            check_transcript(checked.statement, transcript)
            compared.append("the transcript and its options")
    except OSError as error:
        raise InvalidRequest(f"{error.filename}: the file cannot be read: {error.strerror}") from error
    *most, last = compared
    what = f"{', '.join(most)} and {last} are" if most else f"{last} is"
    out.print(
        f"{checked.statement.job}, attempt {checked.statement.attempt}, {checked.statement.ended_at}: "
        f"{what} as signed with key {checked.signature.key_id}.",
        markup=False,
        soft_wrap=True,
    )


def verify(
    job_id: JobId,
    /,
    *,
    sample: Annotated[
        str, Parameter(help="How many chunks to decode again: a share such as 1%, or a number.")
    ] = "1%",
    seed: Annotated[int | None, Parameter(help="Which ones. Default: chosen by chance, and printed.")] = None,
    key: Key = None,
    audio: Annotated[
        Path | None, Parameter(help="The recording. Default: it is fetched from the server.")
    ] = None,
    model: Annotated[
        str | None, Parameter(help="Folder or file of the model. Default: as this machine's settings say.")
    ] = None,
    closed: _Closed = False,
    server: Server = Server(),
) -> None:
    """Decode a sample of a job again, and compare it with its receipt.

    The chunks are decoded on this machine, which takes the `spool-worker` command and the job's model here.
    It is on nobody's bill.
    """
    with tempfile.TemporaryDirectory(prefix="spool-verify-") as name, server.connect() as spool:
        folder = Path(name)
        checked = _fetch_receipt(spool, job_id, folder, key, closed)
        own = folder / "transcript.json"
        own.write_bytes(spool.transcript_file(job_id, "json", recorded=True, closed=closed))
        record = check_transcript(checked.statement, own)
        origin = checked.statement.words_from
        if audio is None:
            audio = _fetch_audio(spool, job_id, folder, closed)
        if origin is not None and not checked.statement.chunks:
            # Its words were decoded for another job, whose receipt has the chunks.
            check_audio(checked.statement, audio)
            job_id = origin.job
            _fetch_origin(spool, origin, record, folder, key, closed)
            if not server.as_json:
                note = f"The words are those of job {job_id}: its receipt is checked, its chunks decoded."
                out.print(note, markup=False, soft_wrap=True)
        options = record["options"]
        flags = ["--transcript", str(own), "--audio", str(audio), "--sample", sample]
        if options.get("boost") is not None:
            phrases = folder / "phrases.json"
            phrases.write_text(json.dumps(spool.phrases(job_id)), encoding="utf-8")
            flags += ["--phrases", str(phrases)]
        flags += [] if seed is None else ["--seed", str(seed)]
        flags += [] if model is None else ["--model", model]
        flags += ["--json"] if server.as_json else []
        code = _run_worker(["verify", str(folder / "receipt.json"), *flags])
    if code:
        raise SystemExit(Exit.USAGE if code == Exit.USAGE else Exit.FAILED)


def _fetch_receipt(
    spool: Spool, job_id: str, folder: Path, key: Path | None, closed: bool, attempt: int | None = None
) -> Receipt:
    data = spool.receipt(job_id, attempt=attempt, closed=closed)
    (folder / "receipt.json").write_bytes(data)
    known = key.read_bytes() if key is not None else _pem_of(spool.receipt_keys()).encode()
    return check_receipt(data, [known])


def _fetch_origin(
    spool: Spool, origin: Origin, record: Mapping[str, Any], folder: Path, key: Path | None, closed: bool
) -> None:
    """Fetch the receipt of the transcript that a job reused, in place of its own. Raises ReceiptInvalid for
    other options, and InvalidRequest if there is none any more, or if the transcripts differ."""
    found = _fetch_receipt(spool, origin.job, folder, key, closed)
    last = found.statement.attempt
    for attempt in range(last - 1, 0, -1):
        if found.statement.transcript_sha256 == origin.transcript_sha256:
            break
        found = _fetch_receipt(spool, origin.job, folder, key, closed, attempt)
    if found.statement.transcript_sha256 != origin.transcript_sha256:
        raise InvalidRequest(f"Job {origin.job} has no receipt of the transcript that was reused.")
    check_options(found.statement, record["options"])
    if found.statement.attempt == last:
        path = folder / "origin.json"
        path.write_bytes(spool.transcript_file(origin.job, "json", recorded=True, closed=closed))
        other = check_transcript(found.statement, path)
        if any(other.get(name) != record.get(name) for name in _OF_WORDS):
            raise InvalidRequest(f"The words are not those of job {origin.job}, which the receipt names.")


def _fetch_audio(spool: Spool, job_id: str, folder: Path, closed: bool) -> Path:
    path = folder / "recording"
    link = spool.audio_link(job_id, closed=closed).url
    address = httpx.URL(spool.url).join(link)
    with httpx.stream("GET", address, follow_redirects=True, timeout=60) as answer, path.open("wb") as file:
        answer.raise_for_status()
        for block in answer.iter_bytes():
            file.write(block)
    return path


def _run_worker(arguments: Sequence[str]) -> int:
    """Run `spool-worker`; its exit code."""
    try:
        return subprocess.run([sys.executable, "-m", "worker.cli.main", *arguments], check=False).returncode
    except OSError as error:
        raise InvalidRequest(f"spool-worker cannot be run here: {error.strerror}") from error


def _pem_of(keys: Sequence[PublicKey]) -> str:
    return "".join(each.pem for each in keys)
