"""Batches of jobs."""

from sqlalchemy import (
    JSON,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    SmallInteger,
    String,
    Table,
    Text,
    false,
    text,
)

from spool.domain.priority import NORMAL
from spool.tables.base import ID, NAME, UtcDateTime, metadata, partial_index

batches = Table(
    "batches",
    metadata,
    Column("id", ID, primary_key=True),
    Column("project", NAME, nullable=False),
    Column("name", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("reuse", Boolean, nullable=False),
    Column("accepted", Integer, nullable=False, server_default=text("0")),
    Column("lines", Integer),
    Column("bad", Integer, nullable=False, server_default=text("0")),
    Column("bad_lines", JSON, nullable=False),
    # Files of a folder or prefix that make no job, and why.
    Column("skipped", Integer, nullable=False, server_default=text("0")),
    Column("skipped_files", JSON, nullable=False),
    Column("idempotency_key", String(255)),
    Column("request_hash", String(64), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    # When the last line had been read; until then more jobs may come.
    Column("closed_at", UtcDateTime),
    Column("cancelled_at", UtcDateTime),
    # When all of its jobs were found to have ended; NULL again after a retry.
    Column("ended_at", UtcDateTime),
    Column("key_id", ID),
    Column("priority", SmallInteger, nullable=False, server_default=text(str(NORMAL))),
    Column("deadline", UtcDateTime),
    # The last forecast: whether the deadline is out of reach, when the batch will end, and the basis.
    Column("late", Boolean, nullable=False, server_default=false()),
    Column("expected_at", UtcDateTime),
    Column("expected_basis", Text),
    CheckConstraint("accepted >= 0 AND bad >= 0", name="counts"),
    Index("ix_batches_created_at_id", "created_at", "id"),
    partial_index(
        "ix_batches_deadline",
        "deadline",
        where="deadline IS NOT NULL",
    ),
    Index("ix_batches_project_created_at_id", "project", "created_at", "id"),
    partial_index(
        "ix_batches_project_idempotency_key",
        "project",
        "idempotency_key",
        where="idempotency_key IS NOT NULL",
        unique=True,
    ),
)
