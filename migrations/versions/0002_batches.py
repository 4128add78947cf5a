"""Batches, and what tells that a transcript may be reused.

Revision 0002, after 0001.
"""

import sqlalchemy as sa
from alembic import op

from spool.tables.base import UtcDateTime

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _batches()
    for column in (
        sa.Column("batch_id", sa.String(length=40)),
        sa.Column("batch_line", sa.Integer()),
        sa.Column("custom_id", sa.String(length=200)),
        sa.Column("tags", sa.JSON()),
        sa.Column("reuse", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("reused_from", sa.String(length=40)),
        sa.Column("content_sha256", sa.String(length=64)),
        sa.Column("fingerprint", sa.String(length=64)),
    ):
        op.add_column("jobs", column)
    in_batch = "batch_id IS NOT NULL"
    _index("ix_jobs_batch_id_custom_id", ["batch_id", "custom_id"], in_batch, unique=True)
    _index("ix_jobs_batch_id_batch_line", ["batch_id", "batch_line"], in_batch)
    _index("ix_jobs_known_content", ["content_sha256"], "state = 'done' AND content_sha256 IS NOT NULL")
    _index(
        "ix_jobs_known_etag",
        ["source_etag"],
        "state = 'done' AND source_kind = 's3' AND fingerprint IS NOT NULL",
    )


def downgrade() -> None:
    for index in ("known_etag", "known_content", "batch_id_batch_line", "batch_id_custom_id"):
        op.drop_index(f"ix_jobs_{index}", "jobs")
    for column in (
        "fingerprint",
        "content_sha256",
        "reused_from",
        "reuse",
        "tags",
        "custom_id",
        "batch_line",
        "batch_id",
    ):
        op.drop_column("jobs", column)
    op.drop_table("batches")


def _index(name: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    condition = sa.text(where)
    op.create_index(name, "jobs", columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


def _batches() -> None:
    op.create_table(
        "batches",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("reuse", sa.Boolean(), nullable=False),
        sa.Column("accepted", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("lines", sa.Integer()),
        sa.Column("bad", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("bad_lines", sa.JSON(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=255)),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("closed_at", UtcDateTime()),
        sa.Column("cancelled_at", UtcDateTime()),
        sa.CheckConstraint("accepted >= 0 AND bad >= 0", name=op.f("ck_batches_counts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batches")),
    )
    op.create_index("ix_batches_created_at_id", "batches", ["created_at", "id"])
    op.create_index("ix_batches_project_created_at_id", "batches", ["project", "created_at", "id"])
    op.create_index(
        "ix_batches_project_idempotency_key",
        "batches",
        ["project", "idempotency_key"],
        unique=True,
        sqlite_where=sa.text("idempotency_key IS NOT NULL"),
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
