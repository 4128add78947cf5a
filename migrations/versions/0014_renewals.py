"""Find running jobs by their pool: an index by the lease was written to with each renewal.

Revision 0014, after 0013.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_RUNNING = sa.text("state = 'running'")


def upgrade() -> None:
    _by("pool")


def downgrade() -> None:
    _by("lease_until")


def _by(column: str) -> None:
    op.drop_index("ix_jobs_running", "jobs")
    op.create_index("ix_jobs_running", "jobs", [column], sqlite_where=_RUNNING, postgresql_where=_RUNNING)
