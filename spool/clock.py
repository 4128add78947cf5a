"""Time, threads and locks: the one module that asks the machine for them.

Everything else in Spool takes them from here, and a lint rule refuses `time.sleep`, `time.monotonic`,
`datetime.now`, `threading.Thread` and their like elsewhere. So a test can put a simulation in the machine's
place (`tests/simulation`): virtual time, and one thread at a time in an order that a seed decides. Without
one, each function and class here is the standard library's.
"""

import queue
import threading
import time as machine
from collections.abc import Callable, Collection
from concurrent import futures
from datetime import UTC, datetime
from typing import Protocol, Self, TypeVar

Result = TypeVar("Result")


class Simulation(Protocol):
    """What stands in for the machine. Waits are in virtual seconds; None waits without end."""

    def time_ns(self) -> int:
        """Nanoseconds since 1970, by the clock of the simulated host."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since some instant; never goes back."""

    def sleep(self, seconds: float) -> None:
        """Let others run until so many seconds have passed."""

    def start(self, thread: "Thread") -> None:
        """Run the thread beside the others."""

    def is_alive(self, thread: "Thread") -> bool:
        """Whether it was started and has not ended."""

    def wait(self, on: object, done: Callable[[], bool], timeout: float | None) -> bool:
        """Let others run until `done`, which only a `wake` of the same object makes true, or until so many
        seconds have passed; returns `done()`."""

    def wake(self, on: object) -> None:
        """What waits on this object is to look again."""

    def current(self) -> object:
        """The thread that runs."""


_simulation: Simulation | None = None


def install(simulation: Simulation | None) -> None:
    """Put a simulation in the machine's place, or the machine back."""
    global _simulation
    _simulation = simulation


def time() -> float:
    """Seconds since 1970."""
    return machine.time() if _simulation is None else _simulation.time_ns() / 1e9


def time_ns() -> int:
    """Nanoseconds since 1970."""
    return machine.time_ns() if _simulation is None else _simulation.time_ns()


def now() -> datetime:
    """The time of this machine, in UTC."""
    return datetime.now(UTC) if _simulation is None else datetime.fromtimestamp(time(), UTC)


def monotonic() -> float:
    """Seconds of a clock that nobody sets."""
    return machine.monotonic() if _simulation is None else _simulation.monotonic_ns() / 1e9


def monotonic_ns() -> int:
    """Nanoseconds of a clock that nobody sets."""
    return machine.monotonic_ns() if _simulation is None else _simulation.monotonic_ns()


def sleep(seconds: float) -> None:
    """Do nothing for so long."""
    if _simulation is None:
        machine.sleep(seconds)
    else:
        _simulation.sleep(seconds)


class Thread(threading.Thread):
    """A thread."""

    def start(self) -> None:
        """Run it. Raises RuntimeError where the machine has no more threads."""
        if _simulation is None:
            super().start()
        else:
            _simulation.start(self)

    def is_alive(self) -> bool:
        """Whether it was started and has not ended."""
        return super().is_alive() if _simulation is None else _simulation.is_alive(self)

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended."""
        if _simulation is None:
            super().join(timeout)
        else:
            _simulation.wait(self, lambda: not self.is_alive(), timeout)


class Event(threading.Event):
    """A flag that threads wait for."""

    def set(self) -> None:
        """Raise the flag, and wake who waits for it."""
        super().set()
        if _simulation is not None:
            _simulation.wake(self)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is raised; whether it is."""
        if _simulation is None:
            return super().wait(timeout)
        return self.is_set() or _simulation.wait(self, self.is_set, timeout)


