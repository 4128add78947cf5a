"""Who goes first: priorities, deadlines, places, each project's turns and what it used of its quotas.

Revision 0008, after 0007.
"""

import sqlalchemy as sa
from alembic import op

from spool.tables.base import UtcDateTime

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_QUEUED = "state = 'queued'"
_NEVER = 253402300799


def upgrade() -> None:
    number, wide = sa.SmallInteger(), sa.BigInteger()
    for column in (
        sa.Column("priority", number, server_default=sa.text("1"), nullable=False),
        sa.Column("deadline", UtcDateTime()),
        sa.Column("due", wide, server_default=sa.text(str(_NEVER)), nullable=False),
        sa.Column("place", wide, server_default=sa.text("0"), nullable=False),
        sa.Column("not_before", UtcDateTime()),
        sa.Column("reckoned_seconds", sa.Double()),
    ):
        op.add_column("jobs", column)
    for kept in (
        sa.Column("priority", number, server_default=sa.text("1"), nullable=False),
        sa.Column("deadline", UtcDateTime()),
        sa.Column("late", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("expected_at", UtcDateTime()),
        sa.Column("expected_basis", sa.Text()),
    ):
        op.add_column("batches", kept)
    _tables()
    op.drop_index("ix_jobs_queued", "jobs")
    _index("jobs", "ix_jobs_queued", ["pool", "worker", "hinted_at"], _QUEUED)
    ranked = ["pool", "worker", "project", "priority", "due", "place", "id"]
    _index("jobs", "ix_jobs_next", ranked, _QUEUED)
    _index("jobs", "ix_jobs_due", ["due"], f"{_QUEUED} AND due < {_NEVER}")
    _index("batches", "ix_batches_deadline", ["deadline"], "deadline IS NOT NULL")


def downgrade() -> None:
    op.drop_index("ix_batches_deadline", "batches")
    for index in ("due", "next", "queued"):
        op.drop_index(f"ix_jobs_{index}", "jobs")
    _index("jobs", "ix_jobs_queued", ["hinted_at"], _QUEUED)
    op.drop_table("quota_use")
    op.drop_table("turns")
    for column in ("expected_basis", "expected_at", "late", "deadline", "priority"):
        op.drop_column("batches", column)
    for column in ("reckoned_seconds", "not_before", "place", "due", "deadline", "priority"):
        op.drop_column("jobs", column)


def _tables() -> None:
    zero = sa.text("0")
    name = sa.String(length=200)
    op.create_table(
        "turns",
        sa.Column("pool", name, nullable=False),
        sa.Column("project", name, nullable=False),
        sa.Column("share", sa.Double(), server_default=sa.text("1"), nullable=False),
        sa.Column("start", sa.Double(), server_default=zero, nullable=False),
        sa.Column("served", sa.Double(), server_default=zero, nullable=False),
        sa.Column("claims", sa.BigInteger(), server_default=zero, nullable=False),
        sa.Column("mean_seconds", sa.Double()),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("pool", "project", name=op.f("pk_turns")),
    )
    op.create_table(
        "quota_use",
        sa.Column("project", name, nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("day_samples", sa.BigInteger(), server_default=zero, nullable=False),
        sa.Column("month_nanos", sa.BigInteger(), server_default=zero, nullable=False),
        sa.Column("before_nanos", sa.BigInteger(), server_default=zero, nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("project", name=op.f("pk_quota_use")),
    )


def _index(table: str, name: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, sqlite_where=condition, postgresql_where=condition)
