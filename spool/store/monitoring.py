"""What monitors read: queued, running and ended jobs, costs, the fleet, rare events, and the last audit.

Sums over the tables, cheap enough to be read every few seconds: queued and running jobs by partial indexes,
ended ones as counts over an index, costs of the current UTC day and month alone. A worker is known by its
name and pool; the counters of its processes are summed, so that none falls when one process ends and another
starts.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from itertools import groupby

from sqlalchemy import ColumnElement, Connection, func, insert, select, true

from spool.domain.fleet.routing import ANY_POOL, route_of
from spool.domain.jobs import TERMINAL, JobState
from spool.domain.pricing import NANOS_PER_SECOND, SAMPLE_RATE
from spool.domain.priority import PRIORITY_NAMES, PriorityName
from spool.domain.worker_stats import WorkCounts
from spool.ids import new_id
from spool.store.archive.exports import export_gauges
from spool.store.archive.sources import SourceGauges, source_gauges
from spool.store.ledger.charges import total
from spool.store.queue.unserved import Unserved, find_unserved
from spool.store.sql import count_by, count_rows, now_utc, read_clock, seconds_from_now, upsert
from spool.store.webhook_deliveries import webhook_deliveries_by_outcome
from spool.store.workers import Worker, list_recent_workers, workers_named
from spool.tables import audits, batches, cost_lines, counters, jobs, outbox, workers
from spool.tables.admin import Audited as Audited
from spool.tables.admin import StoredAudit
from spool.tables.record import reader_of, values_of

FORGOTTEN_SECONDS = 7 * 24 * 3600.0
"""How long a worker that died stays in the fleet."""


@dataclass(frozen=True, slots=True)
class Member:
    """A worker of the fleet: its current (or last) process, and the sums over all its processes."""

    worker: Worker
    engine_busy_ns: int
    counts: WorkCounts


def list_fleet(tx: Connection) -> tuple[Member, ...]:
    """Every worker that is alive or lost, but none that was stopped properly."""
    recent = (
        select(workers.c.name)
        .where(workers.c.stopped_at.is_(None), workers.c.seen_at > seconds_from_now(-FORGOTTEN_SECONDS))
        .distinct()
    )
    members = []
    rows = sorted(workers_named(tx, recent), key=lambda worker: (worker.name, worker.pool))
    for _, group in groupby(rows, key=lambda worker: (worker.name, worker.pool)):
        processes = list(group)
        present = max(processes, key=lambda worker: (worker.alive, worker.started_at, worker.id))
        if present.stopped_at is None:
            counts = sum((worker.counts for worker in processes), WorkCounts())
            members.append(Member(present, sum(worker.engine_busy_ns for worker in processes), counts))
    return tuple(members)


def keep_audit(tx: Connection, audited: Audited) -> None:
    """Store the result of an audit."""
    tx.execute(insert(audits).values(id=new_id("aud"), ended_at=now_utc(), **values_of(audited, Audited)))


def last_audit(tx: Connection) -> StoredAudit | None:
    """The latest result; None if there was no audit yet."""
    row = tx.execute(select(audits).order_by(audits.c.ended_at.desc(), audits.c.id.desc()).limit(1)).first()
    return None if row is None else reader_of(StoredAudit)(row)


LEASES_LOST = "leases_lost"
"""By pool: expired leases, whose jobs went back to the queue."""


def count_up(tx: Connection, name: str, by: dict[str, int]) -> None:
    """Add to the counts of `name`, each under its label. Locks those rows until the transaction ends."""
    for label, number in sorted(by.items()):  # always in the same order, so that no two can deadlock
        row = {"name": name, "label": label, "value": number}
        upsert(tx, counters, row, update={"value": counters.c.value + number})


def get_counts(tx: Connection, name: str) -> dict[str, int]:
    """The counts of `name` by label."""
    rows = tx.execute(
        select(counters.c.label, counters.c.value).where(counters.c.name == name).order_by(counters.c.label)
    )
    return {label: int(value) for label, value in rows}


@dataclass(frozen=True, slots=True)
class Waiting:
    """The queued jobs of one pool and priority, and when the oldest was queued."""

    pool: str
    priority: PriorityName
    jobs: int
    oldest: datetime


@dataclass(frozen=True, slots=True)
class EndedJobs:
    """Jobs in one final state; `error` is a code for failed jobs, else empty."""

    state: JobState
    error: str
    jobs: int


@dataclass(frozen=True, slots=True)
class Spent:
    """One model in one pool since the start of the period: seconds, and money in nano-units."""

    model: str
    pool: str
    engine_seconds: float
    wasted_seconds: float
    audio_seconds: float
    billable_nanos: int
    wasted_nanos: int

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            self.model,
            self.pool,
            self.engine_seconds + other.engine_seconds,
            self.wasted_seconds + other.wasted_seconds,
            self.audio_seconds + other.audio_seconds,
            self.billable_nanos + other.billable_nanos,
            self.wasted_nanos + other.wasted_nanos,
        )


@dataclass(frozen=True, slots=True)
class Gauges:
    """All gauges at one moment, by the database's clock."""

    now: datetime
    waiting: tuple[Waiting, ...]
    running: dict[str, int]
    """Jobs that workers are running, by pool."""
    refused: dict[str, int]
    """Queued jobs that a worker returned because it cannot run them, by pool."""
    ended: tuple[EndedJobs, ...]
    open_batches: int
    unsent: int
    """Messages not yet sent to the broker."""
    today: tuple[Spent, ...]
    month: tuple[Spent, ...]
    month_by_project: dict[str, int]
    """Billable money of the month, in nano-units."""
    fleet: tuple[Member, ...]
    leases_lost: dict[str, int]
    """By pool, in total."""
    audited: StoredAudit | None
    """The last audit."""
    webhooks: dict[str, int]
    """As `webhook_deliveries_by_outcome` counts them."""
    sources: SourceGauges | None
    outputs: tuple[dict[str, int], datetime | None]
    """As `export_gauges` counts them."""
    unserved: tuple[Unserved, ...] = ()
    """Jobs that no worker can take now."""


