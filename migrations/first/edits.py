"""Corrections of transcripts, as revision 0001 made them."""

import sqlalchemy as sa
from alembic import op

from migrations.types import UtcDateTime


def create() -> None:
    """Create them."""
    op.create_table(
        "edits",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("first_word", sa.Integer(), nullable=False),
        sa.Column("last_word", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text()),
        sa.Column("speaker", sa.String(length=16)),
        sa.Column("undoes", sa.Integer()),
        sa.Column("author", sa.String(length=200), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("words", sa.Integer(), nullable=False),
        sa.Column("names", sa.JSON(none_as_null=True)),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_edits_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "revision", name=op.f("pk_edits")),
    )