class Lock:
    """A lock that one thread at a time holds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it; whether it was taken."""
        if _simulation is None or not blocking:
            return self._lock.acquire(blocking, timeout)
        if self._lock.acquire(blocking=False):
            return True
        limit = None if timeout < 0 else timeout
        return _simulation.wait(self, lambda: self._lock.acquire(blocking=False), limit)

    def release(self) -> None:
        """Give it back."""
        self._lock.release()
        if _simulation is not None:
            _simulation.wake(self)

    def locked(self) -> bool:
        """Whether a thread holds it."""
        return self._lock.locked()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock:
    """A lock that the thread that holds it may take again."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._owner: object = None
        self._times = 0

    def __enter__(self) -> Self:
        thread = threading.get_ident() if _simulation is None else _simulation.current()
        if self._owner != thread:
            self._lock.acquire()
            self._owner = thread
        self._times += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._times -= 1
        if not self._times:
            self._owner = None
            self._lock.release()


class Condition(threading.Condition):
    """Threads that wait for each other under one lock, which none of them takes twice."""

    def __init__(self, lock: Lock | None = None) -> None:
        super().__init__(lock or Lock())  # type: ignore[arg-type]  # any lock will do
        self._called: list[list[bool]] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Give back the lock until `notify`, then take it again; whether it was notified."""
        if _simulation is None:
            return super().wait(timeout)
        called = [False]
        self._called.append(called)
        self.release()
        try:
            return _simulation.wait(self, lambda: called[0], timeout)
        finally:
            self._called = [each for each in self._called if each is not called]
            self.acquire()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:  # type: ignore[override]
        """Wait until the predicate is true; returns what it is at the end."""
        end = None if timeout is None else monotonic() + timeout
        while not (result := predicate()):
            left = None if end is None else end - monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        """Wake this many of those that wait."""
        if _simulation is None:
            super().notify(n)
            return
        for called in [each for each in self._called if not each[0]][:n]:
            called[0] = True
        _simulation.wake(self)

    def notify_all(self) -> None:
        """Wake all that wait."""
        if _simulation is None:
            super().notify_all()
        else:
            self.notify(len(self._called))


class Queue(queue.Queue[Result]):
    """Things on their way from one thread to another."""

    def __init__(self, maxsize: int = 0) -> None:
        super().__init__(maxsize)
        mutex = Lock()
        self.mutex = mutex  # type: ignore[assignment]  # any lock will do
        self.not_empty, self.not_full, self.all_tasks_done = (Condition(mutex) for _ in range(3))

    def get(self, block: bool = True, timeout: float | None = None) -> Result:
        """The next one. Raises queue.Empty if none comes in time."""
        with self.not_empty:
            if not self.not_empty.wait_for(lambda: self._qsize() > 0, timeout if block else 0):
                raise queue.Empty
            item = self._get()
            self.not_full.notify()
            return item

    def put(self, item: Result, block: bool = True, timeout: float | None = None) -> None:
        """Add one. Raises queue.Full if there is no room in time."""
        with self.not_full:
            limit = self.maxsize or float("inf")
            if not self.not_full.wait_for(lambda: self._qsize() < limit, timeout if block else 0):
                raise queue.Full
            self._put(item)
            self.unfinished_tasks += 1
            self.not_empty.notify()


class Future(futures.Future[Result]):
    """An answer that another thread gives."""

    def result(self, timeout: float | None = None) -> Result:
        """The answer, or its error. Raises TimeoutError if neither comes in time."""
        if _simulation is not None and not self.done():
            wait_for_first([self], timeout)
            timeout = 0
        return super().result(timeout)


def wait_for_first(
    answers: Collection[futures.Future[Result]], timeout: float | None
) -> set[futures.Future[Result]]:
    """Those that have come, once one has or the time is up."""
    if _simulation is None:
        return futures.wait(answers, timeout, futures.FIRST_COMPLETED).done
    simulation, waiting = _simulation, object()
    if answers and not any(each.done() for each in answers):
        for each in answers:
            each.add_done_callback(lambda _: simulation.wake(waiting))
        simulation.wait(waiting, lambda: any(each.done() for each in answers), timeout)
    return {each for each in answers if each.done()}
