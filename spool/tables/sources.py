"""Watched folders and buckets, their files, and keys that notifications named."""

from sqlalchemy import (
    JSON,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
)

from spool.tables.base import ID, NAME, UtcDateTime, metadata

sources = Table(
    "sources",
    metadata,
    Column("id", ID, primary_key=True),
    Column("project", NAME, nullable=False),
    Column("name", Text, nullable=False),
    Column("address", Text, nullable=False),
    # The options of its jobs, as in a batch's request.
    Column("request", JSON, nullable=False),
    Column("every_seconds", Double, nullable=False),
    Column("settle_seconds", Double, nullable=False),
    # The key that created it, and the addresses that this key might read; NULL: any that the settings allow.
    Column("key_id", ID),
    Column("reads", JSON(none_as_null=True)),
    Column("created_at", UtcDateTime, nullable=False),
    Column("paused_at", UtcDateTime),
    # When it is to be listed next; who lists it now, and until when unless renewed.
    Column("due_at", UtcDateTime, nullable=False),
    Column("lease_owner", NAME),
    Column("lease_until", UtcDateTime),
    # The last complete listing, and how many files there were.
    Column("listed_at", UtcDateTime),
    Column("files", Integer),
    Column("error", Text),
    Column("failing_since", UtcDateTime),
    CheckConstraint("(lease_owner IS NULL) = (lease_until IS NULL)", name="lease"),
    CheckConstraint("(error IS NULL) = (failing_since IS NULL)", name="failing"),
    Index("ix_sources_project", "project"),
    Index("ix_sources_due_at", "due_at"),
)

# A row for each version of each file that was seen, which is never submitted again.
source_items = Table(
    "source_items",
    metadata,
    Column("id", ID, primary_key=True),
    Column("source_id", ID, ForeignKey("sources.id", ondelete="CASCADE"), nullable=False),
    # The path below the address; if it is very long, its digest.
    Column("place", String(200), nullable=False),
    # An S3 object's ETag; a file's size and time of change.
    Column("version", String(200), nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text),
    Column("job_id", ID),
    Column("created_at", UtcDateTime, nullable=False),
    CheckConstraint("state IN ('settling', 'taken', 'skipped', 'refused')", name="state"),
    CheckConstraint("(state = 'taken') = (job_id IS NOT NULL)", name="job"),
    Index("ix_source_items_version", "source_id", "place", "version", unique=True),
    Index("ix_source_items_source_id_state_created_at_id", "source_id", "state", "created_at", "id"),
)

# Keys of objects that a notification named; the listing would find them too.
source_marks = Table(
    "source_marks",
    metadata,
    Column("source_id", ID, ForeignKey("sources.id", ondelete="CASCADE"), primary_key=True),
    Column("place", Text, primary_key=True),
    Column("created_at", UtcDateTime, nullable=False),
)
