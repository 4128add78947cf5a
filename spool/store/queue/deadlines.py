"""Deadlines in SQL: what open batches have left, how fast pools are, and the resulting order of jobs.

`spool.domain.deadlines` forecasts. A job's `deadline_rank` sorts it within its class; for a deadline that can
no longer be met it is set to `NEVER`, a block of jobs at a time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Connection, case, func, literal, select, update

from spool.domain.deadlines import DeadlineForecast, Load
from spool.domain.fleet.routing import route_of
from spool.domain.jobs import JobState
from spool.domain.pricing import NANOS_PER_SECOND, SAMPLE_RATE
from spool.domain.priority import NEVER, deadline_rank_of
from spool.store.batch_progress import WINDOW_SECONDS
from spool.store.queue.queues import QUEUED, projects_in
from spool.store.sql import now_utc, read_clock, seconds_from_now, today_utc
from spool.store.workers import ready_workers
from spool.tables import batches, cost_lines, jobs

BLOCK = 2000
_OPEN = [JobState.QUEUED.value, JobState.RUNNING.value]


@dataclass(frozen=True, slots=True)
class Loads:
    """The batches with deadlines of one project in one queue, and the rate they can expect there."""

    queue: str
    project: str
    loads: tuple[Load, ...]
    rate: float | None
    """Seconds of audio a second; None if no engine has been measured."""


def open_loads(tx: Connection, shares: Mapping[str, float]) -> tuple[list[Loads], datetime]:
    """The loads to forecast, and the database's clock."""
    now = read_clock(tx)
    rows = tx.execute(
        select(batches.c.id, batches.c.project, batches.c.priority, batches.c.deadline, batches.c.late)
        .where(
            batches.c.deadline.is_not(None),
            batches.c.cancelled_at.is_(None),
            (batches.c.deadline > now_utc()) | ~batches.c.late,
        )
        .order_by(batches.c.id)
    ).all()
    left = _sum_remaining(tx, [row.id for row in rows])
    grouped: dict[tuple[str, str], list[Load]] = {}
    for row in rows:
        if row.id in left:
            queue, seconds = left[row.id]
            load = Load(row.id, row.priority, row.deadline, seconds, row.late)
            grouped.setdefault((queue, row.project), []).append(load)
    judged = []
    for (queue, project), loads in grouped.items():
        judged.append(Loads(queue, project, tuple(loads), _rate(tx, queue, project, shares)))
    return judged, now


def keep_forecast(tx: Connection, verdict: DeadlineForecast) -> None:
    """Store the batch's forecast."""
    values = {"late": verdict.late, "expected_at": verdict.expected_at, "expected_basis": verdict.basis}
    tx.execute(update(batches).where(batches.c.id == verdict.id).values(**values))


def move_jobs(tx: Connection, verdict: DeadlineForecast, deadline: datetime) -> int:
    """Sort up to `BLOCK` of the batch's open jobs as the verdict says; returns how many. Call it until it
    returns 0."""
    rank = NEVER if verdict.late else deadline_rank_of(deadline)
    return _move(tx, [jobs.c.batch_id == verdict.id, jobs.c.state.in_(_OPEN)], rank)


def pass_over_late_jobs(tx: Connection) -> int:
    """Sort up to `BLOCK` jobs whose own deadlines have passed as if they had none; returns how many."""
    now = read_clock(tx)
    return _move(tx, [QUEUED, jobs.c.deadline_rank < deadline_rank_of(now), jobs.c.batch_id.is_(None)], NEVER)


def _move(tx: Connection, conditions: Iterable[ColumnElement[bool]], rank: int) -> int:
    # Locked in the order of ids, as everywhere, to avoid deadlocks.
    some = (
        select(jobs.c.id)
        .where(*conditions, jobs.c.deadline.is_not(None), jobs.c.deadline_rank != rank)
        .order_by(jobs.c.id)
        .limit(BLOCK)
        .with_for_update(skip_locked=True)
    )
    ids = list(tx.scalars(some))
    if ids:
        tx.execute(update(jobs).where(jobs.c.id.in_(ids)).values(deadline_rank=rank))
    return len(ids)


def _sum_remaining(tx: Connection, batch_ids: list[str]) -> dict[str, tuple[str, float | None]]:
    """The queue and the remaining audio of each of these batches that has open jobs."""
    if not batch_ids:
        return {}
    known = jobs.c.audio_seconds.is_not(None)
    unended = jobs.c.state.in_(_OPEN)
    rest = jobs.c.audio_seconds - jobs.c.done_seconds
    rows = tx.execute(
        select(
            jobs.c.batch_id,
            func.min(jobs.c.queue),
            func.sum(case((unended, 1), else_=0)),
            func.sum(case((unended & known & (rest > 0), rest), else_=0.0)),
            func.sum(case((unended & ~known, 1), else_=0)),
            func.avg(jobs.c.audio_seconds),
        )
        .where(jobs.c.batch_id.in_(batch_ids))
        .group_by(jobs.c.batch_id)
    )
    audio_left: dict[str, tuple[str, float | None]] = {}
    for batch_id, queue, unended_jobs, seconds, unknown, mean in rows:
        if not unended_jobs:
            continue
        left = None if unknown and mean is None else float(seconds) + int(unknown) * float(mean or 0.0)
        audio_left[batch_id] = queue, left
    return audio_left


def _rate(tx: Connection, queue: str, project: str, shares: Mapping[str, float]) -> float | None:
    """The measured rate of the engines that serve the queue, times their number, times the project's
    share."""
    route = route_of(queue)
    pools = [offer.pool for offer in ready_workers(tx) if offer.takes(route)]
    speed = _throughput(tx, sorted(set(pools)))
    if not pools or speed is None:
        return None
    waiting = set(tx.scalars(projects_in(queue)))
    all_shares = sum(shares.get(name, 1.0) for name in waiting | {project})
    return speed * len(pools) * shares.get(project, 1.0) / all_shares


def _throughput(tx: Connection, pools: list[str]) -> float | None:
    """Seconds of audio per second of engine: over the last minutes, else over the last two days."""
    lines = cost_lines.c
    today = tx.scalar(select(today_utc()))
    assert today is not None
    yesterday = today - timedelta(days=1)
    for newest in (lines.updated_at >= seconds_from_now(-WINDOW_SECONDS), literal(True)):
        row = tx.execute(
            select(func.sum(lines.audio_samples), func.sum(lines.engine_ns)).where(
                lines.day >= yesterday, lines.pool.in_(pools), ~lines.wasted, newest
            )
        ).one()
        if row[0] and row[1]:
            return (int(row[0]) / SAMPLE_RATE) / (int(row[1]) / NANOS_PER_SECOND)
    return None
