"""Keys that let people in, and by which one a job or a batch was handed in.

Revision 0004, after 0003.
"""

import sqlalchemy as sa
from alembic import op

from spool.tables.base import UtcDateTime

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("project", sa.String(length=200)),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("sources", sa.JSON()),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("expires_at", UtcDateTime()),
        sa.Column("revoked_at", UtcDateTime()),
        sa.Column("used_at", UtcDateTime()),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
    )
    op.add_column("jobs", sa.Column("key_id", sa.String(length=40)))
    op.add_column("batches", sa.Column("key_id", sa.String(length=40)))


def downgrade() -> None:
    op.drop_column("batches", "key_id")
    op.drop_column("jobs", "key_id")
    op.drop_table("api_keys")
