"""The table of uploads that go past the API, as revision 0001 made it."""

import sqlalchemy as sa
from alembic import op

from migrations.types import UtcDateTime


def create() -> None:
    """Create it."""
    op.create_table(
        "uploads",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("part_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(length=64)),
        sa.Column("content_type", sa.String(length=100), nullable=False),
        sa.Column("multipart_id", sa.Text(), nullable=False),
        sa.Column("etag", sa.Text()),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("expires_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint("state IN ('open', 'complete', 'used', 'removed')", name=op.f("ck_uploads_state")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_uploads")),
    )
    op.create_index("ix_uploads_job_id", "uploads", ["job_id"], unique=True)
    op.create_index("ix_uploads_project_sha256", "uploads", ["project", "sha256"])
    op.create_index("ix_uploads_expires_at", "uploads", ["expires_at"])
