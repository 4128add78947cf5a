"""What renders each format."""

from collections.abc import Callable

from spool.domain.archive.verbatim import leave_out
from spool.domain.transcript import Transcript
from spool.errors import InvalidRequest
from spool.formats.cueing import DEFAULT_PRESET, Preset
from spool.formats.documents import docx
from spool.formats.lattices import kaldi, lattice
from spool.formats.names import TEXT_FORMATS
from spool.formats.pbcore import pbcore
from spool.formats.subtitles import ohms, srt, ttml, vtt
from spool.formats.tables import ctm, rttm, tsv
from spool.formats.tei import tei
from spool.formats.text import paragraphs, txt
from spool.formats.tiers import eaf, textgrid

_SUBTITLES: dict[str, Callable[[Transcript, Preset], str]] = {"srt": srt, "vtt": vtt, "ttml": ttml}


def render(transcript: Transcript, format: str, subtitles: Preset | None = None) -> str:  # noqa: A002 - the name users know it by
    """`transcript` in one of `TEXT_FORMATS`; `subtitles` are the rules of `srt`, `vtt` and `ttml`.

    Raises `InvalidRequest` for any other name, or for rules where there are no subtitles, and `NotFound` for
    a lattice or speakers that were not requested.
    """
    check_subtitles(format, subtitles)
    if format != "json":
        transcript = leave_out(transcript)
    if format in _SUBTITLES:
        return _SUBTITLES[format](transcript, subtitles or DEFAULT_PRESET)
    renderers: dict[str, Callable[[Transcript], str]] = {
        "json": _json,
        "txt": txt,
        "paragraphs": paragraphs,
        "tsv": tsv,
        "ctm": ctm,
        "rttm": rttm,
        "eaf": eaf,
        "textgrid": textgrid,
        "ohms": ohms,
        "lattice": lattice,
        "kaldi": kaldi,
        "tei": tei,
        "pbcore": pbcore,
    }
    if format not in renderers:
        raise InvalidRequest(f"unknown transcript format {format!r}: choose one of {', '.join(TEXT_FORMATS)}")
    return renderers[format](transcript)


def check_subtitles(format: str, subtitles: Preset | None) -> None:  # noqa: A002 - the name users know it by
    """Raise `InvalidRequest` if rules of subtitles were asked for in a format that has none."""
    if subtitles is not None and format not in _SUBTITLES:
        raise InvalidRequest(f"subtitles={subtitles} is for {', '.join(_SUBTITLES)}, and not for {format}")


def render_bytes(transcript: Transcript, format: str, subtitles: Preset | None = None) -> bytes:  # noqa: A002 - the name users know it by
    """`transcript` in one of `FORMATS` as the bytes of a file, text in UTF-8; raises what `render` raises."""
    if format == "docx" and subtitles is None:
        return docx(leave_out(transcript))
    return render(transcript, format, subtitles).encode()


def _json(transcript: Transcript) -> str:
    return transcript.model_dump_json(indent=2) + "\n"
