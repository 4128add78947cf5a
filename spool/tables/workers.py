"""The workers and the ledger of their work."""

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
    String,
    Table,
    Text,
    text,
)

from spool.tables.base import ID, NAME, UtcDateTime, metadata

workers = Table(
    "workers",
    metadata,
    Column("id", ID, primary_key=True),
    Column("name", NAME, nullable=False),
    Column("pool", NAME, nullable=False),
    Column("host", NAME, nullable=False),
    Column("chip", NAME, nullable=False),
    Column("version", String(64), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("models", JSON, nullable=False),
    Column("price_per_hour_micros", BigInteger, nullable=False),
    Column("concurrency", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    # Why it is unwell, or until when it rests.
    Column("reason", Text),
    Column("started_at", UtcDateTime, nullable=False),
    Column("seen_at", UtcDateTime, nullable=False),
    Column("stopped_at", UtcDateTime),
    # Charged so far: grows in the commits that write cost lines. `engine_busy_ns` is the engine's own
    # measurement.
    Column("busy_ns", BigInteger, nullable=False, server_default=text("0")),
    Column("engine_busy_ns", BigInteger, nullable=False, server_default=text("0")),
    # Time that is never billed: batches that raised or died with their process, and at a heartbeat also how
    # long the batch on the device has run.
    Column("unbilled_ns", BigInteger, nullable=False, server_default=text("0")),
    # Its counters since it started (`spool.domain.worker_stats`), as of its last heartbeat.
    Column("counts", JSON(none_as_null=True)),
    # Its hardware, the models that stay loaded, and those that are loaded now; NULL for a worker of an
    # earlier version.
    Column("gpu_cores", Integer),
    Column("memory_bytes", BigInteger),
    Column("pinned_models", JSON(none_as_null=True)),
    Column("loaded_models", JSON(none_as_null=True)),
    # Where MLX computes, and what is known of each model (`spool.domain.fleet.models`).
    Column("backend", String(16)),
    Column("model_facts", JSON(none_as_null=True)),
    # The quality of its models (`spool.domain.fleet.quality`), by name.
    Column("quality", JSON(none_as_null=True)),
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
