"""What a line of a bill says of its job, and an index that counts how jobs ended.

Revision 0013, after 0012.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_ENDED = sa.text("state IN ('done', 'failed', 'cancelled')")
_TOLD = ("key_id", "batch_id", "tags")


def upgrade() -> None:
    op.add_column("cost_lines", sa.Column("key_id", sa.String(40)))
    op.add_column("cost_lines", sa.Column("batch_id", sa.String(40)))
    op.add_column("cost_lines", sa.Column("tags", sa.JSON(none_as_null=True)))
    lines = sa.table("cost_lines", sa.column("job_id"), *map(sa.column, _TOLD))
    jobs = sa.table("jobs", sa.column("id"), *map(sa.column, _TOLD))
    says_something = sa.or_(*(jobs.c[name].is_not(None) for name in _TOLD))
    op.execute(
        sa.update(lines)
        .where(lines.c.job_id.in_(sa.select(jobs.c.id).where(says_something)))
        .values(
            {
                name: sa.select(jobs.c[name]).where(jobs.c.id == lines.c.job_id).scalar_subquery()
                for name in _TOLD
            }
        )
    )
    op.create_index(
        "ix_jobs_ended",
        "jobs",
        ["project", "state", "error_code"],
        sqlite_where=_ENDED,
        postgresql_where=_ENDED,
    )


def downgrade() -> None:
    op.drop_index("ix_jobs_ended", "jobs")
    for name in reversed(_TOLD):
        op.drop_column("cost_lines", name)
