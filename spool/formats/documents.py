"""Word documents (DOCX, ISO/IEC 29500), by python-docx."""

import io
import zipfile

from spool.domain.spacing import join_words
from spool.domain.transcript import Transcript
from spool.formats.text import group_segments, replace_non_xml, text_language, voices_of

# The earliest date of a ZIP archive: the same transcript yields the same bytes at any time.
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
_LONGEST_TITLE = 255
"""The most characters of a document property."""


def docx(transcript: Transcript) -> bytes:
    """A document to read and correct: the recording's name, its length, language and model, then the
    paragraphs of `paragraphs`, each under its time and speaker."""
    from docx import Document  # slow to import, and most processes write none
    from docx.shared import Pt

    document = Document()
    name = _plain(transcript.audio.name)
    properties = document.core_properties
    properties.title, properties.author = name[:_LONGEST_TITLE], "Spool"
    properties.comments = properties.keywords = properties.subject = ""
    # The template's own dates; a transcript states none.
    for date in properties._element.xpath("dcterms:created | dcterms:modified"):
        properties._element.remove(date)
    document.add_heading(name, level=1)
    facts = [_stamp(transcript.audio.duration), text_language(transcript), transcript.model.name]
    document.add_paragraph(_plain(" · ".join(filter(None, facts))))
    voice_of = voices_of(transcript)
    for group in group_segments(transcript):
        voice = voice_of(group[0])
        label = document.add_paragraph()
        label.paragraph_format.keep_with_next = True
        label.paragraph_format.space_after = Pt(0)
        if voice:
            label.add_run(_plain(f"{voice} ")).bold = True
        label.add_run(f"[{_stamp(group[0].start)}]").italic = True
        document.add_paragraph(_plain(join_words(segment.text for segment in group)))
    written = io.BytesIO()
    document.save(written)
    return _without_dates(written)


def _without_dates(archive: io.BytesIO) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.namelist():
            data = source.read(entry)
            target.writestr(zipfile.ZipInfo(entry, _ZIP_EPOCH), data, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _plain(text: str) -> str:
    return replace_non_xml(text)


def _stamp(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
