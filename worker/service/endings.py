"""Endings of short jobs that come at the same time, written in one transaction.

While one thread commits, the endings of others gather; the next thread writes all of them. None waits for
company. Whatever keeps them from being written together, each is then left to its own thread, so that a bad
ending takes no other down. Knows the transaction; how a job ends is `spool.store.queue.endings`'s business.
"""

import threading
from dataclasses import dataclass

import structlog

from spool.errors import SpoolError
from spool.failpoints import failpoint
from spool.store.database import Database
from spool.store.queue.endings import Ending, finish_jobs

MOST = 32

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Waiting:
    ending: Ending
    tried: bool = False
    done: bool = False


class Endings:
    """Thread-safe."""

    def __init__(self, most: int = MOST) -> None:
        """`most`: endings of a transaction."""
        self._most = most
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._waiting: list[_Waiting] = []

    def __len__(self) -> int:
        """How many wait while others are written."""
        return len(self._waiting)

    @property
    def writing(self) -> bool:
        """Whether endings are being written."""
        return self._writing.locked()

    def finish(self, db: Database, ending: Ending) -> bool:
        """End the job, in one commit with those that end now. False where the caller has to write the ending
        by itself; it may have been committed all the same, if the database did not answer."""
        own = _Waiting(ending)
        with self._lock:
            self._waiting.append(own)
        with self._writing:
            while not own.tried:
                with self._lock:
                    together, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                self._write(db, together)
        return own.done

    def _write(self, db: Database, together: list[_Waiting]) -> None:
        several = len(together) > 1
        for each in together:
            each.tried = True
        try:
            with db.begin() as tx:
                done = finish_jobs(tx, [each.ending for each in together])
                failpoint("finish.written")
                if several:
                    failpoint("endings.written")
        except Exception as error:  # noqa: BLE001 - whoseever it is, its own thread meets it again
            reason = error.message if isinstance(error, SpoolError) else type(error).__name__
            log.warning("endings are written one by one", jobs=len(together), reason=reason)
            return
        if several:
            failpoint("endings.committed")
        for each in together:
            each.done = each.ending.claim.job.id in done
