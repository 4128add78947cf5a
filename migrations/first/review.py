"""The passages that people review, as revision 0001 made them."""

import sqlalchemy as sa
from alembic import op

from migrations.types import UtcDateTime


def create() -> None:
    """Create them."""
    op.create_table(
        "review_passages",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("channel", sa.Integer(), nullable=False),
        sa.Column("start_seconds", sa.Double(), nullable=False),
        sa.Column("end_seconds", sa.Double(), nullable=False),
        sa.Column("first_word", sa.Integer(), nullable=False),
        sa.Column("last_word", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("doubt", sa.Double(), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("versions", sa.Double(), nullable=False),
        sa.Column("speech", sa.Double(), nullable=False),
        sa.Column("language", sa.Double(), nullable=False),
        sa.Column("errors", sa.Integer(), nullable=False),
        sa.Column("words", sa.Integer(), nullable=False),
        sa.Column("checked_at", UtcDateTime()),
        sa.Column("checked_by", sa.String(length=200)),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_review_passages_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_review_passages")),
    )
    order = ["doubt", "job_id", "number"]
    unchecked = sa.text("checked_at IS NULL")
    for name, columns in (
        ("ix_review_passages_project_doubt", ["project", *order]),
        ("ix_review_passages_doubt", order),
    ):
        op.create_index(name, "review_passages", columns, postgresql_where=unchecked, sqlite_where=unchecked)
    _create_recordings()
    op.create_table(
        "review_samples",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("batch", sa.String(length=40)),
        sa.Column("model", sa.String(length=200)),
        sa.Column("population", sa.Integer(), nullable=False),
        sa.Column("margin", sa.Double(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("created_by", sa.String(length=200), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_review_samples")),
    )
    op.create_index(
        "ix_review_samples_project_created_at_id", "review_samples", ["project", "created_at", "id"]
    )
    op.create_table(
        "review_sample_passages",
        sa.Column("sample_id", sa.String(length=40), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.ForeignKeyConstraint(
            ["sample_id"],
            ["review_samples.id"],
            name=op.f("fk_review_sample_passages_sample_id_review_samples"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("sample_id", "job_id", "number", name=op.f("pk_review_sample_passages")),
    )


def _create_recordings() -> None:
    op.create_table(
        "review_recordings",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("passages", sa.Integer(), nullable=False),
        sa.Column("unchecked", sa.Integer(), nullable=False),
        sa.Column("doubt", sa.Double(), nullable=False),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.Column("versions", sa.Double(), nullable=False),
        sa.Column("speech", sa.Double(), nullable=False),
        sa.Column("language", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_review_recordings_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_review_recordings")),
    )
    still_open = sa.text("unchecked > 0")
    for name, columns in (
        ("ix_review_recordings_project_doubt", ["project", "doubt", "job_id"]),
        ("ix_review_recordings_doubt", ["doubt", "job_id"]),
    ):
        op.create_index(
            name, "review_recordings", columns, postgresql_where=still_open, sqlite_where=still_open
        )
