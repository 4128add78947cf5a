"""From coded packets to blocks of samples: what all readers that decode with FFmpeg's codecs share.

Handles frames, damage and the container's clock; subclasses supply the packets.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import av.error
import av.logging
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.plane import AudioPlane
from numpy.typing import NDArray

from spool.errors import AudioUnreadable
from worker.audio.base import MAX_BLOCK_VALUES, Block, Samples, block_frames

# FFmpeg writes to standard error by default.
av.logging.set_level(None)

_GAP_SECONDS = 0.1
_MAX_GAP_SECONDS = 3600.0
_MAX_LOST_SECONDS = 0.5
MAX_FRAME_VALUES = 2 * MAX_BLOCK_VALUES
"""Samples of all channels in one decoded frame; the longest frames of real codecs have half as many."""
_SCALES = {
    "u8": 128.0,
    "s16": 32768.0,
    "s32": 2147483648.0,
    "s64": 9223372036854775808.0,
    "flt": 1.0,
    "dbl": 1.0,
}
_DTYPES = {"u8": "u1", "s16": "<i2", "s32": "<i4", "s64": "<i8", "flt": "<f4", "dbl": "<f8"}


class FrameReader(ABC):
    """A reader (see `worker.audio.base.Reader`) whose subclass supplies decoded frames in order."""

    def __init__(self, name: str) -> None:
        """`name` is what messages call the file."""
        self._name = name
        self._lost = 0.0
        # Frames at the start that are the encoder's priming, not audio.
        self._skip = 0
        self._clock = Clock(0.0)
        self.warnings: list[str] = []
        self.rate = 0
        self.channels = 0
        self.format = ""
        self.expected_frames: int | None = None
        self.stated_seconds: float | None = None

    @abstractmethod
    def _frames(self) -> Iterator[tuple[AudioFrame, float | None]]:
        """Decoded frames in order, each with its time on the container's clock where that has one."""

    @abstractmethod
    def close(self) -> None:
        """Release the decoder; the caller's file stays open."""

    def blocks(self) -> Iterator[Block]:
        """Every sample once, about a second at a time; pauses in the container's clock come as silence."""
        pending: list[Samples] = []
        rate = self.rate
        count = 0
        for samples, sample_rate in self._pieces():
            if pending and (sample_rate != rate or samples.shape[1] != pending[0].shape[1]):
                yield Block(np.concatenate(pending), rate)
                pending, count = [], 0
            rate = sample_rate
            pending.append(samples)
            count += len(samples)
            if count >= block_frames(rate, samples.shape[1]):
                yield Block(np.concatenate(pending), rate)
                pending, count = [], 0
        if pending:
            yield Block(np.concatenate(pending), rate)
        self.warnings.extend(self._clock.notes())

    def _pieces(self) -> Iterator[tuple[Samples, int]]:
        for frame, time in self._frames():
            samples = _to_float(frame)
            if self._skip:
                dropped = min(self._skip, len(samples))
                self._skip -= dropped
                samples = samples[dropped:]
                time = None if time is None else time + dropped / frame.sample_rate
                if not len(samples):
                    continue
            most = block_frames(frame.sample_rate, samples.shape[1])
            for gap in self._clock.gap(time, len(samples), frame.sample_rate, most):
                yield np.zeros((gap, samples.shape[1]), dtype=np.float32), frame.sample_rate
            for at in range(0, len(samples), most):
                yield samples[at : at + most], frame.sample_rate

    @property
    def _position(self) -> str:
        return f"{self._clock.seconds:.3f} s"

    @contextmanager
    def _tolerating_damage(self, seconds: float, *, last: bool = False) -> Iterator[None]:
        """Turn damage into a warning while its total is shorter than a word; `last`: the file is cut here."""
        try:
            yield
        except av.error.FFmpegError as error:
            self._lost += seconds
            if self._lost <= _MAX_LOST_SECONDS:
                self.warnings.append(
                    f"a damaged packet ({seconds:.3f} s) at {self._position} could not be decoded"
                )
            elif not last:
                raise AudioUnreadable(
                    f"{self._name}: the audio is damaged around {self._position}"
                ) from error


class Clock:
    """Compares the decoded samples with the container's timestamps, in seconds."""

    def __init__(self, start: float) -> None:
        self._origin = start
        self._count = 0
        self._rate = 1
        self._gaps = 0
        self._filled = 0.0
        self._before = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of samples so far."""
        return self._before + self._count / self._rate

    def gap(self, pts: float | None, count: int, rate: int, most: int) -> Iterator[int]:
        """Lengths in frames, each at most `most`, of the silence due before `count` samples at `pts`."""
        if rate != self._rate:
            self._move(self._origin + self._count / self._rate)
            self._rate = rate
        if pts is not None:
            ahead = pts - self._origin - self._count / rate
            if _GAP_SECONDS < ahead <= _MAX_GAP_SECONDS:
                missing = round(ahead * rate)
                self._gaps += 1
                self._filled += missing / rate
                self._count += missing
                yield from (min(most, missing - at) for at in range(0, missing, most))
            elif abs(ahead) > _GAP_SECONDS:
                # A clock that jumps back, or by more than an hour, comes from a joined file: follow it.
                self._move(pts)
        self._count += count

    def _move(self, origin: float) -> None:
        self._before += self._count / self._rate
        self._origin, self._count = origin, 0

    def notes(self) -> Iterator[str]:
        """Warnings for the transcript."""
        if self._gaps:
            yield f"{self._gaps} pauses in the container's clock ({self._filled:.2f} s) were read as silence"


def _to_float(frame: AudioFrame) -> Samples:
    """`[n, channels]` float32, full scale 1, from any of FFmpeg's sample formats."""
    kind = frame.format.name.removesuffix("p")
    channels = len(frame.layout.channels)
    if frame.format.is_planar:
        values = np.stack([_plane(frame, number, kind, 1) for number in range(channels)], axis=1)
    else:
        values = _plane(frame, 0, kind, channels).reshape(-1, channels)
    scaled = values.astype(np.float32)
    if kind == "u8":
        scaled -= 128.0
    if _SCALES[kind] != 1.0:
        scaled /= np.float32(_SCALES[kind])
    return np.ascontiguousarray(scaled)


def _plane(frame: AudioFrame, number: int, kind: str, width: int) -> NDArray[np.generic]:
    # Not `frame.to_ndarray()`: it counts planes up to a null pointer, which is missing from eight channels
    # on, and reads past the end. PyAV's stubs do not say that a plane is a buffer.
    plane: Any = AudioPlane(frame, number)
    values: NDArray[np.generic] = np.frombuffer(plane, _DTYPES[kind], frame.samples * width)
    return values
