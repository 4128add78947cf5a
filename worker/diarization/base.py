"""The interface of diarization models for jobs, `transcribe` and the engine.

A model has two parts. Its `DiarizationModel` follows the recording, clusters, and makes segments, without a
device. Its `Network` runs on the device, in the engine's process if there is one. They communicate by steps:
a piece of audio with parameters. The caller of `diarize` supplies a function that runs steps.
"""

import math
import struct
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from spool.domain.archive.diarization import MOST_SPEAKERS
from spool.errors import AudioTooLong

Floats = NDArray[np.float32]
Blocks = Iterable[Floats]
Step = TypeVar("Step", bound=Hashable)
Output = TypeVar("Output")

RunSteps = Callable[[Iterator[tuple[Floats, Step]]], Iterator[Output]]
"""Runs steps, each a piece of 16 kHz mono audio (at most 40 s) with its parameters, and yields their outputs
in the same order. It may take a few steps ahead of the outputs."""


@dataclass(frozen=True, slots=True)
class SpeakerSegment:
    """One speaker from `start` to `end`, seconds of the recording. Speakers are numbered by arrival."""

    start: float
    end: float
    speaker: int


@dataclass(frozen=True, slots=True)
class SpeakerBounds:
    """The allowed number of speakers."""

    least: int = 1
    most: int = MOST_SPEAKERS


@dataclass(frozen=True, slots=True, eq=False)
class SpeechHeard:
    """The speech detector's probabilities for a whole channel, float32 `[T]` of 32 ms each, and the channel's
    number of samples at 16 kHz."""

    probabilities: Floats
    samples: int


@dataclass(frozen=True, slots=True, eq=False)
class SpeakerActivity:
    """Each speaker's probability in each frame: uint8 `[T, S]` in 255ths, one column per speaker, frames of
    `frame_seconds`. Compact enough to store: some 180 kB an hour before compression."""

    levels: NDArray[np.uint8]
    frame_seconds: float

    @classmethod
    def of(cls, probabilities: Floats, frame_seconds: float) -> Self:
        """From probabilities `[T, S]`, float32."""
        return cls(np.rint(probabilities * 255).astype(np.uint8), frame_seconds)

    def mean(self, start: float, end: float) -> NDArray[np.float64]:
        """Each speaker's mean probability `[S]` from `start` to `end`, in seconds; over at least one frame,
        the one in the middle."""
        first, last = int(start / self.frame_seconds), math.ceil(end / self.frame_seconds - 1e-9)
        if last <= first:
            first = int((start + end) / 2 / self.frame_seconds)
        first = min(max(first, 0), len(self.levels) - 1)
        means: NDArray[np.float64] = self.levels[first : max(min(last, len(self.levels)), first + 1)].mean(0)
        return means / 255

    def pack(self) -> bytes:
        """The activity as bytes."""
        head = _ACTIVITY.pack(self.frame_seconds, self.levels.shape[1])
        return head + zlib.compress(self.levels.tobytes())

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """The inverse of `pack`."""
        frame_seconds, speakers = _ACTIVITY.unpack_from(data)
        levels = np.frombuffer(zlib.decompress(data[_ACTIVITY.size :]), np.uint8)
        return cls(levels.reshape(-1, speakers), frame_seconds)


_ACTIVITY = struct.Struct("<dI")


@dataclass(frozen=True, slots=True, eq=False)
class Diarization:
    """Segments by start; those of different speakers may overlap if the model detects overlap. probabilities:
    those that the segments were made from, float32: the speech detector's `[T]` of 32 ms each, or each
    speaker's `[T, S]` of 80 ms. samples: the recording's, at 16 kHz. prints: a voice print `[D]` of length
    one for each speaker with enough speech, if the model makes them. activity: if the model provides it."""

    segments: list[SpeakerSegment]
    probabilities: Floats
    samples: int
    prints: Mapping[int, Floats] = field(default_factory=dict)
    activity: SpeakerActivity | None = None

    @property
    def speakers(self) -> int:
        """The number of speakers found."""
        return len({segment.speaker for segment in self.segments})


FRAME_SAMPLES = 1280
"""Samples in 80 ms."""


class Network(Protocol):
    """The part of a model that runs on the device. Used from one thread only."""

    def run(self, samples: Floats, step: Any) -> Any:  # noqa: ANN401 - the model's own steps and outputs
        """The output of one step. It depends on the step alone, not on what ran before."""

    def frames(self, samples: Floats, step: Any) -> int:  # noqa: ANN401 - the model's own steps
        """The step's frames of 80 ms, by which it is billed its share of a batch's time."""

    @property
    def size(self) -> int:
        """Bytes of the weights and of a step's memory; 0 if unknown."""


class TooLongAtOnce(AudioTooLong):
    """The recording is too long for a model that processes it as a whole."""


class DiarizationModel(Protocol):
    """The part of a model that follows the recording. Safe to share."""

    @property
    def most_speakers(self) -> int | None:
        """The most speakers that it can tell apart; None for any number."""

    @property
    def path(self) -> str:
        """The path by which the engine loads the network."""

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the weights and of all other values that affect the segments."""

    def diarize(
        self,
        read: Callable[[], Blocks],
        run: RunSteps[Any, Any],
        bounds: SpeakerBounds,
        speech: SpeechHeard | None = None,
    ) -> Diarization:
        """Diarize one channel; each call of `read()` returns its blocks (float32 `[n]` at 16 kHz) from the
        start. speech: saves a model that needs the speech detector from running it. Raises TooLongAtOnce, and
        whatever `read` and `run` raise."""


def run_here(network: Network) -> RunSteps[Any, Any]:
    """Run steps in this process, one after another."""

    def run(steps: Iterator[tuple[Floats, Any]]) -> Iterator[Any]:
        for samples, step in steps:
            yield network.run(samples, step)

    return run
