"""Two threads for one read, each with a connection of its own, so that a long search uses two cores.

One read of a process at a time has the second thread, and others do all by themselves meanwhile: they have
the other core already, and no request waits for a connection while it holds one that others wait for.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection

from spool import clock
from spool.store.database import allow_idle, map_file, read_on

IDLE_SECONDS = 60.0
"""How long either may wait for the other: a statement of the other one may be slow."""
_taken = clock.Lock()
A = TypeVar("A")
B = TypeVar("B")


class TwoThreads:
    """The connections of a read: its own, and that of the second thread, which is the same one where there is
    no second thread. The second one sees what was committed since the first one began."""

    def __init__(self, first: Connection, second: Connection) -> None:
        self.first = first
        self.second = second

    def both(self, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
        """What both return; the second one runs in the second thread."""
        if self.first is self.second:
            return first(), second()
        answer: clock.Future[B] = clock.Future()

        def run() -> None:
            try:
                answer.set_result(second())
            except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                answer.set_exception(error)

        thread = clock.Thread(target=run, name="spool-second", daemon=True)
        thread.start()
        try:
            return first(), answer.result()
        finally:
            thread.join()


@contextmanager
def two_threads(tx: Connection) -> Iterator[TwoThreads]:
    """A second thread beside this read, if there is one."""
    map_file(tx)
    if not _taken.acquire(blocking=False):
        yield TwoThreads(tx, tx)
        return
    try:
        with read_on(tx.engine) as other:
            map_file(other)
            for each in (tx, other):
                allow_idle(each, IDLE_SECONDS)
            yield TwoThreads(tx, other)
    finally:
        _taken.release()
