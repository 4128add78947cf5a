"""Who may call."""

from sqlalchemy import (
    JSON,
    Column,
    String,
    Table,
)

from spool.clock import UtcDateTime
from spool.tables.base import ID, NAME, metadata

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
