"""The workers: one row per process, alive while its heartbeats are recent.

An id names one run of one process (a restarted worker comes back under its old name with a new id), so that
its uptime, and with it the fleet's idle time, is one interval. Rows are kept, since cost lines refer to them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Select, exists, null, select, update

from spool.domain.fleet.models import AnnouncedModel
from spool.domain.fleet.quality import Quality
from spool.domain.fleet.routing import Offer, WorkerReport
from spool.domain.worker_stats import WorkCounts
from spool.errors import NotFound
from spool.store.sql import now_utc, seconds_from_now, upsert
from spool.tables import workers
from spool.tables.record import columns_with, reader_of, values_of
from spool.tables.workers import WorkerInfo as WorkerInfo
from spool.tables.workers import WorkerRow
from spool.tables.workers import WorkerState as WorkerState

WorkerStatus = WorkerState | Literal["lost"]
ALIVE_SECONDS = 30.0
KNOWN_SECONDS = 7 * 24 * 3600.0
"""How long a worker that is gone is considered likely to come back."""


@dataclass(frozen=True, kw_only=True)
class Worker(WorkerRow):
    """A worker as the store knows it."""

    alive: bool
    """Not stopped, and with a heartbeat within `ALIVE_SECONDS`."""

    @property
    def status(self) -> WorkerStatus:
        """Its state; `lost` if its heartbeats stopped for too long."""
        return self.state if self.alive or self.state == "stopped" else "lost"

    @property
    def seen(self) -> WorkerReport:
        """The worker from the view of a waiting job."""
        return WorkerReport(self.offer, self.state, self.reason, self.alive, self.seen_at)


def register_worker(tx: Connection, info: WorkerInfo) -> None:
    """Register the worker as `starting`; the same id again updates what it reports about itself."""
    columns = values_of(info, WorkerInfo)
    columns |= {"loaded_models": None, "state": "starting", "seen_at": now_utc(), "stopped_at": null()}
    upsert(tx, workers, {"started_at": now_utc(), **columns}, update=columns)


def heartbeat(
    tx: Connection,
    worker_id: str,
    state: WorkerState,
    engine_busy_ns: int,
    *,
    reason: str | None = None,
    unbilled_ns: int = 0,
    counts: WorkCounts | None = None,
    loaded_models: tuple[str, ...] | None = None,
    model_facts: Mapping[str, AnnouncedModel] | None = None,
    quality: Mapping[str, Quality] | None = None,
) -> None:
    """Record a heartbeat: the worker's state (for `reason`), how long its engine has been busy, also with
    unbilled work (so far), and of the rest what has changed. Raises NotFound."""
    busy = {"engine_busy_ns": engine_busy_ns, "unbilled_ns": unbilled_ns, "counts": counts}
    models = {"loaded_models": loaded_models, "model_facts": model_facts, "quality": quality}
    _update(tx, worker_id, {"state": state, **busy, **models}, {"reason": reason})


def stop_worker(
    tx: Connection,
    worker_id: str,
    engine_busy_ns: int | None = None,
    unbilled_ns: int | None = None,
    counts: WorkCounts | None = None,
) -> None:
    """The worker was stopped properly. Raises NotFound."""
    busy = {"engine_busy_ns": engine_busy_ns, "unbilled_ns": unbilled_ns, "counts": counts}
    _update(tx, worker_id, {"state": "stopped", **busy}, {"stopped_at": now_utc()})


def outlive_suspicion(tx: Connection, worker_id: str) -> None:
    """The worker lived on after it was last seen, so that it is no suspect of what it had held until then."""
    seen_at = tx.scalar(select(workers.c.seen_at).where(workers.c.id == worker_id))
    if seen_at is not None:
        later = seen_at + timedelta(milliseconds=1)
        tx.execute(update(workers).where(workers.c.id == worker_id).values(seen_at=later))


def _update(tx: Connection, worker_id: str, reported: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Set these columns, and those that were reported; None is not reported."""
    given = {name: value for name, value in reported.items() if value is not None}
    columns = {**columns_with(WorkerRow, given), **values, "seen_at": now_utc()}
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
    return [worker.offer for worker in map(_worker_of, tx.execute(query)) if worker.alive]


def list_recent_workers(tx: Connection) -> list[Worker]:
    """The workers seen within `KNOWN_SECONDS`: for each name and pool the process that is alive or was seen
    last."""
    query = _with_alive().where(workers.c.seen_at > seconds_from_now(-KNOWN_SECONDS))
    latest: dict[tuple[str, str], Worker] = {}
    for worker in map(_worker_of, tx.execute(query.order_by(workers.c.seen_at, workers.c.id))):
        of = worker.name, worker.pool
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


def _with_alive() -> Select[Any]:
    alive = workers.c.stopped_at.is_(None) & (workers.c.seen_at > seconds_from_now(-ALIVE_SECONDS))
    return select(workers, alive.label("alive"))


_worker_of = reader_of(Worker)
