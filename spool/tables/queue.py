"""What has still to be sent, what was asked before, and who holds which lock."""

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
)

from spool.clock import UtcDateTime
from spool.tables.base import ID, NAME, metadata

# A row here is a message that has still to go to Redis. Sent rows are deleted.
outbox = Table(
    "outbox",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("queue", NAME, nullable=False),
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
