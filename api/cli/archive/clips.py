"""The subcommand of clips: a stretch of a recording, cited, with its words and its sound."""

from pathlib import Path
from typing import Annotated, get_args

from cyclopts import Parameter

from api.cli.completion import JobId
from api.cli.connection import Server
from api.cli.times import Time, seconds_of
from spool.errors import InvalidRequest
from spool.schemas.clips import ClipFormat


def clip(
    job_id: JobId,
    /,
    *,
    start: Annotated[Time, Parameter(name="--from", help="Where it begins: 12:30 or seconds.")],
    end: Annotated[Time, Parameter(name="--to", help="Where it ends.")],
    version: Annotated[str | None, Parameter(help="The version in a citation. Default: the newest.")] = None,
    audio: Annotated[
        Path | None, Parameter(metavar="FILE", help="Write its sound to this file, as WAV.")
    ] = None,
    transcript: Annotated[
        Path | None,
        Parameter(
            metavar="FILE", help="Write its words to this file: .txt, .srt, .vtt, .ttml, .docx or .json."
        ),
    ] = None,
    closed: Annotated[
        bool, Parameter(negative=(), help="With what is closed to readers; this is logged.")
    ] = False,
    server: Server = Server(),
) -> None:
    """Cite a stretch of a recording, and fetch its words and sound.

    The citation names the version of the words: `--version` gives the same words after later corrections.
    """
    form = None if transcript is None else _form_of(transcript)
    first, last = seconds_of("--from", start) or 0.0, seconds_of("--to", end) or 0.0
    with server.connect() as spool:
        found = spool.clip(job_id, first, last, version=version, closed=closed)
        if audio is not None:
            audio.write_bytes(spool.clip_audio(job_id, first, last, closed=closed))
        if transcript is not None and form is not None:
            words = spool.clip_transcript(job_id, first, last, form, version=found.version, closed=closed)
            transcript.write_bytes(words)
    changed = "" if found.version == found.newest_version else f"\nThe newest is {found.newest_version}."
    server.show(found, f"{found.text}\n\n{found.citation}{changed}", markup=False)


def _form_of(file: Path) -> ClipFormat:
    """Raises InvalidRequest."""
    forms: tuple[ClipFormat, ...] = get_args(ClipFormat)
    for form in forms:
        if file.suffix.lower() == f".{form}":
            return form
    raise InvalidRequest(
        f"--transcript: {file.name} does not end in .txt, .srt, .vtt, .ttml, .docx or .json."
    )
