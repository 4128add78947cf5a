"""What is deleted on purpose: marks on jobs, a log, and the sums that deleted chunks leave behind.

Revision 0012, after 0011.
"""

import sqlalchemy as sa
from alembic import op

from spool.tables.base import UtcDateTime

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_KEPT = {
    "source": "source_kind = 'upload' AND finished_at IS NOT NULL AND source_deleted_at IS NULL",
    "transcript": "finished_at IS NOT NULL AND transcript_deleted_at IS NULL",
}


def upgrade() -> None:
    for column in (
        sa.Column("phrases_sha256", sa.String(64)),
        sa.Column("source_deleted_at", UtcDateTime()),
        sa.Column("transcript_deleted_at", UtcDateTime()),
    ):
        op.add_column("jobs", column)
    sqlite = op.get_bind().dialect.name == "sqlite"
    digest = "json_extract(options, '$.boost.sha256')" if sqlite else "options -> 'boost' ->> 'sha256'"
    jobs = sa.table("jobs", sa.column("phrases_sha256"))
    op.execute(jobs.update().values(phrases_sha256=sa.text(digest)).where(sa.text(f"{digest} IS NOT NULL")))
    _index("jobs", "ix_jobs_phrases_sha256", ["phrases_sha256"], "phrases_sha256 IS NOT NULL")
    for content, kept in _KEPT.items():
        _index("jobs", f"ix_jobs_kept_{content}", ["project", "finished_at"], kept)
    op.create_table(
        "deletions",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("project", sa.String(200), nullable=False),
        sa.Column("content", sa.String(16), nullable=False),
        sa.Column("asked_by", sa.String(200), nullable=False),
        sa.Column("objects", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("done_at", UtcDateTime()),
        sa.Column("due_at", UtcDateTime()),
        sa.CheckConstraint("content IN ('source', 'transcript')", name="content"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_deletions_job_id_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_deletions"),
    )
    op.create_index("ix_deletions_job_id", "deletions", ["job_id"])
    _index("deletions", "ix_deletions_due_at", ["due_at"], "due_at IS NOT NULL")
    op.create_table(
        "chunk_sums",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("engine_ns", sa.BigInteger(), nullable=False),
        sa.Column("audio_samples", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name="fk_chunk_sums_job_id_jobs", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "attempt", name="pk_chunk_sums"),
    )


def downgrade() -> None:
    op.drop_table("chunk_sums")
    op.drop_index("ix_deletions_due_at", "deletions")
    op.drop_index("ix_deletions_job_id", "deletions")
    op.drop_table("deletions")
    for index in ("kept_transcript", "kept_source", "phrases_sha256"):
        op.drop_index(f"ix_jobs_{index}", "jobs")
    for column in ("transcript_deleted_at", "source_deleted_at", "phrases_sha256"):
        op.drop_column("jobs", column)


def _index(table: str, name: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, sqlite_where=condition, postgresql_where=condition)
