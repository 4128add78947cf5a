"""What is asked of a live session, how its recording is stored, and how fast audio may come. Pure."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

SAMPLE_BYTES = 2
SAMPLE_RATE = 16_000
"""Of positions in chunks; the recording keeps its own."""
MOST_AUDIO_BYTES = 2**32 - 2**16
"""What a WAV file can hold."""

RESUME_SECONDS = (20, 600)
"""How long a session may wait for its client."""

AttContext = tuple[Annotated[int, Field(ge=-1, le=10_000)], Annotated[int, Field(ge=0, le=1000)]]


class Listening(BaseModel):
    """What makes a job a live session. The audio is 16-bit PCM, little-endian, channels interleaved."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sample_rate: Annotated[int, Field(ge=8000, le=48_000, description="In Hz.")] = SAMPLE_RATE
    channels: Annotated[int, Field(ge=1, le=8, description="Mixed for the transcript.")] = 1
    silence_ms: Annotated[
        int | None,
        Field(ge=80, le=60_000, description="Silence behind a word that ends an utterance; null: none does."),
    ] = 1000
    att_context: Annotated[
        AttContext | None, Field(description="LEFT,RIGHT of the encoder; null: the model's first.")
    ] = None
    resume_seconds: Annotated[
        int | None,
        Field(
            ge=RESUME_SECONDS[0],
            le=RESUME_SECONDS[1],
            description="How long the session waits for a client that was lost; null: it ends.",
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
        """How long so many bytes of audio are."""
        return size / self.frame_bytes / self.sample_rate

    def position_of(self, frames: int) -> int:
        """Where so many samples of the recording end, in samples at 16 kHz."""
        return frames * SAMPLE_RATE // self.sample_rate

    def wav_header(self, size: int) -> bytes:
        """The header of a WAV file (RIFF, format 1) with so many bytes of audio, `MOST_AUDIO_BYTES` at
        most."""
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
class Pace:
    """How much audio a client may send: `factor` times real time, and `ahead` seconds beside that."""

    factor: float = 10.0
    ahead: float = 30.0

    def allows(self, audio_seconds: float, elapsed: float) -> bool:
        """Whether so much audio may have come in `elapsed` seconds."""
        return audio_seconds <= self.ahead + self.factor * elapsed