def read_gauges(tx: Connection, project: str | None = None, *, month: bool = True) -> Gauges:
    """The gauges now. For one project, without those of the whole installation (workers, messages).

    Without `month`, only the costs of today are read, which is a fraction of the work.
    """
    now = read_clock(tx)
    today = now.date()
    lines = _lines(tx, today.replace(day=1) if month else today, today, project)
    billed: Counter[str] = Counter()
    for line in lines:
        billed[line.project] += line.spent.billable_nanos
    return Gauges(
        now=now,
        waiting=_count_waiting(tx, project),
        running=_count_running(tx, project),
        refused=_count_refusals(tx, project),
        ended=_count_ended(tx, project),
        open_batches=count_rows(
            tx,
            _of(batches.c.project, project),
            batches.c.closed_at.is_(None),
            batches.c.cancelled_at.is_(None),
        ),
        unsent=0 if project else tx.scalar(select(func.count()).select_from(outbox)) or 0,
        today=_add_up(line.spent for line in lines if line.today),
        month=_add_up(line.spent for line in lines) if month else (),
        month_by_project={} if project or not month else dict(billed),
        fleet=() if project else list_fleet(tx),
        leases_lost={} if project else get_counts(tx, LEASES_LOST),
        audited=None if project else last_audit(tx),
        webhooks={} if project else webhook_deliveries_by_outcome(tx),
        sources=None if project else source_gauges(tx),
        outputs=({}, None) if project else export_gauges(tx),
        unserved=() if project else tuple(find_unserved(tx, [each.seen for each in list_recent_workers(tx)])),
    )


