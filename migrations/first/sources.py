"""The tables of watched folders and buckets, as revision 0001 made them."""

import sqlalchemy as sa
from alembic import op

from migrations.types import UtcDateTime


def create() -> None:
    """Create them."""
    op.create_table(
        "sources",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("every_seconds", sa.Double(), nullable=False),
        sa.Column("settle_seconds", sa.Double(), nullable=False),
        sa.Column("key_id", sa.String(length=40)),
        sa.Column("reads", sa.JSON(none_as_null=True)),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("paused_at", UtcDateTime()),
        sa.Column("due_at", UtcDateTime(), nullable=False),
        sa.Column("lease_owner", sa.String(length=200)),
        sa.Column("lease_until", UtcDateTime()),
        sa.Column("listed_at", UtcDateTime()),
        sa.Column("files", sa.Integer()),
        sa.Column("error", sa.Text()),
        sa.Column("failing_since", UtcDateTime()),
        sa.CheckConstraint("(lease_owner IS NULL) = (lease_until IS NULL)", name=op.f("ck_sources_lease")),
        sa.CheckConstraint("(error IS NULL) = (failing_since IS NULL)", name=op.f("ck_sources_failing")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sources")),
    )
    op.create_index("ix_sources_project", "sources", ["project"])
    op.create_index("ix_sources_due_at", "sources", ["due_at"])
    op.create_table(
        "source_items",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("source_id", sa.String(length=40), nullable=False),
        sa.Column("place", sa.String(length=200), nullable=False),
        sa.Column("version", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("job_id", sa.String(length=40)),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint(
            "state IN ('settling', 'taken', 'skipped', 'refused')", name=op.f("ck_source_items_state")
        ),
        sa.CheckConstraint("(state = 'taken') = (job_id IS NOT NULL)", name=op.f("ck_source_items_job")),
        sa.ForeignKeyConstraint(
            ["source_id"], ["sources.id"], name=op.f("fk_source_items_source_id_sources"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_source_items")),
    )
    op.create_index("ix_source_items_version", "source_items", ["source_id", "place", "version"], unique=True)
    op.create_index(
        "ix_source_items_source_id_state_created_at_id",
        "source_items",
        ["source_id", "state", "created_at", "id"],
    )
    op.create_table(
        "source_marks",
        sa.Column("source_id", sa.String(length=40), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["source_id"], ["sources.id"], name=op.f("fk_source_marks_source_id_sources"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("source_id", "place", name=op.f("pk_source_marks")),
    )
