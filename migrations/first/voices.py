"""Named voices and the voice prints of jobs' speakers, as revision 0001 made them."""

import sqlalchemy as sa
from alembic import op

from migrations.types import UtcDateTime


def create() -> None:
    """Create them."""
    op.create_table(
        "voices",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_voices")),
        sa.UniqueConstraint("project", "name", name=op.f("uq_voices_project_name")),
    )
    op.create_table(
        "voice_prints",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("label", sa.String(length=16), nullable=False),
        sa.Column("encoder", sa.String(length=64), nullable=False),
        sa.Column("print", sa.LargeBinary(), nullable=False),
        sa.Column("voice_id", sa.String(length=40)),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_voice_prints_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["voice_id"], ["voices.id"], name=op.f("fk_voice_prints_voice_id_voices"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("job_id", "label", name=op.f("pk_voice_prints")),
    )
    op.create_index("ix_voice_prints_voice_id", "voice_prints", ["voice_id"])
