"""The workers and the ledger of their work."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    ForeignKey,
    Index,
    Integer,
    Table,
)

from spool.domain.columns import BigInt, Id, Label, Name, NullIfEmpty, ShortName
from spool.domain.fleet.models import AnnouncedModel
from spool.domain.fleet.quality import Quality
from spool.domain.fleet.routing import Machine, Offer
from spool.domain.worker_stats import WorkCounts
from spool.tables.base import ID, NAME, UtcDateTime, metadata
from spool.tables.record import table_of

WorkerState = Literal["starting", "ready", "draining", "resting", "unwell", "stopped"]


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker reports about itself when it starts. `id` comes from `spool.ids.new_id("wrk")`."""

    id: Id
    name: Name
    pool: Name
    host: Name
    chip: Name
    version: ShortName
    pid: int
    models: tuple[str, ...]
    price_per_hour_micros: BigInt
    concurrency: int
    gpu_cores: int | None = None
    memory_bytes: BigInt | None = None
    pinned_models: tuple[str, ...] | None = None
    """Models that stay loaded. Like the two fields before it, None for a worker that does not report it."""
    backend: Label | None = None
    """Where MLX computes."""
    model_facts: Annotated[dict[str, AnnouncedModel], NullIfEmpty()] = field(default_factory=dict)
    """The facts known of its models, by name."""

    @property
    def offer(self) -> Offer:
        """Which jobs it can take."""
        machine = Machine(self.backend, self.chip, self.memory_bytes)
        return Offer(self.pool, self.name, frozenset(self.models), machine)


@dataclass(frozen=True, kw_only=True)
class WorkerRow(WorkerInfo):
    """The row of a worker: one run of one process."""

    state: WorkerState
    reason: str | None
    """Why it is unwell, or until when it rests."""
    started_at: datetime
    seen_at: datetime
    """When it sent its last heartbeat."""
    stopped_at: datetime | None
    busy_ns: BigInt = 0
    """Engine time charged so far. It grows in the commits that write cost lines."""
    engine_busy_ns: BigInt = 0
    """Engine time by the engine's own measurement."""
    unbilled_ns: BigInt = 0
    """Time that is never billed: batches that raised or died with their process. At a heartbeat also how long
    the batch on the device has run."""
    counts: Annotated[WorkCounts, NullIfEmpty()] = field(default_factory=WorkCounts)
    """Its counters since it started, as of its last heartbeat."""
    loaded_models: tuple[str, ...] | None = None
    """Models in its memory, as of then, the most recently used last; None if it does not report them."""
    quality: Annotated[dict[str, Quality], NullIfEmpty()] = field(default_factory=dict)
    """The measured quality of its models, by name."""


workers = table_of(
    "workers",
    WorkerRow,
    CheckConstraint(
        "state IN ('starting', 'ready', 'draining', 'resting', 'unwell', 'stopped')", name="state"
    ),
    Index("ix_workers_seen_at", "seen_at"),
)

cost_lines = Table(
    "cost_lines",
    metadata,
    # A bill outlives its job, hence no foreign key to jobs.
    Column("job_id", ID, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("worker_id", ID, ForeignKey("workers.id"), primary_key=True),
    Column("day", Date, primary_key=True),
    Column("price_per_hour_micros", BigInteger, primary_key=True, autoincrement=False),
    Column("wasted", Boolean, primary_key=True),
    Column("model", NAME, nullable=False),
    Column("pool", NAME, nullable=False),
    Column("project", NAME, nullable=False),
    Column("engine_ns", BigInteger, nullable=False),
    Column("audio_samples", BigInteger, nullable=False),
    Column("cost_nanos", BigInteger, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    # What its job is, so that a report reads nothing but lines.
    Column("key_id", ID),
    Column("batch_id", ID),
    Column("tags", JSON(none_as_null=True)),
    CheckConstraint("engine_ns >= 0 AND audio_samples >= 0 AND cost_nanos >= 0", name="amounts"),
    Index("ix_cost_lines_day", "day"),
)
