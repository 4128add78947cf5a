"""${message}.

Revision ${up_revision}, after ${down_revision}.
"""
# Rules for a revision:
#  - Old code runs beside it: add columns nullable or with a server default; remove only what no release uses.
#  - It holds locks for seconds: build an index on a large table CONCURRENTLY, fill columns in batches elsewhere.
#  - `downgrade` undoes `upgrade`; alter existing tables by `op.batch_alter_table`, for SQLite.
#  - Change the record or the table with it; a test compares the two.

from alembic import op
import sqlalchemy as sa
${imports if imports else ""}

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    ${downgrades if downgrades else "pass"}
