"""Reports over the ledger: a period's costs by group, the fleet's idle time beside them, and budgets.

What a job was (its key, batch and tags) is read from its row, which outlives its recordings. Sums only; what
follows from them is in `spool.outlooks`.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, literal, select

from spool.costs import NANOS_PER_SECOND, cost_nanos, money
from spool.errors import InvalidRequest
from spool.store.bills import NOTHING, CostReport, CostRow, CostSums, GroupBy
from spool.store.costs import sums_of
from spool.tables import cost_lines, jobs, workers

_GROUPS: dict[str, ColumnElement[Any]] = {
    "day": cost_lines.c.day,
    "project": cost_lines.c.project,
    "model": cost_lines.c.model,
    "worker": workers.c.name,
    "pool": cost_lines.c.pool,
    "job": cost_lines.c.job_id,
    "key": func.coalesce(jobs.c.key_id, ""),
    "batch": func.coalesce(jobs.c.batch_id, ""),
}


def cost_report(
    tx: Connection,
    start: date,
    end: date,
    group_by: GroupBy = "day",
    currency: str = "USD",
    project: str | None = None,
    tag: str | None = None,
) -> CostReport:
    """Costs of the UTC days from `start` (inclusive) to `end` (exclusive), by group; of one project or all.

    Idle is the time within the period that workers were up and their engines not busy; it is the fleet's, on
    no job's bill, hence None in the report of a project. Raises InvalidRequest when the period is empty or
    `group_by` unknown. By `tag`, rows are the values of the tag of that name.
    """
    if end <= start:
        raise InvalidRequest("The period of a cost report has to end after it starts.")
    key = _key(group_by, tag)
    by_key: defaultdict[str, CostSums] = defaultdict(lambda: NOTHING)
    busy: defaultdict[str, int] = defaultdict(int)
    for row in tx.execute(_grouped(key, group_by, start, end, project)):
        by_key[str(row.key)] += sums_of(row)
        busy[row.worker_id] += int(row.engine_ns)
    rows = tuple(CostRow(name, by_key[name]) for name in sorted(by_key))
    total = sum(by_key.values(), NOTHING)
    if project is not None:
        return CostReport(start, end, group_by, currency, rows, total, None, None)
    idle_ns, idle_nanos = _idle(tx, start, end, busy)
    idle_seconds, idle_cost = idle_ns / NANOS_PER_SECOND, money(idle_nanos)
    return CostReport(start, end, group_by, currency, rows, total, idle_seconds, idle_cost)


def _grouped(
    key: ColumnElement[Any], group_by: GroupBy, start: date, end: date, project: str | None
) -> Select[Any]:
    """One pass over the period's lines, fine enough to add up rows, total and each worker's time from."""
    lines = (
        select(
            key.label("key"),
            cost_lines.c.worker_id,
            cost_lines.c.wasted,
            func.sum(cost_lines.c.audio_samples).label("audio_samples"),
            func.sum(cost_lines.c.engine_ns).label("engine_ns"),
            func.sum(cost_lines.c.cost_nanos).label("cost_nanos"),
        )
        .where(cost_lines.c.day >= start, cost_lines.c.day < end)
        .group_by(key, cost_lines.c.worker_id, cost_lines.c.wasted)
    )
    if project is not None:
        lines = lines.where(cost_lines.c.project == project)
    if group_by == "worker":
        return lines.join(workers, workers.c.id == cost_lines.c.worker_id)
    if group_by in ("key", "batch", "tag"):
        return lines.join(jobs, jobs.c.id == cost_lines.c.job_id, isouter=True)
    return lines


def _key(group_by: GroupBy, tag: str | None) -> ColumnElement[Any]:
    if group_by == "tag":
        if not tag:
            raise InvalidRequest("Say which tag costs are to be grouped by: `tag`.")
        return func.coalesce(jobs.c.tags[tag].as_string(), literal(""))
    if group_by not in _GROUPS:
        raise InvalidRequest(f"Costs are grouped by {', '.join([*_GROUPS, 'tag'])}, not by {group_by}.")
    return _GROUPS[group_by]


def _idle(tx: Connection, start: date, end: date, busy: Mapping[str, int]) -> tuple[int, int]:
    """Nanoseconds and nano-units of the workers' time up but not busy within the period."""
    begin, finish = (datetime.combine(day, time(), tzinfo=UTC) for day in (start, end))
    last_sign = func.coalesce(workers.c.stopped_at, workers.c.seen_at)
    up = tx.execute(
        select(
            workers.c.id, workers.c.started_at, last_sign.label("until"), workers.c.price_per_hour_micros
        ).where(workers.c.started_at < finish, last_sign > begin)
    ).all()
    idle_ns = idle_nanos = 0
    for worker in up:
        span = min(worker.until, finish) - max(worker.started_at, begin)
        present = round(span.total_seconds() * 1e6) * 1000
        idle = max(0, present - busy.get(worker.id, 0))
        idle_ns += idle
        idle_nanos += cost_nanos(idle, worker.price_per_hour_micros)
    return idle_ns, idle_nanos


def spent_since(tx: Connection, start: date) -> dict[str, int]:
    """What each project was billed since that UTC day, wasted time left out, in nano-units."""
    rows = tx.execute(
        select(cost_lines.c.project, func.sum(cost_lines.c.cost_nanos))
        .where(cost_lines.c.day >= start, ~cost_lines.c.wasted)
        .group_by(cost_lines.c.project)
    )
    return {project: int(nanos) for project, nanos in rows}
