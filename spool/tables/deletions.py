"""Deletions on request or by retention, and the sums that verify the bills of deleted chunks."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKeyConstraint, Index, Integer, Table

from spool.domain.columns import Id, Name
from spool.domain.retention import Content
from spool.tables.base import job_key, metadata, partial_index
from spool.tables.record import table_of


@dataclass(frozen=True)
class Deletion:
    """The deletion of a job's recording or transcript."""

    id: Id
    job_id: Id
    project: Name
    content: Content
    asked_by: Name
    """Who requested it: a key's id, `operator`, `anybody` or `retention`."""
    created_at: datetime
    done_at: datetime | None
    """When the last of its objects was gone."""
    due_at: datetime | None
    """When its objects are to be deleted (again); None when that is done."""
    objects: int = 0
    """How many objects were deleted."""


deletions = table_of(
    "deletions",
    Deletion,
    ForeignKeyConstraint(["job_id"], ["jobs.id"], ondelete="CASCADE"),
    CheckConstraint("content IN ('source', 'transcript')", name="content"),
    Index("ix_deletions_job_id", "job_id"),
    partial_index("ix_deletions_due_at", "due_at", where="due_at IS NOT NULL"),
)

# The sums of the deleted chunks of one attempt, by which its bill can still be verified.
chunk_sums = Table(
    "chunk_sums",
    metadata,
    job_key(),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("engine_ns", BigInteger, nullable=False),
    Column("audio_samples", BigInteger, nullable=False),
)
