"""What workers counted, what happened rarely, what audits found, and which trace a job belongs to.

Revision 0010, after 0009.
"""

import sqlalchemy as sa
from alembic import op

from spool.tables.base import UtcDateTime

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("workers", sa.Column("counts", sa.JSON()))
    op.add_column("jobs", sa.Column("traceparent", sa.String(55)))
    op.create_table(
        "counters",
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("label", sa.String(200), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", "label", name="pk_counters"),
    )
    op.create_table(
        "audits",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=False),
        sa.Column("objects", sa.Boolean(), nullable=False),
        sa.Column("looked_at", sa.JSON(), nullable=False),
        sa.Column("breaches", sa.JSON(), nullable=False),
        sa.Column("version", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audits"),
    )
    op.create_index("ix_audits_ended_at", "audits", ["ended_at"])


def downgrade() -> None:
    op.drop_index("ix_audits_ended_at", "audits")
    op.drop_table("audits")
    op.drop_table("counters")
    op.drop_column("jobs", "traceparent")
    op.drop_column("workers", "counts")
