"""Jobs, workers and claims for tests of the store, in the shortest words."""

from typing import Any

from sqlalchemy import Connection, Row, select, update

from spool.domain.jobs import Job, Source
from spool.domain.options import JobOptions
from spool.domain.recognition import ChunkSpan, DecodedChunk, Recognition
from spool.domain.transcript import Word
from spool.ids import new_id
from spool.store.database import Database
from spool.store.jobs import NewJob, create_job, get_job
from spool.store.ledger.charges import Charge
from spool.store.queue.leases import Claim, claim_job
from spool.store.sql import seconds_from_now
from spool.store.workers import register_worker
from spool.tables import cost_lines, jobs, workers
from spool.tables.workers import WorkerInfo

LEASE = 60.0


def new_job(**fields: Any) -> NewJob:
    usual: dict[str, Any] = {
        "source": Source("file", "file:///archive/a.wav"),
        "options": JobOptions(model="demo-tdt"),
        "name": "a.wav",
    }
    return NewJob(**(usual | fields))


def queued(db: Database, **fields: Any) -> Job:
    with db.begin() as tx:
        return create_job(tx, new_job(**fields))[0]


def claimed(db: Database, job_id: str | None = None, worker_id: str = "wrk_1", lease: float = LEASE) -> Claim:
    job_id = job_id or queued(db).id
    with db.begin() as tx:
        claim = claim_job(tx, job_id, worker_id, lease)
    assert claim is not None
    return claim


def reread(db: Database, job_id: str) -> Job:
    with db.read() as tx:
        return get_job(tx, job_id)


def let_lapse(db: Database, job_id: str) -> None:
    """Expire the lease, as if the worker had been silent for longer."""
    with db.begin() as tx:
        lapse(tx, job_id)


def lapse(tx: Connection, job_id: str) -> None:
    tx.execute(update(jobs).where(jobs.c.id == job_id).values(lease_until=seconds_from_now(-1)))


def registered(db: Database, name: str = "mini", price: int = 360_000, worker_id: str | None = None) -> str:
    worker_id = worker_id or new_id("wrk")
    info = WorkerInfo(worker_id, name, "cpu", "host", "chip", "0.1", 1, ("demo-tdt",), price, 8)
    with db.begin() as tx:
        register_worker(tx, info)
    return worker_id


def bill(
    worker_id: str, engine_ns: int = 1_000_000_000, samples: int = 480_000, price: int = 360_000
) -> Charge:
    return Charge(worker_id, engine_ns, samples, price, "demo-tdt", "cpu", "default")


def chunk(index: int = 0, channel: int = 0, engine_ns: int = 1_000_000_000) -> DecodedChunk:
    start = index * 480_000
    word = Word(text="née", start=start / 16_000, end=start / 16_000 + 0.5, confidence=0.9, channel=channel)
    return DecodedChunk(
        ChunkSpan(channel, index, start, start + 480_000, max(0, start - 16_000), start + 496_000),
        Recognition(words=(word,), engine_ns=engine_ns),
    )


def bill_of(tx: Connection, job_id: str) -> list[Row[Any]]:
    """The job's cost lines by attempt, each with its worker's name."""
    query = (
        select(cost_lines, workers.c.name.label("worker"))
        .join(workers, workers.c.id == cost_lines.c.worker_id)
        .where(cost_lines.c.job_id == job_id)
    )
    keys = (cost_lines.c.attempt, cost_lines.c.day, cost_lines.c.worker_id)
    return list(tx.execute(query.order_by(*keys, cost_lines.c.price_per_hour_micros, cost_lines.c.wasted)))
