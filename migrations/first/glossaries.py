"""The tables of glossaries and language models, as revision 0001 made them."""

import sqlalchemy as sa
from alembic import op

from migrations.types import UtcDateTime


def create() -> None:
    """Create them."""
    op.create_table(
        "glossaries",
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("auto_add_after", sa.Integer()),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("created_by", sa.String(length=200), nullable=False),
        sa.PrimaryKeyConstraint("project", "name", "version", name=op.f("pk_glossaries")),
    )
    op.create_index("ix_glossaries_sha256", "glossaries", ["sha256"])
    op.create_table(
        "language_models",
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("ngram_order", sa.Integer(), nullable=False),
        sa.Column("ngrams", sa.BigInteger(), nullable=False),
        sa.Column("model", sa.String(length=200)),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("created_by", sa.String(length=200), nullable=False),
        sa.PrimaryKeyConstraint("project", "name", "version", name=op.f("pk_language_models")),
    )
    op.create_index("ix_language_models_sha256", "language_models", ["sha256"])
