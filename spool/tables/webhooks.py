"""Webhooks and their deliveries."""

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    text,
)

from spool.tables.base import ID, NAME, UtcDateTime, metadata, partial_index

# A removed webhook keeps its row, without address and secrets, for the counts.
webhooks = Table(
    "webhooks",
    metadata,
    Column("id", ID, primary_key=True),
    Column("project", NAME, nullable=False),
    Column("url", Text, nullable=False),
    Column("types", JSON, nullable=False),
    Column("batch_id", ID),
    Column("description", Text, nullable=False),
    # Encrypted (`spool.settings.secret_key`).
    Column("secret", Text, nullable=False),
    Column("old_secret", Text),
    Column("old_secret_until", UtcDateTime),
    Column("key_id", ID),
    Column("created_at", UtcDateTime, nullable=False),
    Column("failing_since", UtcDateTime),
    Column("succeeded_at", UtcDateTime),
    Column("disabled_at", UtcDateTime),
    Column("disabled_reason", Text),
    Column("deleted_at", UtcDateTime),
    Column("delivered", BigInteger, nullable=False, server_default=text("0")),
    Column("failed_tries", BigInteger, nullable=False, server_default=text("0")),
    Column("given_up", BigInteger, nullable=False, server_default=text("0")),
    Index("ix_webhooks_project", "project"),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", ID, primary_key=True),
    Column("webhook_id", ID, ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False),
    Column("type", String(32), nullable=False),
    # The bytes that every attempt sends.
    Column("body", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("tries", Integer, nullable=False, server_default=text("0")),
    # When the next attempt is due; during an attempt, when its process is presumed dead.
    Column("due_at", UtcDateTime, nullable=False),
    Column("log", JSON, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    CheckConstraint("state IN ('pending', 'delivered', 'failed')", name="state"),
    partial_index(
        "ix_webhook_deliveries_pending",
        "webhook_id",
        "due_at",
        where="state = 'pending'",
    ),
    Index("ix_webhook_deliveries_webhook_id_created_at_id", "webhook_id", "created_at", "id"),
    Index("ix_webhook_deliveries_created_at", "created_at"),
)
