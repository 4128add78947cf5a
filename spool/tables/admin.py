"""Who may call.

What is kept for whoever watches: rare events of the whole house, and what audits found.
"""

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

# Rows stay when a key is revoked: once there was one, nobody is let in without.
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

# Grows only. For what happens rarely: every writer locks the same row.
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
    # Whether the object store was looked at too.
    Column("objects", Boolean, nullable=False),
    Column("looked_at", JSON, nullable=False),
    Column("breaches", JSON, nullable=False),
    Column("version", String(64), nullable=False),
    Index("ix_audits_ended_at", "ended_at"),
)
