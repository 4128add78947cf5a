"""What every reader of a recording offers, and the words in which readers complain.

A reader knows one open file at its own sample rate; it knows nothing of 16 kHz, mixing or limits.
"""

import errno
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from spool.errors import SourceError, SourceForbidden, SourceMissing, StorageError

Samples = NDArray[np.float32]

MAX_BLOCK_VALUES = 1 << 20
MAX_RATE = 6_000_000
"""Hertz; the fastest recordings there are (DSD128) have 5.6 MHz. Beyond it a header is broken."""


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
    """How many frames the file holds as far as its header can be believed, else None."""

    def blocks(self) -> Iterator[Block]:
        """Every sample once, in order; raises `AudioError` where the file cannot be read on."""
        ...

    def close(self) -> None:
        """Give back what the reader holds; the caller keeps and closes the file itself."""
        ...


def block_frames(rate: int, channels: int) -> int:
    """Frames to read at once: about a second; neither 1 Hz nor 1000 channels may cost memory."""
    return max(1, min(rate, MAX_BLOCK_VALUES // max(1, channels)))


def at_time(frame: int, rate: int) -> str:
    """A place in the recording, as it stands in messages."""
    return f"{frame / rate:.3f} s"


def source_error(name: str, error: OSError) -> SourceError | StorageError:
    """The error of ours for what the operating system said about the file called `name`."""
    if error.errno in (errno.ENOENT, errno.ESTALE, errno.ENOTDIR):
        return SourceMissing(f"{name}: the recording is not there (any more)")
    if error.errno in (errno.EACCES, errno.EPERM):
        return SourceForbidden(f"{name}: the recording cannot be opened: permission denied")
    return StorageError(f"{name}: reading failed: {error.strerror or error}")
