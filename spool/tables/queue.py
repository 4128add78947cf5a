"""The outbox, fair shares, idempotency keys, quotas and locks."""

from sqlalchemy import BigInteger, Column, Date, Double, ForeignKey, Index, Integer, String, Table, text

from spool.tables.base import ID, NAME, QUEUE, UtcDateTime, metadata

# A row is a message not yet sent to Redis. Sent rows are deleted.
outbox = Table(
    "outbox",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("queue", QUEUE, nullable=False),
    Column("due_at", UtcDateTime, nullable=False),
    Index("ix_outbox_queue_due_at_id", "queue", "due_at", "id"),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("project", NAME, primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("request_hash", String(64), nullable=False),
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("created_at", UtcDateTime, nullable=False, index=True),
)

locks = Table(
    "locks",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("owner", NAME, nullable=False),
    Column("held_until", UtcDateTime, nullable=False),
)

# How much of a pool each project has had, as a virtual time that grows with the charged seconds of audio over
# its share; `start` is where its last claim began. `refund` is what its jobs were charged too much, until a
# claim uses it up.
turns = Table(
    "turns",
    metadata,
    Column("pool", NAME, primary_key=True),
    Column("project", NAME, primary_key=True),
    Column("share", Double, nullable=False, server_default=text("1")),
    Column("start", Double, nullable=False, server_default=text("0")),
    Column("served", Double, nullable=False, server_default=text("0")),
    Column("refund", Double, nullable=False, server_default=text("0")),
    Column("claims", BigInteger, nullable=False, server_default=text("0")),
    # Length of its recordings, a moving mean; NULL before the first one ended.
    Column("mean_seconds", Double),
    Column("updated_at", UtcDateTime, nullable=False),
)

# Charges to a turn whose row another transaction held, so that nobody waits for it. Whoever has the row next
# adds these.
turn_charges = Table(
    "turn_charges",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("pool", NAME, nullable=False),
    Column("project", NAME, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("claims", Integer, nullable=False),
    Index("ix_turn_charges_pool_project", "pool", "project"),
)

# What a project with a quota has used, as of the last sweep.
quota_use = Table(
    "quota_use",
    metadata,
    Column("project", NAME, primary_key=True),
    Column("day", Date, nullable=False),
    Column("day_samples", BigInteger, nullable=False, server_default=text("0")),
    Column("month_nanos", BigInteger, nullable=False, server_default=text("0")),
    # The part of it before `day`, and when that was summed.
    Column("before_nanos", BigInteger, nullable=False, server_default=text("0")),
    Column("updated_at", UtcDateTime, nullable=False),
)
