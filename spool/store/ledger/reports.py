"""Reports over the ledger: a period's costs by group, the fleet's idle time, and budgets.

A job's key, batch and tags are on its lines, so a report is one pass over them. Sums only;
`spool.domain.estimates` derives the rest.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    FromClause,
    Null,
    Select,
    func,
    literal,
    null,
    select,
    union_all,
)

from spool import clock
from spool.domain.ledger import NOTHING, CostReport, CostRow, CostSums, GroupBy
from spool.domain.pricing import NANOS_PER_SECOND, SAMPLE_RATE, cost_nanos, money
from spool.errors import InvalidRequest
from spool.store.ledger.charges import sums_of
from spool.tables import cost_lines, workers

_GROUPS: dict[str, ColumnElement[Any]] = {
    "day": cost_lines.c.day,
    "project": cost_lines.c.project,
    "model": cost_lines.c.model,
    "worker": cost_lines.c.worker_id,
    "pool": cost_lines.c.pool,
    "job": cost_lines.c.job_id,
    "key": func.coalesce(cost_lines.c.key_id, ""),
    "batch": func.coalesce(cost_lines.c.batch_id, ""),
}
_SUMS = ("audio_samples", "engine_ns", "cost_nanos")


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

    Idle is the time within the period in which workers were up and their engines not busy; it is on no job's
    bill, so it is None in the report of one project. Raises InvalidRequest for an empty period and an unknown
    `group_by`. Grouped by `tag`, rows are the values of the tag of that name.
    """
    if end <= start:
        raise InvalidRequest("The period of a cost report must end after it starts.")
    key = _key(group_by, tag)
    by_key: defaultdict[str, CostSums] = defaultdict(lambda: NOTHING)
    busy: dict[str, int] = {}
    names = dict(tx.execute(select(workers.c.id, workers.c.name)).all()) if group_by == "worker" else {}
    for row in tx.execute(_sum_groups(key, start, end, project)):
        if row.worker_id is not None:
            busy[row.worker_id] = int(row.engine_ns)
        else:
            by_key[names.get(row.key, str(row.key))] += sums_of(row)
    rows = tuple(CostRow(name, by_key[name]) for name in sorted(by_key))
    total = sum(by_key.values(), NOTHING)
    if project is not None:
        return CostReport(start, end, group_by, currency, rows, total, None, None)
    idle_ns, idle_nanos = _idle(tx, start, end, busy)
    idle_seconds, idle_cost = idle_ns / NANOS_PER_SECOND, money(idle_nanos)
    return CostReport(start, end, group_by, currency, rows, total, idle_seconds, idle_cost)


def _sum_groups(
    key: ColumnElement[Any], start: date, end: date, project: str | None
) -> Select[Any] | CompoundSelect[Any]:
    """One pass over the period's lines: sums by key, and for all projects also by worker, without a key."""
    period = (cost_lines.c.day >= start, cost_lines.c.day < end)
    if project is not None:
        return _sum_lines(cost_lines, period, key=key, worker_id=null(), wasted=cost_lines.c.wasted).where(
            cost_lines.c.project == project
        )
    fine = _sum_lines(
        cost_lines, period, key=key, worker_id=cost_lines.c.worker_id, wasted=cost_lines.c.wasted
    ).cte("fine")
    return union_all(
        _sum_lines(fine, (), key=fine.c.key, worker_id=null(), wasted=fine.c.wasted),
        _sum_lines(fine, (), key=null(), worker_id=fine.c.worker_id, wasted=null()),
    )


def _sum_lines(
    lines: FromClause, conditions: Sequence[ColumnElement[bool]], **groups: ColumnElement[Any]
) -> Select[Any]:
    """The sums of `lines` by `groups`; a group that is NULL is not grouped by."""
    sums = (func.sum(lines.c[name]).label(name) for name in _SUMS)
    named = (column.label(name) for name, column in groups.items())
    keys = [column for column in groups.values() if not isinstance(column, Null)]
    return select(*named, *sums).where(*conditions).group_by(*keys)


def _key(group_by: GroupBy, tag: str | None) -> ColumnElement[Any]:
    if group_by == "tag":
        if not tag:
            raise InvalidRequest("Name the tag to group by: `tag`.")
        return func.coalesce(cost_lines.c.tags[tag].as_string(), literal(""))
    if group_by not in _GROUPS:
        raise InvalidRequest(f"Costs can be grouped by {', '.join([*_GROUPS, 'tag'])}, not by {group_by}.")
    return _GROUPS[group_by]


def _idle(tx: Connection, start: date, end: date, busy: Mapping[str, int]) -> tuple[int, int]:
    """Nanoseconds and nano-units of the workers' time up but not busy within the period."""
    begin, finish = (datetime.combine(day, time(), tzinfo=UTC) for day in (start, end))
    last_seen = func.coalesce(workers.c.stopped_at, workers.c.seen_at)
    up = tx.execute(
        select(
            workers.c.id, workers.c.started_at, last_seen.label("until"), workers.c.price_per_hour_micros
        ).where(workers.c.started_at < finish, last_seen > begin)
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
    """What each project was billed since that UTC day, without wasted time, in nano-units."""
    rows = tx.execute(
        select(cost_lines.c.project, func.sum(cost_lines.c.cost_nanos))
        .where(cost_lines.c.day >= start, ~cost_lines.c.wasted)
        .group_by(cost_lines.c.project)
    )
    return {project: int(nanos) for project, nanos in rows}


def read_paces(tx: Connection) -> dict[str, float]:
    """Audio seconds per engine second of each model, from the bills since yesterday."""
    yesterday = clock.now().date() - timedelta(days=1)
    seconds = func.sum(cost_lines.c.engine_ns)
    query = (
        select(cost_lines.c.model, func.sum(cost_lines.c.audio_samples), seconds)
        .where(cost_lines.c.day >= yesterday, cost_lines.c.wasted.is_(False))
        .group_by(cost_lines.c.model)
        .having(seconds > 0)
    )
    return {
        model: int(samples) / SAMPLE_RATE / (int(engine) / NANOS_PER_SECOND)
        for model, samples, engine in tx.execute(query)
    }
