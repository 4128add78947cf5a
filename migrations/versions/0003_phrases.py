"""Lists of phrases apart from the jobs that share them, and what a chunk was decoded by.

Revision 0003, after 0002.
"""

import sqlalchemy as sa
from alembic import op

from spool.tables.base import UtcDateTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "phrase_lists",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("phrases", sa.JSON(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_phrase_lists")),
    )
    op.add_column("chunks", sa.Column("fingerprint", sa.String(length=64)))
    op.add_column("chunks", sa.Column("nbest", sa.JSON()))
    op.add_column("chunks", sa.Column("tail", sa.JSON()))


def downgrade() -> None:
    for column in ("tail", "nbest", "fingerprint"):
        op.drop_column("chunks", column)
    op.drop_table("phrase_lists")
