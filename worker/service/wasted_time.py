"""Engine time that is not billed yet: kept until the database has stored it.

A saved chunk carries its own charge. What is left is time whose result nobody keeps (the job was cancelled,
failed, or taken over); it is billed as wasted, on the job that caused it, so that bills and busy time agree
(law 5). The database may be away just then, so the charge waits here and goes out with a later heartbeat. A
commit whose answer was lost may have gone through all the same: it is looked for before it is done again.
"""

from collections import deque
from dataclasses import dataclass

import structlog
from sqlalchemy import Connection

from spool import clock
from spool.errors import SpoolError
from spool.failpoints import failpoint
from spool.store.chunks import load_chunks
from spool.store.database import Database
from spool.store.ledger.charges import Charge, sum_wasted_ns, write_charge
from spool.store.passes import load_passes
from spool.tables.jobs import PassName

PAUSE_SECONDS = 0.5

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Debt:
    job_id: str
    attempt: int
    bill: Charge
    batch_id: str | None
    unless_saved: tuple[int, int] | None
    unless_heard: tuple[PassName, int] | None
    before: int | None = None
    """What the ledger held of this attempt's wasted time when the debt was first written."""

    def settle(self, tx: Connection) -> None:
        """Charge it, unless an earlier commit has done that or has kept the chunk after all."""
        if self.unless_saved is not None and self._is_saved(tx, *self.unless_saved):
            return
        if self.unless_heard is not None and self._was_heard(tx, *self.unless_heard):
            return
        billed = sum_wasted_ns(tx, self.job_id, self.attempt, self.bill.worker_id)
        if self.before is not None and billed > self.before:
            return
        self.before = billed
        write_charge(tx, self.job_id, self.attempt, self.bill, wasted=True)

    def _is_saved(self, tx: Connection, channel: int, index: int) -> bool:
        own_key = (channel, index, self.attempt)
        return any((c.span.channel, c.span.index, c.attempt) == own_key for c in load_chunks(tx, self.job_id))

    def _was_heard(self, tx: Connection, listener: PassName, channel: int) -> bool:
        saved = load_passes(tx, self.job_id, listener)
        return any((each.channel, each.attempt) == (channel, self.attempt) for each in saved)


class WastedTime:
    """Charges to be written as wasted. Thread-safe."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._debts: deque[_Debt] = deque()
        self._writing = clock.Lock()

    def __len__(self) -> int:
        return len(self._debts)

    def add(
        self,
        job_id: str,
        attempt: int,
        bill: Charge,
        batch_id: str | None = None,
        *,
        unless_saved: tuple[int, int] | None = None,
        unless_heard: tuple[PassName, int] | None = None,
    ) -> None:
        """Queue `bill`; `write` puts it into the ledger.

        `unless_saved` names a chunk (channel, index) that this attempt could not tell was saved: where it is,
        it has carried its own charge. `unless_heard` names a listener's channel that may be saved likewise.
        """
        if bill.engine_ns:
            self._debts.append(_Debt(job_id, attempt, bill, batch_id, unless_saved, unless_heard))

    def write_within(self, seconds: float) -> None:
        """Write all queued charges, again after errors, for so long: nobody writes them after this."""
        end = clock.monotonic() + seconds
        while not self.write() and clock.monotonic() < end:
            clock.sleep(PAUSE_SECONDS)

    def write(self) -> bool:
        """Write all queued charges, each in its own commit; False if some have to wait."""
        with self._writing:
            while self._debts:
                debt = self._debts[0]
                try:
                    with self._db.begin() as tx:
                        debt.settle(tx)
                except SpoolError as error:
                    whose = {"job_id": debt.job_id} | ({"batch_id": debt.batch_id} if debt.batch_id else {})
                    log.warning("wasted time not billed yet", **whose, error=error.message)
                    return False
                failpoint("wasted.committed")
                self._debts.popleft()
            return True
