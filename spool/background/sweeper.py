"""The thread that relays the outbox and sweeps, which makes a lost message harmless.

`Sweeper` runs in API and worker processes; whichever holds the lock in SQL sweeps, and brings quotas and
deadlines up to date. Any outage of Redis or SQL is waited out with back-off. The sums are in `spool.store`,
the decisions in `spool.domain.quotas` and `spool.domain.deadlines`.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial

import structlog
from celery import Celery
from sqlalchemy import Connection

from spool import clock
from spool.background.outbox_relay import AT_ONCE, relay_once
from spool.background.thread import BackgroundLoop, jitter
from spool.broker.celery_app import queue_depth
from spool.domain.deadlines import forecast_deadlines
from spool.errors import StorageError
from spool.failpoints import failpoint
from spool.ids import new_id
from spool.settings import Settings
from spool.store.archive.closures import lift_due
from spool.store.database import Database
from spool.store.queue import locks as queue_locks
from spool.store.queue import outbox
from spool.store.queue.deadlines import keep_forecast, move_jobs, open_loads, pass_over_late_jobs
from spool.store.queue.locks import SWEEP_LOCK, try_lock
from spool.store.queue.outbox import SweepLimits, SweepReport
from spool.store.queue.quotas import refresh_use
from spool.store.queue.scheduler import count_runnable
from spool.store.sql import read_clock
from spool.store.transcripts.sounds import clear_stale, pack_sounds

log = structlog.get_logger(__name__)


class Contact:
    """How long this process has reached the database without interruption, by the database's clock.

    While nobody reaches the database no lease can be renewed. So a sweeper that could not reach it either, or
    that has just started, first gives live workers the time of a lease to renew theirs. A shorter
    interruption than half a lease ends no lease: a third of it at most had passed since its last renewal.
    """

    def __init__(self, lease_seconds: float, sweep_seconds: float) -> None:
        self._grace = timedelta(seconds=lease_seconds)
        self._longest_gap = timedelta(seconds=max(lease_seconds / 2, 3 * sweep_seconds))
        self._since: datetime | None = None
        self._last: datetime | None = None

    def note(self, now: datetime) -> bool:
        """Note that the database was reached; whether live workers have had time to renew their leases."""
        if self._since is None or self._last is None or now - self._last > self._longest_gap:
            if self._last is not None:
                gap = (now - self._last).total_seconds()
                log.warning("database not reached, leases are extended", for_seconds=round(gap, 1))
            self._since = now
        self._last = now
        return now - self._since >= self._grace


def sweep_once(
    db: Database, app: Celery, settings: Settings, owner: str, contact: Contact | None = None
) -> SweepReport | None:
    """Sweep if the lock is free or ours; None when another process sweeps. Without `contact` no lease is
    extended for an outage. Raises StorageError."""
    with db.begin() as tx:
        if contact is not None:
            contact.note(read_clock(tx))
        if not queue_locks.try_lock(tx, SWEEP_LOCK, owner, 3 * settings.sweep_seconds):
            return None
    failpoint("sweep.locked")
    upkeep(db, settings)
    with db.read() as tx:
        waiting = count_runnable(tx, settings.rules, settings.hint_window)
        missing = {
            queue: number - outbox.unsent(tx, queue, settings.hint_window)
            for queue, number in waiting.items()
        }
    try:
        room = _room(app, missing)
    except StorageError:
        room = {}  # without Redis nothing can be sent again, but leases are still taken back
    with db.begin() as tx:
        limits = SweepLimits(
            hint_stale_seconds=settings.hint_stale_seconds,
            max_crashes=settings.max_crashes,
            room=room,
            only_ended=contact is not None and not contact.note(read_clock(tx)),
        )
        report = outbox.sweep(tx, limits)
    failpoint("sweep.swept")
    for job in report.taken:
        log.warning(
            "lease ran out", **job.ids, attempt=job.attempt, crashes=job.crashes, becomes=str(job.state)
        )
    for job_id, worker_id in report.review.crashed:
        log.warning("crash confirmed", job_id=job_id, worker_id=worker_id)
    for job_id, worker_id in report.review.withdrawn:
        log.info("no crash: the worker is back", job_id=job_id, worker_id=worker_id)
    for job in report.review.poisoned:
        log.warning("set aside as poison", **job.ids, crashes=job.crashes)
    if report.rehinted:
        log.info("messages sent again", jobs=len(report.rehinted))
    return report


class Sweeper(BackgroundLoop):
    """Sweeps at each interval and relays hints when woken: call `wake()` after a commit."""

    def __init__(self, db: Database, app: Celery, settings: Settings) -> None:
        super().__init__("spool-sweeper")
        self._db = db
        self._app = app
        self._settings = settings
        self._owner = new_id("swp")
        self._contact = Contact(settings.lease_seconds, settings.sweep_seconds)
        self._next_sweep = 0.0

    def run_once(self) -> float:
        """Sweep if it is time, then relay what is due. Whoever writes a hint meanwhile wakes the sweeper of
        its own process."""
        if clock.monotonic() >= self._next_sweep:
            sweep_once(self._db, self._app, self._settings, self._owner, self._contact)
            self._next_sweep = clock.monotonic() + jitter(self._settings.sweep_seconds)
        sent = AT_ONCE
        while sent == AT_ONCE and not self.stopping:
            sent = relay_once(self._db, self._app, AT_ONCE, window=self._settings.hint_window)
        return max(0.0, self._next_sweep - clock.monotonic())

    def finish(self) -> None:
        """Release the lock for the next sweeper; otherwise it would run out by itself."""
        with self._db.begin() as tx:
            queue_locks.unlock(tx, SWEEP_LOCK, self._owner)


def _room(app: Celery, missing: Mapping[str, int]) -> dict[str, int]:
    """How many messages Redis may be missing, by queue: with as many messages as runnable jobs it misses
    none."""
    return {queue: number - queue_depth(app, queue) for queue, number in missing.items() if number > 0}


FORECAST_SECONDS = 30.0
_DEADLINES_LOCK = "deadlines"


def upkeep(db: Database, settings: Settings) -> None:
    """Update quotas, the index of sounds and deadlines, if it is time. Raises StorageError."""
    if settings.quotas:
        with db.begin() as tx:
            refresh_use(tx, settings.quotas)
    _until_done(db, lift_due)
    _until_done(db, clear_stale)
    _until_done(db, pack_sounds)
    with db.begin() as tx:
        # Never released: the lock's expiry says when the last update was.
        due = try_lock(tx, _DEADLINES_LOCK, new_id("dln"), FORECAST_SECONDS)
    if due:
        update_deadlines(db, settings)


def update_deadlines(db: Database, settings: Settings) -> None:
    """Forecast every batch that has a deadline, and sort its jobs accordingly. Raises StorageError."""
    with db.read() as tx:
        groups, now = open_loads(tx, settings.shares)
    for group in groups:
        deadlines = {load.id: load.deadline for load in group.loads}
        for verdict in forecast_deadlines(group.loads, group.rate, now):
            with db.begin() as tx:
                keep_forecast(tx, verdict)
            _until_done(db, partial(move_jobs, verdict=verdict, deadline=deadlines[verdict.id]))
    _until_done(db, pass_over_late_jobs)


def _until_done(db: Database, block: Callable[[Connection], int]) -> None:
    """One transaction per block of jobs, so that no other transaction waits long for them."""
    moved = 1
    while moved:
        with db.begin() as tx:
            moved = block(tx)
