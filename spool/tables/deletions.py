"""Deletions on request or by retention, and the sums that verify the bills of deleted chunks."""

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Integer, String, Table, text

from spool.tables.base import ID, NAME, UtcDateTime, metadata, partial_index

deletions = Table(
    "deletions",
    metadata,
    Column("id", ID, primary_key=True),
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("project", NAME, nullable=False),
    Column("content", String(16), nullable=False),
    # `retention`, or the key that requested it.
    Column("asked_by", NAME, nullable=False),
    Column("objects", Integer, nullable=False, server_default=text("0")),
    Column("created_at", UtcDateTime, nullable=False),
    # When the last of its objects was gone.
    Column("done_at", UtcDateTime),
    # When its objects are to be deleted (again); NULL when that is done.
    Column("due_at", UtcDateTime),
    CheckConstraint("content IN ('source', 'transcript')", name="content"),
    partial_index(
        "ix_deletions_due_at",
        "due_at",
        where="due_at IS NOT NULL",
    ),
)

# The sums of the deleted chunks of one attempt, by which its bill can still be verified.
chunk_sums = Table(
    "chunk_sums",
    metadata,
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("engine_ns", BigInteger, nullable=False),
    Column("audio_samples", BigInteger, nullable=False),
)
