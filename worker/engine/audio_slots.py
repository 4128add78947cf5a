"""Audio on its way to the engine's process: a fixed number of slots in one block of shared memory.

The slots are the engine's back-pressure: a job waits while none is free, and the waiting job that holds the
fewest gets the next one, so a long job cannot keep a short one out.
"""

import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spool import clock
from spool.errors import EngineStopped, InvalidRequest, JobCancelled, SettingsError

SHARED_MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - where Linux keeps it; absent on macOS
CANCEL_POLL_SECONDS = 0.2  # an Event cannot be waited for together with a Condition


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """The shared memory's name, the number of slots, and the float32 samples in each."""

    name: str
    count: int
    samples: int


@dataclass(slots=True, eq=False)
class _Waiter:
    job: str
    called: clock.Condition
    slot: int | None = None


class AudioSlots:
    """The parent's side: allocates slots and writes utterances into them. Thread-safe."""

    def __init__(self, count: int, samples: int) -> None:
        size = count * samples * 4
        _refuse_if_too_small(size)
        self._memory = SharedMemory(create=True, size=size)
        self._array: NDArray[np.float32] | None = _as_array(self._memory, count, samples)
        self.layout = SlotLayout(self._memory.name, count, samples)
        self._lock = clock.Lock()
        self._free = list(range(count - 1, -1, -1))
        self._holders: dict[int, str] = {}
        self._queue: list[_Waiter] = []  # in the order in which they came
        self._closed = False

    def acquire(self, job: str, cancel: clock.Event | None = None) -> int:
        """Wait for a free slot. Raises JobCancelled once `cancel` is set or the slots are closed."""
        waiter = _Waiter(job, clock.Condition(self._lock))
        with self._lock:
            self._queue.append(waiter)
            self._hand_out()
            try:
                while waiter.slot is None:
                    if self._closed or (cancel is not None and cancel.is_set()):
                        raise JobCancelled
                    waiter.called.wait(CANCEL_POLL_SECONDS)
            except BaseException:
                if waiter.slot is None:
                    self._queue.remove(waiter)
                else:
                    self._put_back(waiter.slot)
                raise
            return waiter.slot

    def write(self, slot: int, samples: NDArray[np.float32]) -> None:
        """Copy a mono utterance into a slot that the caller holds. Raises EngineStopped."""
        array = self._array
        if array is None:
            raise EngineStopped
        array[slot, : len(samples)] = samples

    def release(self, slot: int) -> None:
        """Release a slot; releasing it twice is harmless."""
        with self._lock:
            self._put_back(slot)

    @property
    def free(self) -> int:
        """The number of free slots."""
        with self._lock:
            return len(self._free)

    def check_length(self, samples: int) -> None:
        """Raise InvalidRequest for an utterance longer than a slot."""
        if samples > self.layout.samples:
            raise InvalidRequest(
                f"An utterance of {samples / 16_000:.1f} s is longer than the "
                f"{self.layout.samples / 16_000:.0f} s that an engine slot holds; cut it into chunks."
            )

    def close(self) -> None:
        """Remove the shared memory; every waiting `acquire` ends."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for waiter in self._queue:
                waiter.called.notify()
        self._array = None
        with suppress(BufferError):  # a writer may be copying; the mapping is then freed when it is done
            self._memory.close()
        self._memory.unlink()

    def _put_back(self, slot: int) -> None:
        if self._holders.pop(slot, None) is not None:
            self._free.append(slot)
            self._hand_out()

    def _hand_out(self) -> None:
        """Give each free slot to whom it belongs, and wake nobody else. Call it under the lock."""
        while self._free and self._queue and not self._closed:
            waiter = self._next_in_line()
            self._queue.remove(waiter)
            waiter.slot = self._free.pop()
            self._holders[waiter.slot] = waiter.job
            waiter.called.notify()

    def _next_in_line(self) -> "_Waiter":
        if len(self._queue) == 1:
            return self._queue[0]
        held = Counter(self._holders.values())
        return min(self._queue, key=lambda waiter: held[waiter.job])


class AudioView:
    """The child's side: reads utterances in place."""

    def __init__(self, layout: SlotLayout) -> None:
        self._memory = SharedMemory(name=layout.name)
        self._array = _as_array(self._memory, layout.count, layout.samples)

    def read(self, slot: int, samples: int) -> NDArray[np.float32]:
        """A read-only view of the first `samples` samples in `slot`, valid until the result is sent."""
        view = self._array[slot, :samples]
        view.flags.writeable = False
        return view


def _as_array(memory: SharedMemory, count: int, samples: int) -> NDArray[np.float32]:
    return np.ndarray((count, samples), np.float32, buffer=memory.buf)


def _refuse_if_too_small(size: int) -> None:
    """Raise SettingsError if /dev/shm is too small (64 MB in containers by default): Linux would kill the
    process on the first write that does not fit."""
    if not SHARED_MEMORY_FOLDER.is_dir():
        return
    status = os.statvfs(SHARED_MEMORY_FOLDER)
    free = status.f_bavail * status.f_frsize
    if free < size:
        raise SettingsError(
            f"The engine's audio slots need {size >> 20} MiB of shared memory and {SHARED_MEMORY_FOLDER} has "
            f"{free >> 20} MiB free: lower SPOOL_ENGINE_SLOTS, or give the container more (--shm-size)."
        )
