"""The passages of transcripts and their full-text index, as revision 0001 made them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, TSVECTOR

_FTS5 = (
    "CREATE VIRTUAL TABLE passage_index USING fts5(terms, content='passages', content_rowid='id', "
    "columnsize=0, prefix=3, tokenize=\"unicode61 remove_diacritics 0 tokenchars '~'\")",
    "CREATE TRIGGER passages_inserted AFTER INSERT ON passages BEGIN "
    "INSERT INTO passage_index(rowid, terms) VALUES (new.id, new.terms); END",
    "CREATE TRIGGER passages_deleted AFTER DELETE ON passages BEGIN "
    "INSERT INTO passage_index(passage_index, rowid, terms) VALUES ('delete', old.id, old.terms); END",
    "CREATE VIRTUAL TABLE passage_index_alternatives USING fts5(alternative_terms, content='passages', "
    "content_rowid='id', columnsize=0, "
    "tokenize=\"unicode61 remove_diacritics 0 tokenchars '~'\")",
    "CREATE TRIGGER passage_alternatives_inserted AFTER INSERT ON passages "
    "WHEN new.alternative_terms IS NOT NULL BEGIN INSERT INTO passage_index_alternatives"
    "(rowid, alternative_terms) VALUES (new.id, new.alternative_terms); END",
    "CREATE TRIGGER passage_alternatives_deleted AFTER DELETE ON passages "
    "WHEN old.alternative_terms IS NOT NULL BEGIN INSERT INTO passage_index_alternatives"
    "(passage_index_alternatives, rowid, alternative_terms) "
    "VALUES ('delete', old.id, old.alternative_terms); END",
)


def create() -> None:
    """Create them."""
    sqlite = op.get_bind().dialect.name == "sqlite"
    op.create_table(
        "passages",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("channel", sa.Integer(), nullable=False),
        sa.Column("speaker", sa.String(length=16)),
        sa.Column("own_words", sa.Integer(), nullable=False),
        sa.Column("start_seconds", sa.Double(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("times", sa.LargeBinary(), nullable=False),
        sa.Column("terms", sa.Text() if sqlite else TSVECTOR(), nullable=False),
        sa.Column("pairs", sa.Text() if sqlite else ARRAY(sa.SmallInteger())),
        sa.Column("alternatives", sa.Text()),
        sa.Column("alternative_terms", sa.Text() if sqlite else TSVECTOR()),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_passages_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_passages")),
    )
    op.create_index(op.f("ix_passages_job_id"), "passages", ["job_id"])
    op.create_index("ix_passages_project_id", "passages", ["project", "id"])
    op.create_table(
        "passage_words",
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("sound", sa.String(length=64), nullable=False),
        sa.Column("token", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.PrimaryKeyConstraint("project", "sound", "token", "job_id", name=op.f("pk_passage_words")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_passage_words_job_id"), "passage_words", ["job_id"])
    if not sqlite:
        op.create_index("ix_passages_terms", "passages", ["terms"], postgresql_using="gin")
        op.create_index("ix_passages_pairs", "passages", ["pairs"], postgresql_using="gin")
        op.create_index(
            "ix_passages_alternative_terms",
            "passages",
            ["alternative_terms"],
            postgresql_using="gin",
            postgresql_where=sa.text("alternative_terms IS NOT NULL"),
        )
        return
    for statement in _FTS5:
        op.execute(statement)


def drop() -> None:
    """Remove what a dropped table leaves behind."""
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TABLE passage_index_alternatives")
        op.execute("DROP TABLE passage_index")
