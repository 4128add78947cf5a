"""The ledger: every second that an engine was busy, on exactly one job's bill; and measured throughput.

A charge adds to `cost_lines` and the same nanoseconds to `workers.busy_ns` in one transaction, so that the
two sums are equal after every commit (law 5). The arithmetic is in `spool.domain.pricing`, reports are in
`spool.store.ledger.reports`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    select,
    update,
)

from spool.domain.jobs import Job
from spool.domain.ledger import CostSums, Measured
from spool.domain.pricing import NANOS_PER_SECOND, SAMPLE_RATE, cost_nanos, money
from spool.errors import InvalidRequest, NotFound
from spool.store.rows import JOB_COLUMNS, job_of
from spool.store.sql import ManyRows, find_row, now_utc, today_utc, upsert
from spool.tables import cost_lines, jobs, workers

_OF_JOB = ("key_id", "batch_id", "tags")  # columns that a line copies from its job


@dataclass(frozen=True, slots=True)
class Charge:
    """Engine time to be billed. `audio_samples`: the 16 kHz samples that it transcribed (a chunk's core)."""

    worker_id: str
    engine_ns: int
    audio_samples: int
    price_per_hour_micros: int
    model: str
    pool: str
    project: str


def write_charge(tx: Connection, job_id: str, attempt: int, bill: Charge, wasted: bool = False) -> None:
    """Add engine time to the ledger and to the worker's sum, in this transaction.

    Not fenced: a worker was busy even if it has lost its lease since; such time is added as `wasted`. Raises
    NotFound for a worker that never registered, InvalidRequest for negative amounts.
    """
    _add_busy(tx, [bill])
    _add(tx, job_id, attempt, bill, wasted)


@dataclass(frozen=True, slots=True)
class Due:
    """A charge for an attempt at a job."""

    job: Job
    attempt: int
    bill: Charge
    wasted: bool = False


def charge_jobs(tx: Connection, due: Sequence[Due]) -> None:
    """Like `write_charge`, for several jobs of one worker and price, whose rows this transaction holds."""
    if not due:
        return
    _add_busy(tx, [each.bill for each in due])
    by_line = {(each.job.id, each.attempt, each.wasted): each for each in due}
    rows = [
        _amounts(each.attempt, each.bill, each.wasted)
        | {"job_id": each.job.id, **{name: getattr(each.job, name) for name in _OF_JOB}}
        for each in by_line.values()
    ]
    for total in _ADDED_TODAY.execute(tx, rows):
        each = by_line[total.job_id, total.attempt, total.wasted]
        _reprice(tx, each.bill, total)


def _add_busy(tx: Connection, bills: Sequence[Charge]) -> None:
    if any(min(bill.engine_ns, bill.audio_samples, bill.price_per_hour_micros) < 0 for bill in bills):
        raise InvalidRequest("A charge cannot be negative.")
    worker_id, engine_ns = bills[0].worker_id, sum(bill.engine_ns for bill in bills)
    if tx.execute(_BUSY, {"worker": worker_id, "more_ns": engine_ns}).rowcount != 1:
        raise NotFound(f"Worker {worker_id} is not registered, so its time cannot be billed.")


_BUSY = (
    update(workers)
    .where(workers.c.id == bindparam("worker"))
    .values(busy_ns=workers.c.busy_ns + bindparam("more_ns", type_=BigInteger()))
)


def waste(tx: Connection, job_id: str, attempt: int) -> None:
    """Turn the attempt's billable lines into wasted ones; no second is lost."""
    billable = (cost_lines.c.job_id == job_id, cost_lines.c.attempt == attempt, ~cost_lines.c.wasted)
    for row in tx.execute(delete(cost_lines).where(*billable).returning(*cost_lines.c)).all():
        amounts = (row.engine_ns, row.audio_samples, row.price_per_hour_micros)
        bill = Charge(row.worker_id, *amounts, row.model, row.pool, row.project)
        _add(tx, job_id, attempt, bill, wasted=True, day=row.day)


def _add(
    tx: Connection, job_id: str, attempt: int, bill: Charge, wasted: bool, day: date | None = None
) -> None:
    """Add to the line of `day`, by default today."""
    of_job = {name: select(jobs.c[name]).where(jobs.c.id == job_id).scalar_subquery() for name in _OF_JOB}
    row = _amounts(attempt, bill, wasted)
    for total in _add_lines(tx, {"job_id": job_id, "day": day or today_utc(), **of_job}, [row]):
        _reprice(tx, bill, total)


def _amounts(attempt: int, bill: Charge, wasted: bool) -> dict[str, Any]:
    return asdict(bill) | {
        "attempt": attempt,
        "wasted": wasted,
        "audio_samples": 0 if wasted else bill.audio_samples,
        "cost_nanos": cost_nanos(bill.engine_ns, bill.price_per_hour_micros),
    }


_TOTAL = [*(column for column in cost_lines.primary_key), cost_lines.c.engine_ns, cost_lines.c.cost_nanos]


def _add_lines(tx: Connection, fixed: Mapping[str, Any], rows: Sequence[dict[str, Any]]) -> list[Row[Any]]:
    """Add these amounts, each to another line; the totals of the lines."""
    values = {**fixed, "updated_at": now_utc()}
    return list(upsert(tx, cost_lines, values, rows, update=_MORE, returning=_TOTAL))


_SUMS: dict[str, ColumnElement[Any]] = {
    name: cost_lines.c[name] + literal_column(f"excluded.{name}", BigInteger)
    for name in ("engine_ns", "audio_samples")
}
_MORE = _SUMS | {"updated_at": now_utc()}
_ADDED_TODAY = ManyRows(
    cost_lines,
    [column.name for column in cost_lines.c if column.name not in {"day", "updated_at"}],
    {"day": today_utc(), "updated_at": now_utc()},
    update=_MORE,
    returning=_TOTAL,
)


def _reprice(tx: Connection, bill: Charge, total: Row[Any]) -> None:
    """Round the line's cost from its total time; in Python, since SQL's 64 bits would overflow."""
    cost = cost_nanos(total.engine_ns, bill.price_per_hour_micros)
    # Not by whether the line existed: a line of 0 ns would keep its cost of 0.
    if total.cost_nanos == cost:
        return
    same = [column == getattr(total, column.name) for column in cost_lines.primary_key]
    tx.execute(update(cost_lines).where(*same).values(cost_nanos=cost))


def sum_wasted_ns(tx: Connection, job_id: str, attempt: int, worker_id: str) -> int:
    """The wasted engine time of one worker on one attempt, in nanoseconds."""
    total = tx.scalar(
        select(func.coalesce(func.sum(cost_lines.c.engine_ns), 0)).where(
            cost_lines.c.job_id == job_id,
            cost_lines.c.attempt == attempt,
            cost_lines.c.worker_id == worker_id,
            cost_lines.c.wasted,
        )
    )
    return int(total or 0)


def total(column: ColumnElement[int], *, wasted: bool) -> ColumnElement[int]:
    """SQL: the sum of a column of `cost_lines` over the wasted or the billable lines."""
    return func.coalesce(func.sum(case((cost_lines.c.wasted.is_(wasted), column), else_=0)), 0)


_TOTALS = (
    total(cost_lines.c.audio_samples, wasted=False).label("sum_audio_samples"),
    total(cost_lines.c.engine_ns, wasted=False).label("sum_billable_ns"),
    total(cost_lines.c.engine_ns, wasted=True).label("sum_wasted_ns"),
    total(cost_lines.c.cost_nanos, wasted=False).label("sum_billable_nanos"),
    total(cost_lines.c.cost_nanos, wasted=True).label("sum_wasted_nanos"),
)


def job_cost(tx: Connection, job_id: str) -> CostSums:
    """The job's bill so far; all zero for a job that no engine has worked on."""
    totals = tx.execute(select(*_TOTALS).where(cost_lines.c.job_id == job_id)).one()
    return _cost_sums(*totals)


def _cost_sums(
    samples: int, billable_ns: int, sum_wasted_ns: int, billable_nanos: int, wasted_nanos: int
) -> CostSums:
    # PostgreSQL sums bigints as numeric.
    return CostSums(
        int(samples),
        int(billable_ns),
        int(sum_wasted_ns),
        money(int(billable_nanos)),
        money(int(wasted_nanos)),
    )


def _with_cost() -> Select[Any]:
    return (
        select(*JOB_COLUMNS, *_TOTALS)
        .join(cost_lines, cost_lines.c.job_id == jobs.c.id, isouter=True)
        .where(jobs.c.id == bindparam("job_id"))
        .group_by(jobs.c.id)
    )


_WITH_COST = _with_cost()  # built once: that takes longer than the database takes to answer


def job_with_cost(tx: Connection, job_id: str) -> tuple[Job, CostSums]:
    """The job and the sums of its bill in one statement, since it is queried most. Raises NotFound."""
    row = find_row(tx, _WITH_COST.params(job_id=job_id), f"There is no job {job_id}.")
    columns = dict(row._mapping)
    sums = _cost_sums(*(columns.pop(total.name) for total in _TOTALS))
    return job_of(columns), sums


def sums_of(row: Row[Any]) -> CostSums:
    """A row of summed lines, all wasted or all billable, as sums."""
    # PostgreSQL sums bigints as numeric.
    engine_ns, cost = int(row.engine_ns), money(int(row.cost_nanos))
    if row.wasted:
        return CostSums(0, 0, engine_ns, Decimal(0), cost)
    return CostSums(int(row.audio_samples), engine_ns, 0, cost, Decimal(0))


def measure_throughputs(tx: Connection) -> list[Measured]:
    """By chip, model and search, most audio first. Time of jobs that no longer exist counts as greedy."""
    decoder, beam = jobs.c.options["decoder"].as_string(), jobs.c.options["beam"].as_integer()
    samples, engine = func.sum(cost_lines.c.audio_samples), func.sum(cost_lines.c.engine_ns)
    rows = tx.execute(
        select(workers.c.chip, cost_lines.c.model, decoder, beam, samples, engine)
        .join(workers, workers.c.id == cost_lines.c.worker_id)
        .join(jobs, jobs.c.id == cost_lines.c.job_id, isouter=True)
        .where(~cost_lines.c.wasted, cost_lines.c.engine_ns > 0)
        .group_by(workers.c.chip, cost_lines.c.model, decoder, beam)
        .order_by(samples.desc())
    )
    return [
        Measured(
            chip,
            model,
            int(audio_samples) / SAMPLE_RATE,
            int(engine_ns) / NANOS_PER_SECOND,
            "greedy" if search in (None, "greedy") else "beam",
            int(width or 4),
        )
        for chip, model, search, width, audio_samples, engine_ns in rows
    ]
