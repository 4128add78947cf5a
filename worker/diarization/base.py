"""The face of a diarization model: what jobs, `transcribe` and the engine need of any of them.

A model has two sides. Its `DiarizationModel` follows the recording, clusters, and makes segments; it needs no
device. Its `Network` is what runs on the device, in the engine's process where there is one. In between go
steps: a piece of audio with what is asked of it. Whoever calls `diarize` passes how steps are run.
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
"""Runs steps, each a piece of 16 kHz mono audio (at most 40 s) and what is asked of it, and gives their
outputs in the same order. It may take a few steps ahead of the outputs."""


@dataclass(frozen=True, slots=True)
class SpeakerSegment:
    """One speaker from `start` to `end`, seconds of the recording. Speakers are numbered by arrival."""

    start: float
    end: float
    speaker: int


@dataclass(frozen=True, slots=True)
class SpeakerBounds:
    """How many speakers there may be."""

    least: int = 1
    most: int = MOST_SPEAKERS


@dataclass(frozen=True, slots=True, eq=False)
class SpeechHeard:
    """What the speech detector heard in all of a channel: its probabilities, float32 `[T]` of 32 ms each, and
    the channel's samples at 16 kHz."""

    probabilities: Floats
    samples: int


@dataclass(frozen=True, slots=True, eq=False)
class SpeakerActivity:
    """How likely each speaker speaks in each frame: uint8 `[T, S]` in 255ths, a column a speaker, of frames
    of `frame_seconds`. So few steps that it can be kept: some 180 kB an hour before compression."""

    levels: NDArray[np.uint8]
    frame_seconds: float

    @classmethod
    def of(cls, probabilities: Floats, frame_seconds: float) -> Self:
        """Of probabilities `[T, S]`, float32."""
        return cls(np.rint(probabilities * 255).astype(np.uint8), frame_seconds)

    def mean(self, start: float, end: float) -> NDArray[np.float64]:
        """Each speaker's mean probability `[S]` from `start` to `end`, seconds; over one frame at least, that
        of the middle."""
        first, last = int(start / self.frame_seconds), math.ceil(end / self.frame_seconds - 1e-9)
        if last <= first:
            first = int((start + end) / 2 / self.frame_seconds)
        first = min(max(first, 0), len(self.levels) - 1)
        means: NDArray[np.float64] = self.levels[first : max(min(last, len(self.levels)), first + 1)].mean(0)
        return means / 255

    def pack(self) -> bytes:
        """As bytes to keep."""
        head = _ACTIVITY.pack(self.frame_seconds, self.levels.shape[1])
        return head + zlib.compress(self.levels.tobytes())

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """From what `pack` gave."""
        frame_seconds, speakers = _ACTIVITY.unpack_from(data)
        levels = np.frombuffer(zlib.decompress(data[_ACTIVITY.size :]), np.uint8)
        return cls(levels.reshape(-1, speakers), frame_seconds)


_ACTIVITY = struct.Struct("<dI")


@dataclass(frozen=True, slots=True, eq=False)
class Diarization:
    """Segments by start; those of two speakers may overlap where the model hears that. probabilities: what
    the segments were made of, float32: the speech detector's `[T]` of 32 ms each, or each speaker's `[T, S]`
    of 80 ms. samples: of the recording, at 16 kHz. prints: by speaker a voice print `[D]` of length one, of
    those who say enough, where the model makes them. activity: each speaker's, where the model tells."""

    segments: list[SpeakerSegment]
    probabilities: Floats
    samples: int
    prints: Mapping[int, Floats] = field(default_factory=dict)
    activity: SpeakerActivity | None = None

    @property
    def speakers(self) -> int:
        """How many were told apart."""
        return len({segment.speaker for segment in self.segments})


FRAME_SAMPLES = 1280
"""Samples in 80 ms."""


class Network(Protocol):
    """The side of a model that runs on the device. Used from one thread only."""

    def run(self, samples: Floats, step: Any) -> Any:  # noqa: ANN401 - the model's own steps and outputs
        """The output of one step. It depends on the step alone, not on what ran before."""

    def frames(self, samples: Floats, step: Any) -> int:  # noqa: ANN401 - the model's own steps
        """What the step's share of a batch's time is measured by: the frames of 80 ms that it hears."""

    @property
    def size(self) -> int:
        """Bytes of the weights and of what a step takes in memory; 0 where that is not known."""


class TooLongAtOnce(AudioTooLong):
    """The recording is longer than a model takes at once."""


class DiarizationModel(Protocol):
    """The side of a model that follows the recording. Safe to share."""

    @property
    def most_speakers(self) -> int | None:
        """How many speakers it can tell apart; None for any number."""

    @property
    def path(self) -> str:
        """What the engine loads the network by."""

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the weights and of all other values that decide the segments."""

    def diarize(
        self,
        read: Callable[[], Blocks],
        run: RunSteps[Any, Any],
        bounds: SpeakerBounds,
        speech: SpeechHeard | None = None,
    ) -> Diarization:
        """Who speaks when in one channel; `read()` gives its blocks (float32 `[n]` at 16 kHz) anew each
        time. speech: spares a model that needs the speech detector to run it. Raises TooLongAtOnce, and
        whatever `read` and `run` raise."""


def run_here(network: Network) -> RunSteps[Any, Any]:
    """Runs steps in this process, one after another."""

    def run(steps: Iterator[tuple[Floats, Any]]) -> Iterator[Any]:
        for samples, step in steps:
            yield network.run(samples, step)

    return run
