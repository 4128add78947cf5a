"""The interface of readers of recordings, and the error messages they share.

A reader knows one open file at its own sample rate; it knows nothing of 16 kHz, mixing or limits.
"""

import errno
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from spool.errors import AudioUnreadable, SourceError, SourceForbidden, SourceMissing, StorageError

Samples = NDArray[np.float32]

MAX_BLOCK_VALUES = 1 << 20
MIN_RATE = 4_000
"""Hertz. No speech codec goes lower (telephones have 8 kHz), and a kilobyte at 1 Hz would be a quarter of an
hour."""
MAX_RATE = 6_000_000
"""Hertz; the highest rate in use (DSD128) is 5.6 MHz. A header that gives more is broken."""
MAX_SEPARATE_CHANNELS = 32
"""The most channels that are transcribed separately; each takes its own memory and engine time."""


class Block(NamedTuple):
    """Consecutive samples `[n, channels]` (float32, full scale is 1) at `rate` Hz."""

    samples: Samples
    rate: int


class Reader(Protocol):
    """One open recording at its own rate."""

    format: str
    rate: int
    channels: int
    warnings: list[str]
    expected_frames: int | None
    """The number of frames, if the header gives it; else None."""
    stated_seconds: float | None
    """The length that the container states, where only the reader can determine it; else None."""

    def blocks(self) -> Iterator[Block]:
        """Every sample once, in order, up to the end of a file that was cut off; raises `AudioError` where
        the file is damaged before its end."""
        ...

    def close(self) -> None:
        """Release the decoder; the caller keeps the file and closes it."""
        ...


def block_frames(rate: int, channels: int) -> int:
    """Frames to read at once: one second, or fewer if many channels or a high rate would take much memory."""
    return max(1, min(rate, MAX_BLOCK_VALUES // max(1, channels)))


def check_rate(name: str, rate: int) -> None:
    """Raise AudioUnreadable for a sample rate that no recording of speech has."""
    if not 0 < rate <= MAX_RATE:
        raise AudioUnreadable(f"{name}: the header gives a sample rate of {rate} Hz")
    if rate < MIN_RATE:
        raise AudioUnreadable(
            f"{name}: the sample rate is {rate} Hz, too low for speech; at least {MIN_RATE} Hz is required"
        )


def format_time(frame: int, rate: int) -> str:
    """A position in the recording, formatted for messages."""
    return f"{frame / rate:.3f} s"


def source_error(name: str, error: OSError) -> SourceError | StorageError:
    """The operating system's error about the file `name` as one of Spool's."""
    if error.errno in (errno.ENOENT, errno.ESTALE, errno.ENOTDIR):
        return SourceMissing(f"{name}: the recording does not exist")
    if error.errno in (errno.EACCES, errno.EPERM):
        return SourceForbidden(f"{name}: the recording cannot be opened: permission denied")
    return StorageError(f"{name}: reading failed: {error.strerror or error}")
