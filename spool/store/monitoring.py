"""The fleet as a monitor sees it, and the last results of audits.

A worker is known by its name and pool, whatever process bears them just now: what its processes counted is
summed, so that a count never falls when one ends and another begins.

Counts of what happens rarely in the whole house, kept for monitors: they only grow.

What a monitor watches: how much waits and since when, how jobs ended, what the engines did, what it cost.

Sums over the tables as they stand, cheap enough to be asked every few seconds: what waits and runs by partial
indexes, what ended as counts over an index, money of the present UTC day and month alone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from itertools import groupby

from sqlalchemy import ColumnElement, Connection, case, func, insert, select, true

from spool.domain.jobs import TERMINAL, JobState
from spool.domain.pricing import NANOS_PER_SECOND, SAMPLE_RATE
from spool.domain.priority import PRIORITY_NAMES, PriorityName
from spool.domain.worker_stats import WorkCounts
from spool.ids import new_id
from spool.store.sql import now_utc, seconds_from_now, upsert
from spool.store.webhooks import webhook_deliveries_by_outcome
from spool.store.workers import Worker, workers_named
from spool.tables import audits, batches, cost_lines, counters, jobs, outbox, workers

FORGOTTEN_SECONDS = 7 * 24 * 3600.0
"""So long a worker that died is missed; after that nobody expects it any more."""


@dataclass(frozen=True, slots=True)
class Member:
    """A worker of the fleet: its present (or last) process, and what all its processes came to."""

    worker: Worker
    engine_busy_ns: int
    counts: WorkCounts


@dataclass(frozen=True, slots=True)
class Audited:
    """What an audit found: breaches by rule (all rules, zeros too), and what it looked at."""

    breaches: Mapping[str, int]
    looked_at: Mapping[str, int]
    objects: bool
    """Whether it looked at the object store as well."""
    version: str
    ended_at: datetime | None = None
    """The database's time, once kept."""


def fleet(tx: Connection) -> tuple[Member, ...]:
    """Everybody who works here or is missed; not who stopped in good order."""
    recent = (
        select(workers.c.name)
        .where(workers.c.stopped_at.is_(None), workers.c.seen_at > seconds_from_now(-FORGOTTEN_SECONDS))
        .distinct()
    )
    members = []
    rows = sorted(workers_named(tx, recent), key=lambda one: (one.info.name, one.info.pool))
    for _, group in groupby(rows, key=lambda one: (one.info.name, one.info.pool)):
        processes = list(group)
        present = max(processes, key=lambda one: (one.alive, one.started_at, one.info.id))
        if present.stopped_at is None:
            counts = sum((one.counts for one in processes), WorkCounts())
            members.append(Member(present, sum(one.engine_busy_ns for one in processes), counts))
    return tuple(members)


def keep_audit(tx: Connection, audited: Audited) -> None:
    """Note the result of an audit, now."""
    tx.execute(
        insert(audits).values(
            id=new_id("aud"),
            ended_at=now_utc(),
            objects=audited.objects,
            looked_at=dict(audited.looked_at),
            breaches=dict(audited.breaches),
            version=audited.version,
        )
    )


def last_audit(tx: Connection) -> Audited | None:
    """The latest result; None where nobody ever audited."""
    row = tx.execute(select(audits).order_by(audits.c.ended_at.desc(), audits.c.id.desc()).limit(1)).first()
    if row is None:
        return None
    return Audited(row.breaches, row.looked_at, row.objects, row.version, row.ended_at)


LEASES_LOST = "leases_lost"
"""By pool: leases that ran out, so that the job was taken back from its worker."""


def count_up(tx: Connection, name: str, by: dict[str, int]) -> None:
    """Add to the counts of `name`, each under its label. Locks those rows until the transaction ends."""
    for label, number in sorted(by.items()):  # in one order everywhere, so that no two can deadlock
        row = {"name": name, "label": label, "value": number}
        upsert(tx, counters, row, update={"value": counters.c.value + number})


def counted(tx: Connection, name: str) -> dict[str, int]:
    """The counts of `name` by label."""
    rows = tx.execute(
        select(counters.c.label, counters.c.value).where(counters.c.name == name).order_by(counters.c.label)
    )
    return {label: int(value) for label, value in rows}


@dataclass(frozen=True, slots=True)
class Waiting:
    """The queued jobs of one pool and class, and when the one that waits longest was queued."""

    pool: str
    priority: PriorityName
    jobs: int
    oldest: datetime


