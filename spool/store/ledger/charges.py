"""The ledger: every second that an engine was busy, on exactly one job's bill; reports are in `cost_reports`.

Appends to `cost_lines` and adds the same nanoseconds to `workers.busy_ns` in the same transaction, so that
the two sums are equal after every commit (law 5). The arithmetic is in `spool.domain.pricing`.

How fast workers have been, from the ledger: audio and engine time of chunks that were kept. Sums only.
"""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    bindparam,
    case,
    delete,
    func,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from spool.domain.jobs import Job
from spool.domain.ledger import NOTHING, CostLine, CostReport, CostRow, CostSums, GroupBy, JobCost, Measured
from spool.domain.pricing import MICROS_PER_UNIT, NANOS_PER_SECOND, SAMPLE_RATE, cost_nanos, money
from spool.errors import InvalidRequest, NotFound
from spool.store.rows import JOB_COLUMNS, job_of
from spool.store.sql import now_utc, today_utc
from spool.tables import cost_lines, jobs, workers

__all__ = [
    "Charge",
    "CostLine",
    "CostReport",
    "CostRow",
    "CostSums",
    "GroupBy",
    "JobCost",
    "charge",
    "job_cost",
    "job_with_cost",
    "waste",
    "wasted_ns",
]


_OF_JOB = ("key_id", "batch_id", "tags")  # what a line says of its job


@dataclass(frozen=True, slots=True)
class Charge:
    """Engine time to be billed. `audio_samples` are the 16 kHz samples it transcribed (a chunk's core)."""

    worker_id: str
    engine_ns: int
    audio_samples: int
    price_per_hour_micros: int
    model: str
    pool: str
    project: str


def charge(tx: Connection, job_id: str, attempt: int, bill: Charge, wasted: bool = False) -> None:
    """Add engine time to the ledger and to the worker's sum, in this transaction.

    Not fenced: that a worker was busy is a fact also after it lost its lease; such time goes in as `wasted`.
    Raises NotFound for a worker that never registered, InvalidRequest for negative amounts.
    """
    if min(bill.engine_ns, bill.audio_samples, bill.price_per_hour_micros) < 0:
        raise InvalidRequest("A charge cannot be negative.")
    busy = update(workers).where(workers.c.id == bill.worker_id)
    if tx.execute(busy.values(busy_ns=workers.c.busy_ns + bill.engine_ns)).rowcount != 1:
        raise NotFound(f"Worker {bill.worker_id} is not registered, so its time cannot be billed.")
    _add(tx, job_id, attempt, bill, wasted)


def waste(tx: Connection, job_id: str, attempt: int) -> None:
    """What the attempt was billed turns out to be wasted: its lines change sides, no second is lost."""
    told = (cost_lines.c.job_id == job_id, cost_lines.c.attempt == attempt, ~cost_lines.c.wasted)
    for row in tx.execute(delete(cost_lines).where(*told).returning(*cost_lines.c)).all():
        amounts = (row.engine_ns, row.audio_samples, row.price_per_hour_micros)
        bill = Charge(row.worker_id, *amounts, row.model, row.pool, row.project)
        _add(tx, job_id, attempt, bill, wasted=True, day=row.day)


def _add(
    tx: Connection, job_id: str, attempt: int, bill: Charge, wasted: bool, day: date | None = None
) -> None:
    """Add to the line of this day (today unless given)."""
    build = sqlite_insert if tx.dialect.name == "sqlite" else postgresql_insert
    line = build(cost_lines).values(
        job_id=job_id,
        attempt=attempt,
        worker_id=bill.worker_id,
        day=day or today_utc(),
        price_per_hour_micros=bill.price_per_hour_micros,
        wasted=wasted,
        model=bill.model,
        pool=bill.pool,
        project=bill.project,
        engine_ns=bill.engine_ns,
        audio_samples=0 if wasted else bill.audio_samples,
        cost_nanos=cost_nanos(bill.engine_ns, bill.price_per_hour_micros),
        updated_at=now_utc(),
        **{name: select(jobs.c[name]).where(jobs.c.id == job_id).scalar_subquery() for name in _OF_JOB},
    )
    key = cost_lines.primary_key.columns
    total = tx.execute(
        line.on_conflict_do_update(
            index_elements=list(key),
            set_={
                "engine_ns": cost_lines.c.engine_ns + line.excluded.engine_ns,
                "audio_samples": cost_lines.c.audio_samples + line.excluded.audio_samples,
                "updated_at": now_utc(),
            },
        ).returning(cost_lines.c.engine_ns, cost_lines.c.cost_nanos, cost_lines.c.day)
    ).one()
    # Not by whether the line was there: one of 0 ns keeps its money of 0 otherwise.
    if total.cost_nanos != cost_nanos(total.engine_ns, bill.price_per_hour_micros):
        _reprice(tx, job_id, attempt, bill, wasted, total)


