"""The transcript as it is kept: words with times, segments fit to read, and what was covered.

Pure data. The JSON form of `Transcript` is the record; `spool.formats` renders every other form from it.
Times are seconds from the start of the recording.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA: Literal["spool.transcript/1"] = "spool.transcript/1"

Seconds = Annotated[float, Field(ge=0)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Word(_Record):
    """One word. `confidence` is the lowest probability among its tokens, 0 to 1."""

    text: str
    start: Seconds
    end: Seconds
    confidence: Annotated[float, Field(ge=0, le=1)]
    channel: int = 0


class Segment(_Record):
    """A stretch of one channel fit to be read at once. `first_word` and `last_word` index the words."""

    start: Seconds
    end: Seconds
    text: str
    channel: int
    first_word: int
    last_word: int


class Gap(_Record):
    """A stretch of the recording that no chunk covered."""

    start: Seconds
    end: Seconds
    channel: int


class Coverage(_Record):
    """How much of the input went through (law 6): `ratio` is 1 when every sample was in a chunk's core."""

    audio_seconds: Seconds
    covered_seconds: Seconds
    speech_seconds: Seconds
    ratio: Annotated[float, Field(ge=0, le=1)]
    gaps: tuple[Gap, ...] = ()


class AudioFacts(_Record):
    """What the source file was."""

    name: str
    format: str
    sample_rate: int
    channels: int
    duration: Seconds
    warnings: tuple[str, ...] = ()


class ModelFacts(_Record):
    """Which weights spoke."""

    name: str
    sha256: str


class Transcript(_Record):
    """One recording's words."""

    schema_version: Literal["spool.transcript/1"] = SCHEMA
    job: str | None = None
    audio: AudioFacts
    model: ModelFacts
    options: dict[str, str | int | float | bool]
    coverage: Coverage
    text: str
    words: tuple[Word, ...]
    segments: tuple[Segment, ...]
