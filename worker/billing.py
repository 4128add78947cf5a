"""Engine time that is not on a bill yet: kept until the database has taken it.

A saved chunk carries its own charge. What is left is time whose result nobody keeps (the job was cancelled,
failed, or taken over); it is billed as wasted, on the job that caused it, so that bills and busy time agree
(law 5). The database may be away just then, so the charge waits here and goes out with a later heartbeat.
"""

import threading
from collections import deque
from dataclasses import dataclass

import structlog

from spool.errors import SpoolError
from spool.failpoints import failpoint
from spool.store.costs import Charge, charge
from spool.store.database import Database

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Debt:
    job_id: str
    attempt: int
    bill: Charge


class WastedTime:
    """Charges to be written as wasted. Thread-safe."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._debts: deque[_Debt] = deque()
        self._writing = threading.Lock()

    def __len__(self) -> int:
        return len(self._debts)

    def add(self, job_id: str, attempt: int, bill: Charge) -> None:
        """Owe `bill`; `write` puts it into the ledger."""
        if bill.engine_ns:
            self._debts.append(_Debt(job_id, attempt, bill))

    def write(self) -> bool:
        """Write what is owed, each in its own commit; False when some of it has to wait."""
        with self._writing:
            while self._debts:
                debt = self._debts[0]
                try:
                    with self._db.begin() as tx:
                        charge(tx, debt.job_id, debt.attempt, debt.bill, wasted=True)
                except SpoolError as error:
                    log.warning("wasted time not billed yet", job=debt.job_id, error=error.message)
                    return False
                failpoint("wasted.committed")
                self._debts.popleft()
            return True
