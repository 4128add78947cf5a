"""Renews one job's lease while its thread works, and tells that thread when to stop.

Knows the claim and the database; knows nothing of audio. The renewals say whether a person asked to cancel.
A job whose thread does not end it soon after that, because it waits for the device, a disk or a store, is
cancelled from here. While the database does not answer, the job goes on: if another worker took it over all
the same, the first write that gets through finds the lease lost. The thread that renews starts when the first
renewal is due, since most short jobs have ended by then.
"""

import heapq
import itertools
import math
from collections.abc import Callable
from types import TracebackType
from typing import Self

import structlog

from spool import clock
from spool.errors import JobCancelled, LeaseLost, SpoolError, StorageError, TimeLimit
from spool.failpoints import failpoint
from spool.store.database import Database
from spool.store.queue.endings import cancel_claimed, fail_job
from spool.store.queue.leases import Claim, renew_lease

log = structlog.get_logger(__name__)

RENEWALS_PER_LEASE = 3
MOST_PAUSE = 2.0
"""Seconds between two renewals at most, since they are how a cancel arrives."""
CANCEL_SECONDS = 1.0
"""How long the thread of a cancelled job has to end it, and to save what the engine finishes meanwhile."""


class Lease:
    """Renews the claim's lease, in a thread of its own, until the block ends. `stop` is set once the job must
    not go on."""

    def __init__(
        self,
        db: Database,
        claim: Claim,
        lease_seconds: float,
        most_seconds: float = math.inf,
        hangs: Callable[[], None] = lambda: None,
        outage_seconds: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """`hangs` is called when the job has run for `most_seconds`, and a lease later nothing has ended.
        The lease is given up after it could not be renewed for `outage_seconds`."""
        self._db = db
        self._claim = claim
        self._seconds = lease_seconds
        self._most_seconds = most_seconds
        self._hangs = hangs
        self._outage_seconds = outage_seconds
        self._begun = clock.monotonic()
        self._ended = clock.Event()
        self._lost: LeaseLost | None = None
        self._cancelled = False
        self.wrote_cancel = False
        """Whether the job was cancelled from here."""
        self._starting = clock.Lock()
        self._thread: clock.Thread | None = None
        self.stop = clock.Event()

    def __enter__(self) -> Self:
        _STARTS.add(self._begun + self._pause, self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._starting:
            self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def check(self) -> None:
        """Raise LeaseLost, JobCancelled or TimeLimit once it is so."""
        if self._lost is not None:
            raise self._lost
        if self._cancelled:
            raise JobCancelled
        if self.ran_seconds > self._most_seconds:
            raise TimeLimit(self._too_long)

    @property
    def ran_seconds(self) -> float:
        """How long workers have run the job since it was submitted or retried, this attempt included."""
        return self._claim.job.ran_seconds + clock.monotonic() - self._begun

    def cancel(self) -> None:
        """A person has asked to cancel the job."""
        self._cancelled = True
        self.stop.set()

    def start_renewing(self) -> None:
        """Start the thread, unless the block has ended. Without one the job must not go on."""
        thread = clock.Thread(target=self._keep, name=f"lease-{self._claim.job.id}", daemon=True)
        with self._starting:
            if self._ended.is_set():
                return
            try:
                thread.start()
            except RuntimeError:
                self._lose(LeaseLost("The lease could not be renewed: there are no more threads."))
                return
            self._thread = thread

    @property
    def _pause(self) -> float:
        return min(self._seconds / RENEWALS_PER_LEASE, MOST_PAUSE)

    def _keep(self) -> None:
        renewed, wait = self._begun, 0.0  # the first is due
        while not self._ended.wait(wait):
            wait = self._pause
            asked = clock.monotonic()
            try:
                cancel = renew_once(self._db, self._claim, self._seconds, self.ran_seconds)
            except LeaseLost as error:
                self._lose(error)
                return
            except StorageError as error:
                log.warning("lease not renewed", **self._claim.job.ids, error=error.message)
                if clock.monotonic() - renewed > self._outage_seconds():
                    self._lose(LeaseLost("The lease could not be renewed in time."))
                    return
                continue
            renewed = asked
            if cancel:
                self.cancel()
                if self._end_cancelled():
                    self._watch_for_hanging()
                    return
            if self.ran_seconds > self._most_seconds:  # wake what waits for the engine; `check` says why
                self.stop.set()
            if self.ran_seconds > self._most_seconds + self._seconds:
                self._end_from_here()
                return

    def _end_cancelled(self) -> bool:
        """Cancel the job unless its thread does so in time; whether it has ended."""
        if self._ended.wait(CANCEL_SECONDS):
            return True
        try:
            write_cancel(self._db, self._claim)
        except LeaseLost as error:
            self._lose(error)
            return True
        except StorageError as error:
            log.warning("ending not written", **self._claim.job.ids, error=error.message)
            return False
        self.wrote_cancel = True
        return True

    def _watch_for_hanging(self) -> None:
        """The job has ended, but not yet its thread."""
        most = self._most_seconds + self._seconds
        while not self._ended.wait(self._pause):
            if self.ran_seconds > most:
                self._hangs()
                return

    def _end_from_here(self) -> None:
        """The job's thread hangs in code that never asks: fail the job in its place."""
        self._lose(LeaseLost("The job was ended, since it did not stop at its limit of time."))
        self._hangs()
        log.error("job does not stop at its limit of time", **self._claim.job.ids)
        try:
            with self._db.begin() as tx:
                fail_job(tx, self._claim, TimeLimit.code, self._too_long)
        except SpoolError as error:
            # The lease expires.
            log.warning("ending not written", **self._claim.job.ids, error=error.message)

    @property
    def _too_long(self) -> str:
        return (
            f"{self._claim.job.name}: it has run longer than the limit of {self._most_seconds:g} s; what is "
            "decoded is kept, and a retry goes on from there."
        )

    def _lose(self, error: LeaseLost) -> None:
        self._lost = error
        self.stop.set()


class _Starts:
    """One thread that starts those of the leases when they are due."""

    def __init__(self) -> None:
        self._changed = clock.Condition()
        self._due: list[tuple[float, int, Lease]] = []
        self._numbers = itertools.count()
        self._runs = False

    def add(self, at: float, lease: Lease) -> None:
        """Start the lease's thread at this time of the monotonic clock."""
        with self._changed:
            if not self._runs:
                clock.Thread(target=self._run, name="leases", daemon=True).start()
                self._runs = True
            heapq.heappush(self._due, (at, next(self._numbers), lease))
            if self._due[0][2] is lease:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            self._next().start_renewing()

    def _next(self) -> Lease:
        with self._changed:
            while not self._due or self._due[0][0] > clock.monotonic():
                self._changed.wait(self._due[0][0] - clock.monotonic() if self._due else None)
            return heapq.heappop(self._due)[2]


_STARTS = _Starts()


def write_cancel(db: Database, claim: Claim) -> None:
    """Cancel the job, in a transaction of its own. Raises LeaseLost and StorageError."""
    with db.begin() as tx:
        cancel_claimed(tx, claim)
        failpoint("ending.written")
    failpoint("ending.committed")


def renew_once(db: Database, claim: Claim, lease_seconds: float, ran_seconds: float | None = None) -> bool:
    """Renew in a transaction of its own; True when a person has asked to cancel. Raises LeaseLost,
    StorageError."""
    with db.begin() as tx:
        return renew_lease(tx, claim, lease_seconds, ran_seconds)
