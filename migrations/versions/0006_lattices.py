"""A chunk's lattice of words, where it was asked for.

Revision 0006, after 0005.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("chunks", sa.Column("lattice", sa.JSON()))


def downgrade() -> None:
    op.drop_column("chunks", "lattice")
