"""API keys, settings of the whole system, counters of rare events, and the results of audits."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Index,
    String,
    Table,
)

from spool.tables.base import ID, NAME, UtcDateTime, metadata

# Rows stay when a key is revoked: once a key exists, every request needs one.
api_keys = Table(
    "api_keys",
    metadata,
    Column("id", ID, primary_key=True),
    Column("name", NAME, nullable=False),
    Column("project", NAME),
    Column("scopes", JSON, nullable=False),
    Column("sources", JSON(none_as_null=True)),
    Column("sha256", String(64), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime),
    Column("revoked_at", UtcDateTime),
    Column("used_at", UtcDateTime),
)

# Settings shared by all processes, which can change while they run.
system_settings = Table(
    "system_settings",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("value", JSON, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
)

# Counters of rare events, which only grow: every writer locks the same row.
counters = Table(
    "counters",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("label", NAME, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

audits = Table(
    "audits",
    metadata,
    Column("id", ID, primary_key=True),
    Column("ended_at", UtcDateTime, nullable=False),
    # Whether the object store was audited too.
    Column("objects", Boolean, nullable=False),
    Column("looked_at", JSON, nullable=False),
    Column("breaches", JSON, nullable=False),
    Column("version", String(64), nullable=False),
    Index("ix_audits_ended_at", "ended_at"),
)
