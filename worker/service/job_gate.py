"""The jobs in flight in this process, and how one of them can have it to itself.

A job whose attempts ended with a dead process may be what killed it, or may only have been beside that. On
its last chance it runs alone, so that a process that dies then is known to die of this job.
"""

import contextlib
from collections.abc import Callable, Iterator

from spool import clock

POLL_SECONDS = 0.2  # how often a waiting job calls `stop`


class JobGate:
    """Counts the jobs in flight. Thread-safe."""

    def __init__(self) -> None:
        self._changed = clock.Condition()
        self._taken = 0
        self._wanted_alone = 0

    @property
    def taken(self) -> int:
        """How many jobs are in flight."""
        with self._changed:
            return self._taken

    @contextlib.contextmanager
    def share(self, stop: Callable[[], bool]) -> Iterator[bool]:
        """Enter beside others, once no job wants to run alone; False if `stop` ended the wait."""
        with self._changed:
            entered = self._enter(lambda: not self._wanted_alone, stop)
        try:
            yield entered
        finally:
            self._leave(entered)

    @contextlib.contextmanager
    def alone(self, stop: Callable[[], bool]) -> Iterator[bool]:
        """Enter alone, once all others have left; meanwhile no other job enters. False if `stop` ended the
        wait."""
        with self._changed:
            self._wanted_alone += 1
            entered = self._enter(lambda: not self._taken, stop)
        try:
            yield entered
        finally:
            with self._changed:
                self._wanted_alone -= 1
            self._leave(entered)

    def add(self, jobs: int) -> None:
        """Count so many jobs in that were claimed beside the caller's own. Each of them has to `leave`."""
        with self._changed:
            self._taken += jobs

    def leave(self) -> None:
        """Count out a job that was counted in by `add`."""
        self._leave(True)

    def _enter(self, free: Callable[[], bool], stop: Callable[[], bool]) -> bool:
        while not stop():
            if free():
                self._taken += 1
                return True
            self._changed.wait(POLL_SECONDS)
        return False

    def _leave(self, entered: bool) -> None:
        with self._changed:
            self._taken -= entered
            self._changed.notify_all()
