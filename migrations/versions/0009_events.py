"""The log of events, and who is told of them.

Revision 0009, after 0008.
"""

import sqlalchemy as sa
from alembic import op

from spool.tables.base import UtcDateTime

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_COUNT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_OPEN = "batch_id IS NOT NULL AND state NOT IN ('done', 'failed', 'cancelled')"


def upgrade() -> None:
    for table in ("event_inbox", "events"):
        op.create_table(
            table,
            sa.Column("id", _COUNT, nullable=False, autoincrement=table == "event_inbox"),
            sa.Column("at", UtcDateTime(), nullable=False),
            sa.Column("type", sa.String(length=32), nullable=False),
            sa.Column("project", sa.String(length=200), nullable=False),
            sa.Column("job_id", sa.String(length=40)),
            sa.Column("batch_id", sa.String(length=40)),
            sa.Column("custom_id", sa.String(length=200)),
            sa.Column("data", sa.JSON(), nullable=False),
            sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
        )
    for column in ("job_id", "batch_id"):
        told = sa.text(f"{column} IS NOT NULL")
        op.create_index(
            f"ix_events_{column}_id", "events", [column, "id"], sqlite_where=told, postgresql_where=told
        )
    op.create_table(
        "event_position",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_event_position")),
    )
    _webhooks()
    op.add_column("batches", sa.Column("ended_at", UtcDateTime()))
    op.create_index(
        "ix_jobs_open_in_batch",
        "jobs",
        ["batch_id"],
        sqlite_where=sa.text(_OPEN),
        postgresql_where=sa.text(_OPEN),
    )


def _webhooks() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("types", sa.JSON(), nullable=False),
        sa.Column("batch_id", sa.String(length=40)),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("old_secret", sa.Text()),
        sa.Column("old_secret_until", UtcDateTime()),
        sa.Column("key_id", sa.String(length=40)),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("failing_since", UtcDateTime()),
        sa.Column("succeeded_at", UtcDateTime()),
        sa.Column("disabled_at", UtcDateTime()),
        sa.Column("disabled_reason", sa.Text()),
        sa.Column("deleted_at", UtcDateTime()),
        sa.Column("delivered", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("failed_tries", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("given_up", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
    )
    op.create_index("ix_webhooks_project", "webhooks", ["project"])
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("webhook_id", sa.String(length=40), nullable=False),
        sa.Column("type", sa.String(length=32), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("due_at", UtcDateTime(), nullable=False),
        sa.Column("log", sa.JSON(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("ended_at", UtcDateTime()),
        sa.CheckConstraint(
            "state IN ('pending', 'delivered', 'failed')", name=op.f("ck_webhook_deliveries_state")
        ),
        sa.ForeignKeyConstraint(
            ["webhook_id"],
            ["webhooks.id"],
            name=op.f("fk_webhook_deliveries_webhook_id_webhooks"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
    )
    pending = sa.text("state = 'pending'")
    op.create_index(
        "ix_webhook_deliveries_pending",
        "webhook_deliveries",
        ["webhook_id", "due_at"],
        sqlite_where=pending,
        postgresql_where=pending,
    )
    op.create_index(
        "ix_webhook_deliveries_webhook_id_created_at_id",
        "webhook_deliveries",
        ["webhook_id", "created_at", "id"],
    )
    op.create_index("ix_webhook_deliveries_created_at", "webhook_deliveries", ["created_at"])


def downgrade() -> None:
    op.drop_index("ix_jobs_open_in_batch", "jobs")
    op.drop_column("batches", "ended_at")
    for table in ("webhook_deliveries", "webhooks", "event_position", "events", "event_inbox"):
        op.drop_table(table)
