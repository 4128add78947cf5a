"""Jobs, their chunks and messages, workers, the ledger.

Revision 0001, the first.
"""

import sqlalchemy as sa
from alembic import op

from spool.tables.base import UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _jobs()
    _outbox()
    _idempotency()
    _chunks()
    _workers()
    _cost_lines()
    _locks()


def downgrade() -> None:
    for table in ("locks", "cost_lines", "workers", "chunks", "idempotency", "outbox", "jobs"):
        op.drop_table(table)


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("source_kind", sa.String(length=16), nullable=False),
        sa.Column("source_uri", sa.Text(), nullable=False),
        sa.Column("source_size", sa.BigInteger()),
        sa.Column("source_etag", sa.Text()),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("pool", sa.String(length=200), nullable=False),
        sa.Column("worker", sa.String(length=200)),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("deaths", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_owner", sa.String(length=200)),
        sa.Column("lease_until", UtcDateTime()),
        sa.Column("cancel_requested", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("audio_seconds", sa.Double()),
        sa.Column("done_seconds", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("queued_at", UtcDateTime(), nullable=False),
        sa.Column("hinted_at", UtcDateTime()),
        sa.Column("started_at", UtcDateTime()),
        sa.Column("finished_at", UtcDateTime()),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("error_code", sa.String(length=64)),
        sa.Column("error_message", sa.Text()),
        sa.Column("transcript_key", sa.Text()),
        sa.Column("transcript_sha256", sa.String(length=64)),
        sa.Column("coverage", sa.Double()),
        sa.Column("words", sa.Integer()),
        sa.CheckConstraint(
            "(state = 'running') = (lease_owner IS NOT NULL AND lease_until IS NOT NULL)",
            name=op.f("ck_jobs_lease"),
        ),
        sa.CheckConstraint(
            "source_kind IN ('upload', 'file', 's3', 'https')", name=op.f("ck_jobs_source_kind")
        ),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'done', 'failed', 'cancelled')", name=op.f("ck_jobs_state")
        ),
        sa.CheckConstraint("attempt >= 0 AND deaths >= 0", name=op.f("ck_jobs_counts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index("ix_jobs_created_at_id", "jobs", ["created_at", "id"])
    op.create_index("ix_jobs_project_created_at_id", "jobs", ["project", "created_at", "id"])
    op.create_index(
        "ix_jobs_queued",
        "jobs",
        ["hinted_at"],
        sqlite_where=sa.text("state = 'queued'"),
        postgresql_where=sa.text("state = 'queued'"),
    )
    op.create_index(
        "ix_jobs_running",
        "jobs",
        ["lease_until"],
        sqlite_where=sa.text("state = 'running'"),
        postgresql_where=sa.text("state = 'running'"),
    )
    op.create_index("ix_jobs_state_created_at_id", "jobs", ["state", "created_at", "id"])


def _outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("queue", sa.String(length=200), nullable=False),
        sa.Column("due_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_outbox_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
    )
    op.create_index("ix_outbox_job_id", "outbox", ["job_id"])
    op.create_index("ix_outbox_queue_due_at_id", "outbox", ["queue", "due_at", "id"])


def _idempotency() -> None:
    op.create_table(
        "idempotency",
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_idempotency_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("project", "key", name=op.f("pk_idempotency")),
    )
    op.create_index("ix_idempotency_created_at", "idempotency", ["created_at"])
    op.create_index("ix_idempotency_job_id", "idempotency", ["job_id"])


def _chunks() -> None:
    op.create_table(
        "chunks",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("channel", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("core_start", sa.BigInteger(), nullable=False),
        sa.Column("core_end", sa.BigInteger(), nullable=False),
        sa.Column("start_sample", sa.BigInteger(), nullable=False),
        sa.Column("end_sample", sa.BigInteger(), nullable=False),
        sa.Column("words", sa.JSON(), nullable=False),
        sa.Column("engine_ns", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint(
            "start_sample <= core_start AND core_start < core_end AND core_end <= end_sample",
            name=op.f("ck_chunks_span"),
        ),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_chunks_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "channel", "number", name=op.f("pk_chunks")),
    )


def _workers() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("pool", sa.String(length=200), nullable=False),
        sa.Column("host", sa.String(length=200), nullable=False),
        sa.Column("chip", sa.String(length=200), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("models", sa.JSON(), nullable=False),
        sa.Column("price_per_hour_micros", sa.BigInteger(), nullable=False),
        sa.Column("concurrency", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("seen_at", UtcDateTime(), nullable=False),
        sa.Column("stopped_at", UtcDateTime()),
        sa.Column("busy_ns", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("engine_busy_ns", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint(
            "state IN ('starting', 'ready', 'draining', 'unwell', 'stopped')", name=op.f("ck_workers_state")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    op.create_index("ix_workers_seen_at", "workers", ["seen_at"])


def _cost_lines() -> None:
    op.create_table(
        "cost_lines",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("worker_id", sa.String(length=40), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("price_per_hour_micros", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("wasted", sa.Boolean(), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("pool", sa.String(length=200), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("engine_ns", sa.BigInteger(), nullable=False),
        sa.Column("audio_samples", sa.BigInteger(), nullable=False),
        sa.Column("cost_nanos", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint(
            "engine_ns >= 0 AND audio_samples >= 0 AND cost_nanos >= 0", name=op.f("ck_cost_lines_amounts")
        ),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name=op.f("fk_cost_lines_worker_id_workers")),
        sa.PrimaryKeyConstraint(
            "job_id",
            "attempt",
            "worker_id",
            "day",
            "price_per_hour_micros",
            "wasted",
            name=op.f("pk_cost_lines"),
        ),
    )
    op.create_index("ix_cost_lines_day", "cost_lines", ["day"])


def _locks() -> None:
    op.create_table(
        "locks",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("owner", sa.String(length=200), nullable=False),
        sa.Column("held_until", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_locks")),
    )
