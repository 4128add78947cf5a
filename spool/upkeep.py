"""What whoever sweeps keeps up to date for the choice of jobs: use of quotas, and who can make a deadline.

Knows when; the sums are in `spool.store`, the judgement in `spool.quotas` and `spool.deadlines`.
"""

from collections.abc import Callable
from functools import partial

from sqlalchemy import Connection

from spool.deadlines import reckon
from spool.ids import new_id
from spool.settings import Settings
from spool.store.database import Database
from spool.store.deadlines import keep_verdict, move_jobs, open_loads, pass_over_late_jobs
from spool.store.outbox import try_lock
from spool.store.quotas import refresh_use

RECKON_SECONDS = 30.0
_LOCK = "deadlines"


def upkeep(db: Database, settings: Settings) -> None:
    """Bring it up to date, as far as it is time for it. Raises StorageError."""
    if settings.quotas:
        with db.begin() as tx:
            refresh_use(tx, settings.quotas)
    with db.begin() as tx:
        # Nobody gives this lock up: it says when there was a reckoning last.
        due = try_lock(tx, _LOCK, new_id("dln"), RECKON_SECONDS)
    if due:
        reckon_deadlines(db, settings)


def reckon_deadlines(db: Database, settings: Settings) -> None:
    """Judge every batch that has a deadline, and sort its jobs accordingly. Raises StorageError."""
    with db.read() as tx:
        groups, now = open_loads(tx, settings.shares)
    for group in groups:
        deadlines = {load.id: load.deadline for load in group.loads}
        for verdict in reckon(group.loads, group.rate, now):
            with db.begin() as tx:
                keep_verdict(tx, verdict)
            _until_done(db, partial(move_jobs, verdict=verdict, deadline=deadlines[verdict.id]))
    _until_done(db, pass_over_late_jobs)


def _until_done(db: Database, block: Callable[[Connection], int]) -> None:
    """A block of jobs a transaction, so that nobody waits long for them."""
    moved = 1
    while moved:
        with db.begin() as tx:
            moved = block(tx)
