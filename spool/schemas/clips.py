"""The schema of clips."""

from typing import Literal

from pydantic import Field

from spool.domain.transcript import Segment, Speaker, Word
from spool.schemas.common import AnswerModel

ClipFormat = Literal["txt", "paragraphs", "srt", "vtt", "ttml", "docx", "json"]
"""The forms of a transcript that say nothing about the whole recording."""


class ClipOut(AnswerModel):
    """A stretch of a recording, as it can be cited."""

    job: str
    name: str = Field(description="The recording's name.")
    project: str
    start: float = Field(description="Seconds from the start of the recording.")
    end: float
    version: str = Field(
        description="Of the words: the first digits of `transcript_sha256`, `-r` with the number of "
        "corrections that it includes, and `-n` with the first digits of a hash of its speakers' names."
    )
    newest_version: str = Field(description="Another one if the words were corrected since.")
    transcript_sha256: str = Field(description="Of the record as it was recognised.")
    text: str = Field(description="The words whose middle lies in the clip.")
    citation: str = Field(description="One line: recording, project, time, version and its hash.")
    url: str = Field(description="The address of this clip in this version.")
    transcript_url: str
    audio_url: str


class ClipWords(AnswerModel):
    """The words of a clip with their times, which count from its start."""

    job: str
    start: float = Field(description="Where the clip begins: seconds from the start of the recording.")
    end: float
    version: str
    language: str | None = Field(description="The language spoken for most of the recording.")
    text: str
    words: tuple[Word, ...]
    segments: tuple[Segment, ...] = Field(description="Stretches to be read as a unit; they index the words.")
    speakers: tuple[Speaker, ...] = Field(description="Those who speak in the clip.")