def _reprice(tx: Connection, job_id: str, attempt: int, bill: Charge, wasted: bool, total: Row[Any]) -> None:
    """Round the line's money anew from its whole time: here, since SQL's 64 bits would overflow."""
    tx.execute(
        update(cost_lines)
        .where(
            cost_lines.c.job_id == job_id,
            cost_lines.c.attempt == attempt,
            cost_lines.c.worker_id == bill.worker_id,
            cost_lines.c.day == total.day,
            cost_lines.c.price_per_hour_micros == bill.price_per_hour_micros,
            cost_lines.c.wasted == wasted,
        )
        .values(cost_nanos=cost_nanos(total.engine_ns, bill.price_per_hour_micros))
    )


def wasted_ns(tx: Connection, job_id: str, attempt: int, worker_id: str) -> int:
    """The wasted engine time on one worker's lines for one attempt, in nanoseconds."""
    total = tx.scalar(
        select(func.coalesce(func.sum(cost_lines.c.engine_ns), 0)).where(
            cost_lines.c.job_id == job_id,
            cost_lines.c.attempt == attempt,
            cost_lines.c.worker_id == worker_id,
            cost_lines.c.wasted,
        )
    )
    return int(total or 0)


def job_cost(tx: Connection, job_id: str, currency: str = "USD") -> JobCost:
    """The job's bill so far; empty for a job that no engine has seen."""
    rows = tx.execute(
        select(cost_lines, workers.c.name.label("worker"))
        .join(workers, workers.c.id == cost_lines.c.worker_id)
        .where(cost_lines.c.job_id == job_id)
        .order_by(cost_lines.c.attempt, cost_lines.c.day, cost_lines.c.worker_id, cost_lines.c.wasted)
    ).all()
    return JobCost(sum(map(sums_of, rows), NOTHING), currency, tuple(_line_of(row) for row in rows))


def _with_cost() -> Select[Any]:
    def total(column: ColumnElement[int], *, wasted: bool) -> ColumnElement[int]:
        return func.coalesce(func.sum(case((cost_lines.c.wasted.is_(wasted), column), else_=0)), 0)

    return (
        select(
            *JOB_COLUMNS,
            total(cost_lines.c.audio_samples, wasted=False).label("sum_audio_samples"),
            total(cost_lines.c.engine_ns, wasted=False).label("sum_billable_ns"),
            total(cost_lines.c.engine_ns, wasted=True).label("sum_wasted_ns"),
            total(cost_lines.c.cost_nanos, wasted=False).label("sum_billable_nanos"),
            total(cost_lines.c.cost_nanos, wasted=True).label("sum_wasted_nanos"),
        )
        .join(cost_lines, cost_lines.c.job_id == jobs.c.id, isouter=True)
        .where(jobs.c.id == bindparam("job_id"))
        .group_by(jobs.c.id)
    )


_WITH_COST = _with_cost()  # once: building it takes longer than the database takes to answer


def job_with_cost(tx: Connection, job_id: str) -> tuple[Job, CostSums]:
    """The job and the sums of its bill, in one statement: what is asked most. Raises NotFound."""
    row = tx.execute(_WITH_COST, {"job_id": job_id}).one_or_none()
    if row is None:
        raise NotFound(f"There is no job {job_id}.")
    told = dict(row._mapping)
    samples, billable, wasted, *money_of = (
        int(told.pop(f"sum_{name}"))
        for name in ("audio_samples", "billable_ns", "wasted_ns", "billable_nanos", "wasted_nanos")
    )
    return job_of(told), CostSums(samples, billable, wasted, *map(money, money_of))


def sums_of(row: Row[Any]) -> CostSums:
    """A row of summed lines, wasted or not, as sums."""
    # PostgreSQL sums bigints as numeric; they are whole numbers all the same.
    engine_ns, cost = int(row.engine_ns), money(int(row.cost_nanos))
    if row.wasted:
        return CostSums(0, 0, engine_ns, Decimal(0), cost)
    return CostSums(int(row.audio_samples), engine_ns, 0, cost, Decimal(0))


def _line_of(row: Row[Any]) -> CostLine:
    return CostLine(
        job_id=row.job_id,
        attempt=row.attempt,
        worker_id=row.worker_id,
        worker=row.worker,
        day=row.day,
        model=row.model,
        pool=row.pool,
        project=row.project,
        wasted=row.wasted,
        engine_ns=row.engine_ns,
        audio_samples=row.audio_samples,
        price_per_hour=Decimal(row.price_per_hour_micros) / MICROS_PER_UNIT,
        cost=money(row.cost_nanos),
    )


def measured_paces(tx: Connection) -> list[Measured]:
    """By chip, model and search, most audio first. Jobs that are forgotten count as greedy."""
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
            int(heard) / SAMPLE_RATE,
            int(busy) / NANOS_PER_SECOND,
            "beam" if search == "beam" else "greedy",
            int(kept or 4),
        )
        for chip, model, search, kept, heard, busy in rows
    ]
