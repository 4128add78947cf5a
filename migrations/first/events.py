"""The tables of events, webhooks and administration, as revision 0001 made them."""

import sqlalchemy as sa
from alembic import op

from migrations.types import UtcDateTime, partial


def create() -> None:
    """Create them."""
    _api_keys()
    _audits()
    _counters()
    _event_inbox()
    _event_position()
    _events()
    _turn_charges()
    _webhooks()
    _source_hashes()
    _typescripts()
    _webhook_deliveries()
    _speaker_turns()
    _system_settings()


def _api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("project", sa.String(length=200)),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("sources", sa.JSON(none_as_null=True)),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("expires_at", UtcDateTime()),
        sa.Column("revoked_at", UtcDateTime()),
        sa.Column("used_at", UtcDateTime()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
    )


def _audits() -> None:
    op.create_table(
        "audits",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=False),
        sa.Column("objects", sa.Boolean(), nullable=False),
        sa.Column("looked_at", sa.JSON(), nullable=False),
        sa.Column("breaches", sa.JSON(), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audits")),
    )
    op.create_index("ix_audits_ended_at", "audits", ["ended_at"])


def _counters() -> None:
    op.create_table(
        "counters",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("label", sa.String(length=200), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", "label", name=op.f("pk_counters")),
    )


def _event_inbox() -> None:
    op.create_table(
        "event_inbox",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("type", sa.String(length=32), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("job_id", sa.String(length=40)),
        sa.Column("batch_id", sa.String(length=40)),
        sa.Column("custom_id", sa.String(length=200)),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event_inbox")),
    )


def _event_position() -> None:
    op.create_table(
        "event_position",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_event_position")),
    )


def _events() -> None:
    op.create_table(
        "events",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("type", sa.String(length=32), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("job_id", sa.String(length=40)),
        sa.Column("batch_id", sa.String(length=40)),
        sa.Column("custom_id", sa.String(length=200)),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index("ix_events_batch_id_id", "events", ["batch_id", "id"], **partial("batch_id IS NOT NULL"))
    op.create_index("ix_events_job_id_id", "events", ["job_id", "id"], **partial("job_id IS NOT NULL"))


def _turn_charges() -> None:
    op.create_table(
        "turn_charges",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("pool", sa.String(length=200), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("claims", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_turn_charges")),
    )
    op.create_index("ix_turn_charges_pool_project", "turn_charges", ["pool", "project"])


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


def _source_hashes() -> None:
    op.create_table(
        "source_hashes",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("hashes", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_source_hashes_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_source_hashes")),
    )


def _typescripts() -> None:
    op.create_table(
        "typescripts",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("words", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_typescripts_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_typescripts")),
    )


def _webhook_deliveries() -> None:
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
    op.create_index("ix_webhook_deliveries_created_at", "webhook_deliveries", ["created_at"])
    op.create_index(
        "ix_webhook_deliveries_pending",
        "webhook_deliveries",
        ["webhook_id", "due_at"],
        **partial("state = 'pending'"),
    )
    op.create_index(
        "ix_webhook_deliveries_webhook_id_created_at_id",
        "webhook_deliveries",
        ["webhook_id", "created_at", "id"],
    )


def _speaker_turns() -> None:
    op.create_table(
        "speaker_turns",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("channel", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("turns", sa.JSON(), nullable=False),
        sa.Column("prints", sa.JSON()),
        sa.Column("activity", sa.LargeBinary()),
        sa.Column("engine_ns", sa.BigInteger(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_speaker_turns_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "channel", "attempt", name=op.f("pk_speaker_turns")),
    )


def _system_settings() -> None:
    op.create_table(
        "system_settings",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_system_settings")),
    )
