"""Endings of short jobs that come at the same time, written in one transaction.

While one thread commits, the endings of others gather; the next thread writes all of them. If other jobs
are in flight, it waits `GATHER_SECONDS` for more of them first. Whatever keeps them from being written
together, each is then left to its own thread, so that a bad ending takes no other down. Knows the
transaction; how a job ends is `spool.store.queue.endings`'s business.
"""

from dataclasses import dataclass, replace

import structlog

from spool import clock
from spool.domain.transcript import Transcript
from spool.errors import SpoolError
from spool.failpoints import failpoint
from spool.store.database import Database
from spool.store.queue.endings import Ending, finish_jobs
from spool.store.transcripts.review import FinishedJob, doubts_in

MOST = 32
GATHER_SECONDS = 0.02
"""An ending comes so much later, and a batch of short recordings in a few transactions instead of many."""

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Waiting:
    ending: Ending
    transcript: Transcript
    tried: bool = False
    done: bool = False

    @property
    def finished(self) -> FinishedJob:
        """The ended job, from which passages to review are drawn."""
        return FinishedJob(self.ending.claim.job, self.ending.outcome.content_sha256, self.transcript)


class Endings:
    """Writes the endings of many threads together. Thread-safe."""

    def __init__(self, most: int = MOST, gather_seconds: float = GATHER_SECONDS) -> None:
        """`most`: endings of a transaction; `gather_seconds`: how long one waits for others."""
        self._most = most
        self._gather_seconds = gather_seconds
        self._lock = clock.Lock()
        self._writing = clock.Lock()
        self._waiting: list[_Waiting] = []

    def __len__(self) -> int:
        """The number of endings that wait while others are written."""
        return len(self._waiting)

    @property
    def writing(self) -> bool:
        """Whether endings are being written."""
        return self._writing.locked()

    def finish(self, db: Database, ending: Ending, transcript: Transcript, *, gather: bool = False) -> bool:
        """End the job, in one commit with those that end now; what there is to review is found here. gather:
        others may end soon. False if the caller has to write the ending by itself; it may have been
        committed all the same, if the database did not answer."""
        own = _Waiting(ending, transcript)
        with self._lock:
            self._waiting.append(own)
        with self._writing:
            if gather and not own.tried:
                clock.sleep(self._gather_seconds)
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
            reviews = doubts_in(db, [each.finished for each in together])
            endings = [
                replace(each.ending, review=review) for each, review in zip(together, reviews, strict=True)
            ]
            with db.begin() as tx:
                done = finish_jobs(tx, endings)
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
