"""The tables of connections and of written transcripts, as revision 0001 made them."""

import sqlalchemy as sa
from alembic import op

from migrations.types import UtcDateTime, partial


def create() -> None:
    """Create them."""
    op.create_table(
        "connections",
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("endpoint", sa.Text()),
        sa.Column("region", sa.String(length=64), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("access", sa.String(length=8), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint("access IN ('read', 'write', 'both')", name=op.f("ck_connections_access")),
        sa.PrimaryKeyConstraint("project", "name", name=op.f("pk_connections")),
    )
    op.create_table(
        "source_links",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("url", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint("url IS NULL OR error IS NULL", name=op.f("ck_source_links_answer")),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_source_links_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_source_links")),
    )
    op.create_table(
        "exports",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("format", sa.String(length=16), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("destination", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("revision", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("tries", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("due_at", UtcDateTime(), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("uri", sa.Text()),
        sa.Column("target", sa.String(length=64)),
        sa.Column("sha256", sa.String(length=64)),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("written_at", UtcDateTime()),
        sa.CheckConstraint(
            "state IN ('pending', 'written', 'failed', 'replaced')", name=op.f("ck_exports_state")
        ),
        sa.CheckConstraint(
            "state NOT IN ('failed', 'replaced') OR error IS NOT NULL", name=op.f("ck_exports_reason")
        ),
        sa.CheckConstraint(
            "state <> 'written' OR (uri IS NOT NULL AND sha256 IS NOT NULL)", name=op.f("ck_exports_written")
        ),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_exports_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "format", name=op.f("pk_exports")),
    )
    op.create_index("ix_exports_pending", "exports", ["due_at"], **partial("state = 'pending'"))
    op.create_index("ix_exports_target", "exports", ["target"], unique=True)
