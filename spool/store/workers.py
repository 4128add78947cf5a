"""The workers: one row per process, alive while its heartbeats are recent.

An id names one run of one process (a restarted worker comes back under its old name with a new id), so that
its uptime, and with it the fleet's idle time, is one interval. Rows are kept, since cost lines refer to them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Row, Select, exists, null, select, update

from spool.domain.fleet.models import AnnouncedModel, facts_of
from spool.domain.fleet.quality import Quality, quality_of
from spool.domain.fleet.routing import Machine, Offer, WorkerReport
from spool.domain.worker_stats import WorkCounts, counts_of
from spool.errors import NotFound
from spool.store.sql import now_utc, seconds_from_now, upsert
from spool.tables import workers

WorkerState = Literal["starting", "ready", "draining", "resting", "unwell", "stopped"]
WorkerStatus = WorkerState | Literal["lost"]
ALIVE_SECONDS = 30.0
KNOWN_SECONDS = 7 * 24 * 3600.0
"""How long a worker that is gone is considered likely to come back."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker reports about itself when it starts. `id` comes from `spool.ids.new_id("wrk")`."""

    id: str
    name: str
    pool: str
    host: str
    chip: str
    version: str
    pid: int
    models: tuple[str, ...]
    price_per_hour_micros: int
    concurrency: int
    gpu_cores: int | None = None
    memory_bytes: int | None = None
    pinned: tuple[str, ...] | None = None
    """Models that stay loaded. Like the two fields before it, None for a worker that does not report it."""
    backend: str | None = None
    """Where MLX computes."""
    facts: Mapping[str, AnnouncedModel] = field(default_factory=dict)
    """The facts known of its models, by name."""

    @property
    def offer(self) -> Offer:
        """Which jobs it can take."""
        machine = Machine(self.backend, self.chip, self.memory_bytes)
        return Offer(self.pool, self.name, frozenset(self.models), machine)


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker as the store knows it. `busy_ns` is the billed time, `engine_busy_ns` the time its engine
    measured."""

    info: WorkerInfo
    state: WorkerState
    started_at: datetime
    seen_at: datetime
    stopped_at: datetime | None
    busy_ns: int
    engine_busy_ns: int
    reason: str | None
    """Why it is unwell, or until when it rests."""
    alive: bool
    """Not stopped, and with a heartbeat within `ALIVE_SECONDS`."""
    counts: WorkCounts = field(default_factory=WorkCounts)
    """Its counters, as of its last heartbeat."""
    loaded: tuple[str, ...] | None = None
    """Models in its memory, as of then, the most recently used last; None if it does not report them."""
    quality: Mapping[str, Quality] = field(default_factory=dict)
    """The measured quality of its models, by name."""

    @property
    def status(self) -> WorkerStatus:
        """Its state; `lost` if its heartbeats stopped for too long."""
        return self.state if self.alive or self.state == "stopped" else "lost"

    @property
    def seen(self) -> WorkerReport:
        """The worker from the view of a waiting job."""
        return WorkerReport(self.info.offer, self.state, self.reason, self.alive, self.seen_at)


def register_worker(tx: Connection, info: WorkerInfo) -> None:
    """Register the worker as `starting`; the same id again updates what it reports about itself."""
    columns: dict[str, Any] = {
        "name": info.name,
        "pool": info.pool,
        "host": info.host,
        "chip": info.chip,
        "version": info.version,
        "pid": info.pid,
        "models": list(info.models),
        "price_per_hour_micros": info.price_per_hour_micros,
        "concurrency": info.concurrency,
        "gpu_cores": info.gpu_cores,
        "memory_bytes": info.memory_bytes,
        "pinned_models": None if info.pinned is None else list(info.pinned),
        "loaded_models": None,
        "backend": info.backend,
        "model_facts": _documents(info.facts),
        "state": "starting",
        "seen_at": now_utc(),
        "stopped_at": null(),
    }
    upsert(tx, workers, {"id": info.id, "started_at": now_utc(), **columns}, update=columns)


def heartbeat(
    tx: Connection,
    worker_id: str,
    state: WorkerState,
    engine_busy_ns: int,
    *,
    reason: str | None = None,
    unbilled_ns: int = 0,
    counts: WorkCounts | None = None,
    loaded: Sequence[str] | None = None,
    facts: Mapping[str, AnnouncedModel] | None = None,
    quality: Mapping[str, Quality] | None = None,
) -> None:
    """Record a heartbeat: the worker's state (for `reason`), how long its engine has been busy, also with
    unbilled work (so far), its counters, its loaded models, changed facts of its models, and their measured
    quality. Raises NotFound."""
    columns: dict[str, Any] = {
        "state": state,
        "reason": reason,
        "engine_busy_ns": engine_busy_ns,
        "unbilled_ns": unbilled_ns,
        "seen_at": now_utc(),
    }
    if loaded is not None:
        columns["loaded_models"] = list(loaded)
    if facts is not None:
        columns["model_facts"] = _documents(facts)
    if quality is not None:
        columns["quality"] = {name: each.document() for name, each in quality.items()}
    if counts is not None:
        columns["counts"] = counts.document()
    if tx.execute(update(workers).where(workers.c.id == worker_id).values(columns)).rowcount != 1:
        raise NotFound(f"There is no worker {worker_id}.")


def stop_worker(
    tx: Connection,
    worker_id: str,
    engine_busy_ns: int | None = None,
    unbilled_ns: int | None = None,
    counts: WorkCounts | None = None,
) -> None:
    """The worker was stopped properly. Raises NotFound."""
    columns: dict[str, Any] = {"state": "stopped", "seen_at": now_utc(), "stopped_at": now_utc()}
    if engine_busy_ns is not None:
        columns["engine_busy_ns"] = engine_busy_ns
    if unbilled_ns is not None:
        columns["unbilled_ns"] = unbilled_ns
    if counts is not None:
        columns["counts"] = counts.document()
    if tx.execute(update(workers).where(workers.c.id == worker_id).values(columns)).rowcount != 1:
        raise NotFound(f"There is no worker {worker_id}.")


def list_workers(tx: Connection, *, limit: int = 1000) -> list[Worker]:
    """Workers, most recently seen first."""
    query = _with_alive().order_by(workers.c.seen_at.desc(), workers.c.id).limit(limit)
    return [_worker_of(row) for row in tx.execute(query)]


def ready_workers(tx: Connection) -> list[Offer]:
    """What each worker offers that takes jobs now."""
    query = _with_alive().where(
        workers.c.state == "ready", workers.c.seen_at > seconds_from_now(-ALIVE_SECONDS)
    )
    return [worker.info.offer for worker in map(_worker_of, tx.execute(query)) if worker.alive]


def list_recent_workers(tx: Connection) -> list[Worker]:
    """The workers seen within `KNOWN_SECONDS`: for each name and pool the process that is alive or was seen
    last."""
    query = _with_alive().where(workers.c.seen_at > seconds_from_now(-KNOWN_SECONDS))
    latest: dict[tuple[str, str], Worker] = {}
    for worker in map(_worker_of, tx.execute(query.order_by(workers.c.seen_at, workers.c.id))):
        of = worker.info.name, worker.info.pool
        if worker.alive or of not in latest or not latest[of].alive:
            latest[of] = worker
    return list(latest.values())


def workers_named(tx: Connection, names: Select[tuple[str]]) -> list[Worker]:
    """Every process that ever ran under one of these names."""
    return [_worker_of(row) for row in tx.execute(_with_alive().where(workers.c.name.in_(names)))]


def has_ended(worker_id: ColumnElement[str]) -> ColumnElement[bool]:
    """SQL: the process with this worker id is known to have ended. It signed off, or a process of the same
    name has registered on the same host since it was last seen, or no process is registered under the id."""
    process, successor = workers.alias(), workers.alias()
    replaced = exists().where(
        successor.c.name == process.c.name,
        successor.c.host == process.c.host,
        successor.c.id != process.c.id,
        successor.c.started_at > process.c.seen_at,
    )
    return ~exists().where(process.c.id == worker_id, process.c.stopped_at.is_(None), ~replaced)


def _documents(facts: Mapping[str, AnnouncedModel]) -> dict[str, Any] | None:
    return {name: each.document() for name, each in facts.items()} or None


def _with_alive() -> Select[Any]:
    alive = workers.c.stopped_at.is_(None) & (workers.c.seen_at > seconds_from_now(-ALIVE_SECONDS))
    return select(workers, alive.label("alive"))


def _worker_of(row: Row[Any]) -> Worker:
    info = WorkerInfo(
        id=row.id,
        name=row.name,
        pool=row.pool,
        host=row.host,
        chip=row.chip,
        version=row.version,
        pid=row.pid,
        models=tuple(row.models),
        price_per_hour_micros=row.price_per_hour_micros,
        concurrency=row.concurrency,
        gpu_cores=row.gpu_cores,
        memory_bytes=row.memory_bytes,
        pinned=None if row.pinned_models is None else tuple(row.pinned_models),
        backend=row.backend,
        facts=facts_of(row.model_facts),
    )
    return Worker(
        info=info,
        state=row.state,
        started_at=row.started_at,
        seen_at=row.seen_at,
        stopped_at=row.stopped_at,
        busy_ns=row.busy_ns,
        engine_busy_ns=row.engine_busy_ns,
        reason=row.reason,
        alive=bool(row.alive),
        counts=counts_of(row.counts),
        loaded=None if row.loaded_models is None else tuple(row.loaded_models),
        quality={name: quality_of(each) for name, each in (row.quality or {}).items()},
    )
