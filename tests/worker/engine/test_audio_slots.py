"""Slots of shared memory: who gets one that becomes free, and who is woken for it."""

import threading
from collections.abc import Iterator

import pytest

from ops.testbed.waiting import until
from spool import clock
from spool.errors import JobCancelled
from worker.engine import AudioSlots


@pytest.fixture
def slots() -> Iterator[AudioSlots]:
    slots = AudioSlots(2, 160)
    yield slots
    slots.close()


class Waiting(threading.Thread):
    """Asks for a slot; `slot` is the one it got, `refused` whether it was told to stop."""

    def __init__(self, slots: AudioSlots, job: str) -> None:
        super().__init__(daemon=True)
        self._slots = slots
        self._job = job
        self.cancel = clock.Event()
        self.slot: int | None = None
        self.refused = False

    def run(self) -> None:
        """Wait for the slot."""
        try:
            self.slot = self._slots.acquire(self._job, self.cancel)
        except JobCancelled:
            self.refused = True


def waiting(slots: AudioSlots, *jobs: str) -> list[Waiting]:
    """Threads that wait, in this order."""
    threads = []
    for job in jobs:
        before = len(slots._queue)
        threads.append(Waiting(slots, job))
        threads[-1].start()
        until(lambda: len(slots._queue) == before + 1, "it waits")  # noqa: B023 - called at once
    return threads


def test_a_free_slot_goes_to_one_waiter_who_holds_fewest(slots: AudioSlots) -> None:
    held = slots.acquire("long"), slots.acquire("long")
    threads = waiting(slots, "long", "short", "other")
    slots.release(held[0])
    threads[1].join()
    assert (threads[1].slot, threads[0].slot, threads[2].slot) == (held[0], None, None)
    slots.release(held[0])
    threads[2].join()
    assert (threads[0].slot, threads[2].slot) == (None, held[0])
    slots.release(held[1])
    threads[0].join()
    assert (threads[0].slot, slots.free) == (held[1], 0)


def test_a_slot_passes_by_who_has_stopped_waiting(slots: AudioSlots) -> None:
    held = slots.acquire("a"), slots.acquire("b")
    first, second = waiting(slots, "c", "d")
    first.cancel.set()
    first.join()
    assert first.refused
    slots.release(held[0])
    second.join()
    assert (second.slot, slots.free) == (held[0], 0)
    slots.release(held[0])
    slots.release(held[0])
    slots.release(held[1])
    assert slots.free == 2, "giving one back twice changes nothing"


def test_every_wait_ends_when_the_slots_are_closed(slots: AudioSlots) -> None:
    slots.acquire("a"), slots.acquire("b")
    threads = waiting(slots, "c", "d", "e")
    slots.close()
    for thread in threads:
        thread.join()
    assert [thread.refused for thread in threads] == [True] * 3
