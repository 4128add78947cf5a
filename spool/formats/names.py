"""Which formats there are. Imports no renderer, since every command names them."""

from typing import Literal, get_args

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
    "tei",
    "pbcore",
]
Format = Literal[TextFormat, "docx"]
ServedFormat = Literal[Format, "iiif"]
"""What the API writes: also what consists of its own addresses."""
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
    "tei": "application/tei+xml; charset=utf-8",
    "pbcore": "application/xml",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
}
