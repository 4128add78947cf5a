"""How often a job met an error that may pass and how long it ran, and why a worker takes nothing.

Revision 0005, after 0004.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("troubles", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.add_column("jobs", sa.Column("ran_seconds", sa.Double(), nullable=False, server_default=sa.text("0")))
    op.add_column("workers", sa.Column("reason", sa.Text()))


def downgrade() -> None:
    op.drop_column("workers", "reason")
    op.drop_column("jobs", "ran_seconds")
    op.drop_column("jobs", "troubles")
