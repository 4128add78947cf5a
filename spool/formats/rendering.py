"""What renders each format."""

from collections.abc import Callable

from spool.domain.transcript import Transcript
from spool.errors import InvalidRequest
from spool.formats.documents import docx
from spool.formats.lattices import kaldi, lattice
from spool.formats.names import TEXT_FORMATS
from spool.formats.subtitles import ohms, srt, ttml, vtt
from spool.formats.tables import ctm, rttm, tsv
from spool.formats.text import paragraphs, txt
from spool.formats.tiers import eaf, textgrid


def render(transcript: Transcript, format: str) -> str:  # noqa: A002 - the name users know it by
    """`transcript` in one of `TEXT_FORMATS`; raises `InvalidRequest` for any other name, and `NotFound` for a
    lattice or speakers that were not requested."""
    renderers: dict[str, Callable[[Transcript], str]] = {
        "json": _json,
        "txt": txt,
        "srt": srt,
        "vtt": vtt,
        "paragraphs": paragraphs,
        "tsv": tsv,
        "ctm": ctm,
        "ttml": ttml,
        "rttm": rttm,
        "eaf": eaf,
        "textgrid": textgrid,
        "ohms": ohms,
        "lattice": lattice,
        "kaldi": kaldi,
    }
    if format not in renderers:
        raise InvalidRequest(f"unknown transcript format {format!r}: choose one of {', '.join(TEXT_FORMATS)}")
    return renderers[format](transcript)


def render_bytes(transcript: Transcript, format: str) -> bytes:  # noqa: A002 - the name users know it by
    """`transcript` in one of `FORMATS` as the bytes of a file, text in UTF-8; raises what `render` raises."""
    return docx(transcript) if format == "docx" else render(transcript, format).encode()


def _json(transcript: Transcript) -> str:
    return transcript.model_dump_json(indent=2) + "\n"
