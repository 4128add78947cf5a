"""Existing transcripts as they come: text, subtitles, Word documents, and files that are none."""

import io
import zipfile

import pytest
from docx import Document
from docx.oxml import parse_xml

from spool.domain import MAX_TYPESCRIPT_BYTES, read_typescript
from spool.domain.archive import typescripts
from spool.errors import InvalidRequest

SRT = """1\r
00:00:01,000 --> 00:00:02,500\r
<i>Good morning</i>,\r
Anna.\r
\r
2\r
00:00:03,000 --> 00:00:04,000\r
3 &amp; 4\r
"""
VTT = """WEBVTT - a title

NOTE nobody says this

00:01.000 --> 00:02.000 align:start
<v Anna Lee>Good <b>morning</b>

chapter
00:03.000 --> 00:04.000
<v.loud Bo>Hello
there
"""


def spoken(data: bytes, name: str = "t") -> list[tuple[str, str | None]]:
    return [(word.text, word.speaker) for word in read_typescript(data, name)]


def document(*blocks: str | list[list[str]], author: str = "") -> bytes:
    file = Document()
    file.core_properties.author = author
    file.add_heading("Interview 7", level=1)
    for block in blocks:
        if isinstance(block, str):
            file.add_paragraph(block)
            continue
        table = file.add_table(len(block), len(block[0]))
        for row, cells in zip(table.rows, block, strict=True):
            for cell, text in zip(row.cells, cells, strict=True):
                cell.text = text
    buffer = io.BytesIO()
    file.save(buffer)
    return buffer.getvalue()


def test_the_numbers_of_footnotes_in_cues_are_nobodys_words() -> None:
    cue = b"WEBVTT\n\n00:01.000 --> 00:09.000\n%s\n"
    said = cue % b"the light<c.1>1</c>, in <c.12>[12]</c> room <c.2>7</c> <c.red>9</c><c.3> 3 </c>"
    assert [word for word, _ in spoken(said)] == ["the", "light,", "in", "room", "7", "9"]


def test_plain_text_keeps_its_words_and_leaves_times_out() -> None:
    assert spoken("[00:01] Good morning, 1984:\n\n(0:02) well-known…".encode("utf-8-sig")) == [
        (text, None) for text in ("Good", "morning,", "1984:", "well-known…")
    ]
    assert spoken("Grüß Gott".encode("utf-16")) == [("Grüß", None), ("Gott", None)]


def test_a_name_before_two_lines_is_a_speaker_and_one_before_one_line_is_not() -> None:
    text = "ANNA: Good morning.\nSit down.\nDr. Bo: I said: no.\nANNA: Yes.\nDr. Bo: No.\nNote: ten."
    assert spoken(text.encode()) == [
        *((word, "ANNA") for word in ("Good", "morning.", "Sit", "down.")),
        *((word, "Dr. Bo") for word in ("I", "said:", "no.")),
        ("Yes.", "ANNA"),
        *((word, "Dr. Bo") for word in ("No.", "Note:", "ten.")),
    ]


def test_subtitles_keep_what_is_spoken_and_who_says_it() -> None:
    assert [text for text, _ in spoken(SRT.encode())] == ["Good", "morning,", "Anna.", "3", "&", "4"]
    assert spoken(VTT.encode()) == [
        ("Good", "Anna Lee"),
        ("morning", "Anna Lee"),
        ("Hello", "Bo"),
        ("there", "Bo"),
    ]


def test_a_word_document_is_read_in_order_with_its_tables_and_without_headings() -> None:
    data = document("Anna: One.", "Bo: Two.", [["Anna", "Three."], ["Bo", "Four."]], "Five.")
    assert spoken(data) == [
        ("One.", "Anna"),
        ("Two.", "Bo"),
        ("Three.", "Anna"),
        ("Four.", "Bo"),
        ("Five.", "Bo"),
    ]


def test_documents_that_spool_wrote_are_read_back() -> None:
    data = document(
        "0:01:00 · en · demo", "Anna [0:00:01]", "Good morning.", "Bo [0:00:05]", "No.", author="Spool"
    )
    assert spoken(data) == [("Good", "Anna"), ("morning.", "Anna"), ("No.", "Bo")]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no words"),
        (b" \n...\n", "no words"),
        (
            b'\xef\xbb\xbf<?xml version="1.0"?><ROOT xmlns="ohms"><record>words</record></ROOT>',
            "such as OHMS records",
        ),
        (b"\n<!DOCTYPE html><p>words</p>", "XML and HTML"),
        (b"caf\xe9", "UTF-8"),
        (b"a\0b", "zero bytes"),
        (b"a " * (MAX_TYPESCRIPT_BYTES // 2 + 1), "more than"),
        (b"PK\x03\x04 not a document", "cannot be read"),
        (document("A word.")[:-900], "cannot be read"),
        (b"WEBVTT\n\n00:01.000 --> 00:02.000\n\n", "no words"),
    ],
)
def test_a_file_without_words_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason) as refusal:
        read_typescript(data, "tape 7")
    assert refusal.value.message.startswith("tape 7:")


def test_an_archive_that_is_no_document_and_one_that_unpacks_to_too_much_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(typescripts, "_MAX_UNPACKED", 2**20)
    for content, reason in ((b"x", "cannot be read"), (b"\0" * (2**21), "unpacks")):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("word/document.xml", content)
        with pytest.raises(InvalidRequest, match=reason):
            read_typescript(buffer.getvalue(), "tape 7")


def test_what_a_file_costs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each of these would take hours by an expression that tries every beginning with every end.
    assert spoken(b"\n" * 100_000 + b"a") == [("a", None)]
    cue = b"00:00:01,000 --> 00:00:02,000\n"
    assert len(spoken(cue + b"<v " * 50_000 + b"a")) == 50_001
    assert spoken(cue + b"<v" + b" " * 100_000 + b"a") == [("<v", None), ("a", None)]
    monkeypatch.setattr(typescripts, "MOST_WORDS", 1_000)
    for many in (b"a " * 1_001, b"-\n" * 1_001):
        with pytest.raises(InvalidRequest, match="more than 1,000 words or lines"):
            spoken(many)
    page = zipfile.ZipFile(io.BytesIO(document("Good morning.")))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in page.namelist():
            longer = b"<w:body>" + b"<w:p/>" * 400_000 if entry == "word/document.xml" else b"<w:body>"
            archive.writestr(entry, page.read(entry).replace(b"<w:body>", longer))
    with pytest.raises(InvalidRequest, match="unpacks to 3 MiB"):
        spoken(buffer.getvalue())


def test_a_word_document_keeps_what_is_inserted_and_leaves_boxes_out() -> None:
    page = Document()
    paragraph = page.add_paragraph("Good ")
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    for inner in (
        "<w:ins {0}><w:r><w:t>morning,</w:t></w:r></w:ins>",
        "<w:del {0}><w:r><w:delText>evening,</w:delText></w:r></w:del>",
        "<w:r {0}><w:pict><w:txbxContent><w:p><w:r><w:t>7</w:t></w:r></w:p></w:txbxContent></w:pict></w:r>",
        "<w:r {0}><w:tab/><w:t>Anna.</w:t></w:r>",
    ):
        paragraph._p.append(parse_xml(inner.format(space)))
    buffer = io.BytesIO()
    page.save(buffer)
    assert [word for word, _ in spoken(buffer.getvalue())] == ["Good", "morning,", "Anna."]
