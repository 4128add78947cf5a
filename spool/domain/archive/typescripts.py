"""Reads an existing transcript: plain text, SubRip, WebVTT or a Word document, as words with their speakers.

The content decides the format, not the file's name. Only spoken words are kept: cue numbers, times, tags,
headings, notes and the numbers of footnotes in cues are left out. A speaker is a WebVTT voice, or a name with
a colon before a line (`ANNA: Good morning.`) that precedes at least two lines. Pure.
"""

import html
import io
import itertools
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spool.errors import InvalidRequest

MAX_TYPESCRIPT_BYTES = 10 * 1024 * 1024
"""The longest file that is read."""
MOST_SPEAKERS = 99
LONGEST_NAME = 100
MOST_WORDS = 500_000
"""Some fifty hours of speech."""
_MAX_UNPACKED = 100 * 1024 * 1024
_MARKUP = re.compile(r"\s*<(\?xml|!doctype|html|root)\b", re.IGNORECASE)
_CUE = re.compile(
    r"^[^\S\n]*(?:\d+:)?\d{1,2}:\d{2}[.,]\d{3}\s+-->\s+(?:\d+:)?\d{1,2}:\d{2}[.,]\d{3}", re.MULTILINE
)
_STAMP = re.compile(r"[\[(<](?:\d{1,2}:)?\d{1,2}:\d{2}(?:[.,]\d+)?[\])>]")
_VOICE = re.compile(r"<v(?:\.[^\s<>]*)?\s([^<>]+)>")
# `light<c.1>1</c>`, as OHMS writes the number of a footnote: a class and a text that are the same number.
_FOOTNOTE = re.compile(r"<c\.(\d+)>\s*([\[(]?)\1[\])]?\s*</c>")
_TAG = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")
_NAME = re.compile(r"^\s*([^\W\d_][^:\n]{0,39}?)\s*:(?=\s|$)")
_NAME_WORDS = 4
_BLOCKS = ("NOTE", "STYLE", "REGION")
_UNSPOKEN = ("Heading", "Title")
_MAX_XML = 24 * 1024 * 1024
_MAX_RATIO = 40
"""How much longer than the file the XML may be, from a mebibyte on; Word's is some ten times as long."""
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DOCX_TEXTS = {_W + "t": "", _W + "tab": "\t", _W + "br": "\n", _W + "cr": "\n", _W + "noBreakHyphen": "-"}


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word as written, with its punctuation, and its speaker if the text names one."""

    text: str
    speaker: str | None = None


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    speaker: str | None = None


def read_typescript(data: bytes, name: str) -> tuple[SpokenWord, ...]:
    """The words of a transcript file of up to `MAX_TYPESCRIPT_BYTES`; `name` is its name in errors.

    Raises InvalidRequest for a file that is too long, cannot be read or has no words.
    """
    if len(data) > MAX_TYPESCRIPT_BYTES:
        raise InvalidRequest(
            f"{name}: the transcript has more than {MAX_TYPESCRIPT_BYTES // 2**20} MiB; split it"
        )
    if data.startswith(b"PK\x03\x04"):
        lines = list(_docx_lines(data, name))
    else:
        text = _decode(data, name)
        if _MARKUP.match(text):
            raise InvalidRequest(
                f"{name}: XML and HTML, such as OHMS records, are not supported; export WebVTT or text"
            )
        lines = _cue_lines(text) if _CUE.search(text) else [_Line(line) for line in text.splitlines() if line]
    words: tuple[SpokenWord, ...] = ()
    if len(lines) <= MOST_WORDS:
        words = tuple(itertools.islice(_words(_with_speakers(lines)), MOST_WORDS + 1))
    if max(len(lines), len(words)) > MOST_WORDS:
        raise InvalidRequest(f"{name}: the transcript has more than {MOST_WORDS:,} words or lines; split it")
    return check_words(words, name)


def check_words(words: tuple[SpokenWord, ...], name: str) -> tuple[SpokenWord, ...]:
    """These words. Raises InvalidRequest if none has a letter or a digit, or if there are too many speakers
    or invalid names."""
    if not any(any(map(str.isalnum, word.text)) for word in words):
        raise InvalidRequest(f"{name}: the transcript has no words")
    speakers = {word.speaker for word in words} - {None}
    if len(speakers) > MOST_SPEAKERS:
        raise InvalidRequest(
            f"{name}: the transcript names {len(speakers)} speakers; at most {MOST_SPEAKERS} are allowed"
        )
    for speaker in speakers:
        if speaker and (len(speaker) > LONGEST_NAME or not speaker.isprintable()):
            raise InvalidRequest(
                f"{name}: the speaker {speaker[:20]!r} has a name of more than {LONGEST_NAME} characters, or "
                "with control characters"
            )
    return words


def _decode(data: bytes, name: str) -> str:
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"{name}: neither a Word document (.docx) nor text in UTF-8 (byte {error.start}); convert it"
        ) from error
    if "\0" in text:
        raise InvalidRequest(f"{name}: not a text file: it has zero bytes")
    return text


def _cue_lines(text: str) -> list[_Line]:
    """The lines of SubRip or WebVTT cues."""
    lines = []
    for block in re.split(r"\n\s*\n", text.replace("\r\n", "\n").replace("\r", "\n")):
        rows = block.strip("\n").split("\n")
        arrow = next((at for at, row in enumerate(rows) if _CUE.match(row)), None)
        if arrow is None or rows[0].startswith(_BLOCKS):
            continue
        voice = None
        for row in rows[arrow + 1 :]:
            named = _VOICE.search(row)
            voice = html.unescape(named[1]).strip() if named else voice
            spoken = _TAG.sub("", _FOOTNOTE.sub("", row))
            lines.append(_Line(html.unescape(spoken), voice or None))
    return lines


def _docx_lines(data: bytes, name: str) -> Iterator[_Line]:
    """The paragraphs of a Word document in reading order, tables row by row, without headings."""
    from docx import Document  # slow to import, and most processes read none

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            size = sum(entry.file_size for entry in entries)
            xml = sum(each.file_size for each in entries if each.filename.endswith((".xml", ".rels")))
            if size > _MAX_UNPACKED or xml > min(_MAX_XML, max(2**20, len(data) * _MAX_RATIO)):
                raise InvalidRequest(f"{name}: the document unpacks to {size // 2**20} MiB; split it")
        document = Document(io.BytesIO(data))
        ours = document.core_properties.author == "Spool"
        styles = {style.style_id: str(style.name or "") for style in document.styles}
        spoken = list(_docx_texts(document.element.body, styles))
    except InvalidRequest:
        raise
    except Exception as error:  # zipfile, lxml and python-docx raise different errors
        reason = str(error) or type(error).__name__
        raise InvalidRequest(f"{name}: the Word document cannot be read: {reason}") from error
    # The second paragraph of a document that Spool wrote states its length, language and model.
    yield from (_Line(line) for text in spoken[1 if ours else 0 :] for line in text.splitlines())


def _docx_texts(body: Any, styles: Mapping[str, str]) -> Iterator[str]:  # noqa: ANN401 - lxml has no types
    """The text of each paragraph and table row of a document's body, without headings. python-docx's own
    objects take a millisecond each."""
    for block in body.iterchildren(_W + "p", _W + "tbl"):
        if block.tag == _W + "tbl":
            for row in block.iterchildren(_W + "tr"):
                cells = row.iterchildren(_W + "tc")
                yield ": ".join("\n".join(map(_docx_text, cell.iterchildren(_W + "p"))) for cell in cells)
            continue
        style = block.find(f"{_W}pPr/{_W}pStyle")
        if style is None or not styles.get(style.get(_W + "val"), "").startswith(_UNSPOKEN):
            yield _docx_text(block)


def _docx_text(paragraph: Any) -> str:  # noqa: ANN401 - lxml has no types
    """A paragraph's text, without text boxes and deleted text."""
    return "".join(
        element.text or "" if element.tag == _W + "t" else _DOCX_TEXTS[element.tag]
        for element in paragraph.iter(*_DOCX_TEXTS)
        if next(element.iterancestors(_W + "p")) is paragraph
    )


def _with_speakers(lines: Sequence[_Line]) -> Iterator[_Line]:
    """The lines without times and names; a name also applies to the lines after it."""
    counts = Counter(match[1] for match in map(_NAME.match, (each.text for each in lines)) if match)
    names = {name for name, count in counts.items() if count > 1 and len(name.split()) <= _NAME_WORDS}
    speaker = None
    for line in lines:
        text, stamps = _STAMP.subn("", line.text)
        match = _NAME.match(text)
        # `Anna [0:00:12]` alone on a line is how Spool's documents say who speaks next.
        is_label = stamps and line.text.rstrip().endswith(("]", ")")) and 0 < len(text.split()) <= _NAME_WORDS
        if is_label and not text.rstrip().endswith((".", "?", "!")):
            speaker = text.strip().removesuffix(":")
            continue
        if match and match[1] in names:
            speaker, text = match[1], text[match.end() :]
        yield _Line(text, line.speaker or speaker)


def _words(lines: Iterator[_Line]) -> Iterator[SpokenWord]:
    for line in lines:
        for word in line.text.split():
            yield SpokenWord(word, line.speaker)
