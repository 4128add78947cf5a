"""Limits on how slow a source may be, and reading from a source that may block.

Law 10: a source that sends a byte a second is as bad as one that sends nothing, and would occupy the worker
for days.
"""

import queue
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO

from spool import clock
from spool.errors import StorageError

POLL_SECONDS = 0.5
"""How often a reader that waits for bytes checks whether to stop."""
BLOCK_BYTES = 64 << 10
_BLOCKS_AHEAD = 16


@dataclass(frozen=True, slots=True)
class PaceLimits:
    """The limits of a transfer."""

    first_byte_seconds: float = 60.0
    window_seconds: float = 30.0
    bytes_per_second: int = 2048  # speech in Opus; averaged over each window
    total_seconds: float = 6 * 3600.0


@dataclass(slots=True)
class Pace:
    """One transfer against its limits. `name` is what messages call the recording."""

    name: str
    limits: PaceLimits = field(default_factory=PaceLimits)
    _started: float = field(default_factory=clock.monotonic)
    _window: float | None = None
    _bytes: int = 0

    def note(self, count: int) -> None:
        """The source answered, or `count` bytes have arrived."""
        if self._window is None:
            self._window = clock.monotonic()
        self._bytes += count
        self.check()

    def check(self) -> None:
        """Raise StorageError once the source is too slow."""
        limits, now = self.limits, clock.monotonic()
        if now - self._started > limits.total_seconds:
            raise StorageError(
                f"{self.name}: the recording did not arrive within {limits.total_seconds / 3600:g} hours."
            )
        if self._window is None:
            if now - self._started > limits.first_byte_seconds:
                raise StorageError(
                    f"{self.name}: the source sent nothing for {limits.first_byte_seconds:g} s."
                )
            return
        elapsed = now - self._window
        if elapsed < limits.window_seconds:
            return
        if self._bytes < limits.bytes_per_second * elapsed:
            raise StorageError(
                f"{self.name}: the source is too slow: {self._bytes} bytes in {elapsed:.0f} s, and at least "
                f"{limits.bytes_per_second} a second are expected."
            )
        self._window, self._bytes = now, 0


def read_watched(
    open_stream: Callable[[], BinaryIO], check: Callable[[], None], pace: Pace
) -> Generator[bytes]:
    """The blocks of the stream that `open_stream` returns, opened and read in a separate thread.

    Meanwhile `check` is called twice a second and may raise to stop; then a stream with a method `interrupt`
    is interrupted, and the thread ends by itself. Raises StorageError if the source is too slow, and whatever
    opening and reading raise.
    """
    reading = _ReadingThread(open_stream)
    clock.Thread(target=reading.run, name="spool-source", daemon=True).start()
    try:
        while True:
            check()
            pace.check()
            with suppress(queue.Empty):
                block = reading.blocks.get(timeout=POLL_SECONDS)
                if isinstance(block, BaseException):
                    raise block
                if not block:
                    return
                pace.note(len(block))
                yield block
    finally:
        reading.stop()


class _ReadingThread:
    """The reading thread. The last block is empty, or is the error that ended it."""

    def __init__(self, open_stream: Callable[[], BinaryIO]) -> None:
        self.blocks: queue.Queue[bytes | BaseException] = clock.Queue(_BLOCKS_AHEAD)
        self._open_stream = open_stream
        self._stream: BinaryIO | None = None
        self._stopped = clock.Event()

    def run(self) -> None:
        """Open and read to the end, or until stopped."""
        try:
            with self._open_stream() as self._stream:
                while not self._stopped.is_set() and (block := self._stream.read(BLOCK_BYTES)):
                    self._put(block)
            self._put(b"")
        except Exception as error:  # noqa: BLE001 - raised again by the consumer of the blocks
            self._put(error)

    def _put(self, block: bytes | BaseException) -> None:
        while not self._stopped.is_set():
            with suppress(queue.Full):
                self.blocks.put(block, timeout=POLL_SECONDS)
                return

    def stop(self) -> None:
        """Stop reading. A stream that opens later is not read at all."""
        self._stopped.set()
        interrupt = getattr(self._stream, "interrupt", None)
        if interrupt is not None:
            interrupt()
