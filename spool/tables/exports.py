"""External object stores: named connections, and a row for each job and format that is exported."""

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Integer, String, Table, Text, text

from spool.tables.base import ID, NAME, UtcDateTime, metadata, partial_index

# Credentials of external object stores. Jobs name a connection, and never contain its values.
connections = Table(
    "connections",
    metadata,
    Column("project", NAME, primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("endpoint", Text),
    Column("region", String(64), nullable=False),
    # Everything that is read or written with it is below this address.
    Column("prefix", Text, nullable=False),
    Column("access", String(8), nullable=False),
    Column("key_id", Text, nullable=False),
    # Encrypted (`spool.settings.secret_key`).
    Column("secret", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    CheckConstraint("access IN ('read', 'write', 'both')", name="access"),
)

# Where workers, which cannot read those credentials, request a signed address of a job's source. A row lives
# from the request until the worker has taken the answer.
source_links = Table(
    "source_links",
    metadata,
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    # The signed address, or why there is none.
    Column("url", Text),
    Column("error", Text),
    # Until when the address is valid, or the request worth answering.
    Column("expires_at", UtcDateTime, nullable=False),
    CheckConstraint("url IS NULL OR error IS NULL", name="answer"),
)

exports = Table(
    "exports",
    metadata,
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("format", String(16), primary_key=True),
    Column("project", NAME, nullable=False),
    # What many files may share an outage of: a connection, a bucket or the folders.
    Column("destination", NAME, nullable=False),
    Column("state", String(16), nullable=False),
    # Grows when the transcript changes; an attempt counts for the revision that it read.
    Column("revision", Integer, nullable=False, server_default=text("1")),
    Column("tries", Integer, nullable=False, server_default=text("0")),
    Column("due_at", UtcDateTime, nullable=False),
    Column("error", Text),
    Column("uri", Text),
    # The digest of `uri`, ignoring case, and of its owner: no two jobs write the same file.
    Column("target", String(64)),
    Column("sha256", String(64)),
    Column("created_at", UtcDateTime, nullable=False),
    Column("written_at", UtcDateTime),
    CheckConstraint("state IN ('pending', 'written', 'failed', 'replaced')", name="state"),
    CheckConstraint("state NOT IN ('failed', 'replaced') OR error IS NOT NULL", name="reason"),
    CheckConstraint("state <> 'written' OR (uri IS NOT NULL AND sha256 IS NOT NULL)", name="written"),
    partial_index(
        "ix_exports_pending",
        "due_at",
        where="state = 'pending'",
    ),
    Index("ix_exports_target", "target", unique=True),
)