def _of(column: ColumnElement[str], project: str | None) -> ColumnElement[bool]:
    return true() if project is None else column == project


def _count_waiting(tx: Connection, project: str | None) -> tuple[Waiting, ...]:
    rows = tx.execute(
        select(jobs.c.queue, jobs.c.priority, func.count(), func.min(jobs.c.queued_at))
        .where(jobs.c.state == JobState.QUEUED.value, _of(jobs.c.project, project))
        .group_by(jobs.c.queue, jobs.c.priority)
    )
    sums: dict[tuple[str, int], tuple[int, datetime]] = {}
    for queue, priority, number, oldest in rows:
        of = route_of(queue).pool or ANY_POOL, int(priority)
        before = sums.get(of, (0, oldest))
        sums[of] = before[0] + int(number), min(before[1], oldest)
    return tuple(
        Waiting(pool, PRIORITY_NAMES[priority], *sums[pool, priority]) for pool, priority in sorted(sums)
    )


def _count_running(tx: Connection, project: str | None) -> dict[str, int]:
    running = count_by(tx, jobs.c.pool, jobs.c.state == JobState.RUNNING.value, _of(jobs.c.project, project))
    return {pool or ANY_POOL: number for pool, number in running.items()}


def _count_refusals(tx: Connection, project: str | None) -> dict[str, int]:
    refused = (jobs.c.state == JobState.QUEUED.value, jobs.c.refusals.is_not(None))
    return count_by(tx, jobs.c.pool, *refused, _of(jobs.c.project, project))


def _count_ended(tx: Connection, project: str | None) -> tuple[EndedJobs, ...]:
    rows = tx.execute(
        select(jobs.c.state, jobs.c.error_code, func.count())
        .where(jobs.c.state.in_([state.value for state in TERMINAL]), _of(jobs.c.project, project))
        .group_by(jobs.c.state, jobs.c.error_code)
    )
    counts = Counter({(JobState.DONE, ""): 0, (JobState.CANCELLED, ""): 0})
    for state, error, number in rows:
        # A cancelled job may have failed before.
        counts[JobState(state), error or "" if state == JobState.FAILED.value else ""] += int(number)
    return tuple(EndedJobs(state, error, number) for (state, error), number in sorted(counts.items()))


@dataclass(frozen=True, slots=True)
class _Line:
    project: str
    today: bool
    spent: Spent


def _lines(tx: Connection, since: date, today: date, project: str | None) -> list[_Line]:
    """The cost lines since `since` in one pass, grouped so that day, month and projects can be summed."""
    groups = (cost_lines.c.model, cost_lines.c.pool, cost_lines.c.project, cost_lines.c.day >= today)
    rows = tx.execute(
        select(
            *groups,
            total(cost_lines.c.engine_ns, wasted=False),
            total(cost_lines.c.engine_ns, wasted=True),
            total(cost_lines.c.audio_samples, wasted=False),
            total(cost_lines.c.cost_nanos, wasted=False),
            total(cost_lines.c.cost_nanos, wasted=True),
        )
        .where(cost_lines.c.day >= since, _of(cost_lines.c.project, project))
        .group_by(*groups)
    )
    return [
        _Line(
            owner,
            bool(is_today),
            Spent(
                model,
                pool,
                int(engine) / NANOS_PER_SECOND,
                int(lost) / NANOS_PER_SECOND,
                int(samples) / SAMPLE_RATE,
                int(billable),
                int(wasted),
            ),
        )
        for model, pool, owner, is_today, engine, lost, samples, billable, wasted in rows
    ]


def _add_up(parts: Iterable[Spent]) -> tuple[Spent, ...]:
    """The sums for each model and pool."""
    sums: dict[tuple[str, str], Spent] = {}
    for part in parts:
        known = sums.get((part.model, part.pool))
        sums[part.model, part.pool] = part if known is None else known + part
    return tuple(sums[name] for name in sorted(sums))
