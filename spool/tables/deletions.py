"""What was deleted on purpose: the log of it, and what the bills of deleted chunks rest on."""

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, Integer, String, Table, text

from spool.tables.base import ID, NAME, UtcDateTime, metadata

deletions = Table(
    "deletions",
    metadata,
    Column("id", ID, primary_key=True),
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("project", NAME, nullable=False),
    Column("content", String(16), nullable=False),
    # `retention`, or the key that asked for it.
    Column("asked_by", NAME, nullable=False),
    Column("objects", Integer, nullable=False, server_default=text("0")),
    Column("created_at", UtcDateTime, nullable=False),
    # When the last of its objects was gone.
    Column("done_at", UtcDateTime),
    # When the object store is to be looked through (again); none when that is over.
    Column("due_at", UtcDateTime),
    CheckConstraint("content IN ('source', 'transcript')", name="content"),
    Index(
        "ix_deletions_due_at",
        "due_at",
        sqlite_where=text("due_at IS NOT NULL"),
        postgresql_where=text("due_at IS NOT NULL"),
    ),
)

# What the deleted chunks of one attempt came to: the bill is still proved by them.
chunk_sums = Table(
    "chunk_sums",
    metadata,
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("engine_ns", BigInteger, nullable=False),
    Column("audio_samples", BigInteger, nullable=False),
)
