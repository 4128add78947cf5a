"""The options of a live session, how its recording is stored, and how fast audio may come. Pure."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

SAMPLE_BYTES = 2
SAMPLE_RATE = 16_000
"""The sample rate of positions in chunks; the recording keeps its own."""
MOST_AUDIO_BYTES = 2**32 - 2**16
"""The most that a WAV file can hold."""

RESUME_SECONDS = (20, 600)
"""The longest that a session may wait for its client."""

AttContext = tuple[Annotated[int, Field(ge=-1, le=10_000)], Annotated[int, Field(ge=0, le=1000)]]


class Listening(BaseModel):
    """What makes a job a live session. The audio is 16-bit PCM, little-endian, channels interleaved."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    sample_rate: Annotated[int, Field(ge=8000, le=48_000, description="In Hz.")] = SAMPLE_RATE
    channels: Annotated[int, Field(ge=1, le=8, description="Mixed for the transcript.")] = 1
    silence_ms: Annotated[
        int | None,
        Field(
            ge=80,
            le=60_000,
            description="Silence after a word that ends an utterance; null: silence never ends one.",
        ),
    ] = 1000
    att_context: Annotated[
        AttContext | None, Field(description="LEFT,RIGHT of the encoder; null: the model's first choice.")
    ] = None
    resume_seconds: Annotated[
        int | None,
        Field(
            ge=RESUME_SECONDS[0],
            le=RESUME_SECONDS[1],
            description="How long the session waits for a lost client; null: it ends at once.",
        ),
    ] = None
    then: Annotated[
        dict[str, JsonValue] | None,
        Field(description="Options of the job on the recording that is submitted when the session ends."),
    ] = None

    @property
    def frame_bytes(self) -> int:
        """Bytes of one sample of all channels."""
        return SAMPLE_BYTES * self.channels

    def seconds_of(self, size: int) -> float:
        """The duration of this many bytes of audio."""
        return size / self.frame_bytes / self.sample_rate

    def position_of(self, frames: int) -> int:
        """Where this many samples of the recording end, in samples at 16 kHz."""
        return frames * SAMPLE_RATE // self.sample_rate

    def wav_header(self, size: int) -> bytes:
        """The header of a WAV file (RIFF, format 1) with this many bytes of audio, at most
        `MOST_AUDIO_BYTES`."""
        fields = (
            (b"RIFF", 36 + size, 4),
            (b"WAVEfmt ", 16, 4),
            (b"", 1, 2),
            (b"", self.channels, 2),
            (b"", self.sample_rate, 4),
            (b"", self.sample_rate * self.frame_bytes, 4),
            (b"", self.frame_bytes, 2),
            (b"", 8 * SAMPLE_BYTES, 2),
            (b"data", size, 4),
        )
        return b"".join(name + value.to_bytes(width, "little") for name, value, width in fields)


@dataclass(frozen=True, slots=True)
class LivePace:
    """How much audio a client may send: `factor` times real time, plus `ahead` seconds."""

    factor: float = 10.0
    ahead: float = 30.0

    def allows(self, audio_seconds: float, elapsed: float) -> bool:
        """Whether this much audio may have come in `elapsed` seconds."""
        return audio_seconds <= self.ahead + self.factor * elapsed