@dataclass(frozen=True, slots=True)
class Ended:
    """Jobs in one final state; `error` is a code for failed ones, else empty."""

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
    """Everything at one moment, by the database's clock."""

    now: datetime
    waiting: tuple[Waiting, ...]
    running: dict[str, int]
    """Jobs in workers, by pool."""
    ended: tuple[Ended, ...]
    open_batches: int
    unsent: int
    """Messages that have still to go to the broker."""
    today: tuple[Spent, ...]
    month: tuple[Spent, ...]
    month_by_project: dict[str, int]
    """Billable money of the month, in nano-units."""
    fleet: tuple[Member, ...]
    leases_lost: dict[str, int]
    """By pool, since ever."""
    audited: Audited | None
    """The last audit."""
    webhooks: dict[str, int]
    """What came of deliveries, as `webhook_deliveries_by_outcome` counts them."""


def read_gauges(tx: Connection, project: str | None = None, *, month: bool = True) -> Gauges:
    """The gauges now; of one project alone, and then without what is the whole house's: workers, messages.

    Without `month`, the money of today alone is read, which is a fraction of the work.
    """
    now = tx.scalar(select(now_utc()))
    assert now is not None
    today = now.date()
    lines = _lines(tx, today.replace(day=1) if month else today, today, project)
    billed: Counter[str] = Counter()
    for line in lines:
        billed[line.project] += line.spent.billable_nanos
    return Gauges(
        now=now,
        waiting=_waiting(tx, project),
        running=_running(tx, project),
        ended=_ended(tx, project),
        open_batches=_count(
            tx,
            _of(batches.c.project, project)
            & batches.c.closed_at.is_(None)
            & batches.c.cancelled_at.is_(None),
        ),
        unsent=0 if project else tx.scalar(select(func.count()).select_from(outbox)) or 0,
        today=_added(line.spent for line in lines if line.today),
        month=_added(line.spent for line in lines) if month else (),
        month_by_project={} if project or not month else dict(billed),
        fleet=() if project else fleet(tx),
        leases_lost={} if project else counted(tx, LEASES_LOST),
        audited=None if project else last_audit(tx),
        webhooks={} if project else webhook_deliveries_by_outcome(tx),
    )


def _of(column: ColumnElement[str], project: str | None) -> ColumnElement[bool]:
    return true() if project is None else column == project


def _waiting(tx: Connection, project: str | None) -> tuple[Waiting, ...]:
    rows = tx.execute(
        select(jobs.c.pool, jobs.c.priority, func.count(), func.min(jobs.c.queued_at))
        .where(jobs.c.state == JobState.QUEUED.value, _of(jobs.c.project, project))
        .group_by(jobs.c.pool, jobs.c.priority)
        .order_by(jobs.c.pool, jobs.c.priority)
    )
    return tuple(
        Waiting(pool, PRIORITY_NAMES[priority], int(number), oldest)
        for pool, priority, number, oldest in rows
    )


def _running(tx: Connection, project: str | None) -> dict[str, int]:
    rows = tx.execute(
        select(jobs.c.pool, func.count())
        .where(jobs.c.state == JobState.RUNNING.value, _of(jobs.c.project, project))
        .group_by(jobs.c.pool)
        .order_by(jobs.c.pool)
    )
    return {pool: int(number) for pool, number in rows}


def _ended(tx: Connection, project: str | None) -> tuple[Ended, ...]:
    rows = tx.execute(
        select(jobs.c.state, jobs.c.error_code, func.count())
        .where(jobs.c.state.in_([state.value for state in TERMINAL]), _of(jobs.c.project, project))
        .group_by(jobs.c.state, jobs.c.error_code)
    )
    counts = Counter({(JobState.DONE, ""): 0, (JobState.CANCELLED, ""): 0})
    for state, error, number in rows:
        # One that was cancelled may have failed before.
        counts[JobState(state), error or "" if state == JobState.FAILED.value else ""] += int(number)
    return tuple(Ended(state, error, number) for (state, error), number in sorted(counts.items()))


def _count(tx: Connection, condition: ColumnElement[bool]) -> int:
    return tx.scalar(select(func.count()).where(condition)) or 0


@dataclass(frozen=True, slots=True)
class _Line:
    project: str
    today: bool
    spent: Spent


def _lines(tx: Connection, since: date, today: date, project: str | None) -> list[_Line]:
    """One pass over the lines since then: fine enough to add up day, month and each project from."""

    def total(column: ColumnElement[int], *, wasted: bool) -> ColumnElement[int]:
        return func.coalesce(func.sum(case((cost_lines.c.wasted.is_(wasted), column), else_=0)), 0)

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
            of,
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
        for model, pool, of, is_today, engine, lost, samples, billable, wasted in rows
    ]


def _added(parts: Iterable[Spent]) -> tuple[Spent, ...]:
    """One for each model and pool."""
    sums: dict[tuple[str, str], Spent] = {}
    for part in parts:
        known = sums.get((part.model, part.pool))
        sums[part.model, part.pool] = part if known is None else known + part
    return tuple(sums[name] for name in sorted(sums))
