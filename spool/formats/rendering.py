"""Which formats there are, and what renders each."""

from collections.abc import Callable
from typing import Literal, get_args

from spool.domain.transcript import Transcript
from spool.errors import InvalidRequest
from spool.formats.documents import docx
from spool.formats.lattices import kaldi, lattice
from spool.formats.subtitles import ohms, srt, ttml, vtt
from spool.formats.tables import ctm, rttm, tsv
from spool.formats.text import paragraphs, txt
from spool.formats.tiers import eaf, textgrid

TextFormat = Literal[
    "json",
    "txt",
    "srt",
    "vtt",
    "paragraphs",
    "tsv",
    "ctm",
    "ttml",
    "rttm",
    "eaf",
    "textgrid",
    "ohms",
    "lattice",
    "kaldi",
]
Format = Literal[TextFormat, "docx"]
TEXT_FORMATS: tuple[TextFormat, ...] = get_args(TextFormat)
FORMATS: tuple[Format, ...] = get_args(Format)
STORED: tuple[Format, ...] = ("json", "txt", "srt", "vtt")
CONTENT_TYPES: dict[Format, str] = {
    "json": "application/json",
    "txt": "text/plain; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
    "paragraphs": "text/plain; charset=utf-8",
    "tsv": "text/tab-separated-values; charset=utf-8",
    "ctm": "text/plain; charset=utf-8",
    "ttml": "application/ttml+xml; charset=utf-8",
    "rttm": "text/plain; charset=utf-8",
    "eaf": "application/xml",
    "textgrid": "text/plain; charset=utf-8",
    "ohms": "text/vtt; charset=utf-8",
    "lattice": "application/json",
    "kaldi": "text/plain; charset=utf-8",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
}


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
