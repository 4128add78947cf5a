"""The passages of transcripts and their full-text index.

PostgreSQL keeps the terms of a passage as a `tsvector` under a GIN index. SQLite keeps them as text and, by
triggers, in an FTS5 table beside it, `passage_index`, which stores no text itself. The alternatives that a
job kept have a separate index in the same way. `spool.domain.archive` makes the tokens: neither database
parses a language.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    DDL,
    BigInteger,
    Column,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    String,
    Table,
    Text,
    event,
)
from sqlalchemy.dialects.postgresql import ARRAY, TSVECTOR
from sqlalchemy.schema import ExecutableDDLElement
from sqlalchemy.types import TypeDecorator, TypeEngine

from spool.tables.base import ID, NAME, metadata

LONGEST = 64
"""Characters of a token or a sound at most (`spool.domain.archive.tokens`)."""


class Terms(TypeDecorator[Sequence[str]]):
    """Tokens in order, written only."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        """As the database indexes it."""
        own: TypeEngine[str] = TSVECTOR() if dialect.name == "postgresql" else Text()
        return dialect.type_descriptor(own)

    def process_bind_param(self, value: Sequence[str] | None, dialect: Dialect) -> str | None:
        """The text of a tsvector with positions, or the tokens between spaces."""
        if value is None or dialect.name != "postgresql":
            return None if value is None else " ".join(value)
        return " ".join(f"'{token}':{place}" for place, token in enumerate(value, start=1))


class Pairs(TypeDecorator[Sequence[int]]):
    """Numbers of pairs of tokens, written only, and on PostgreSQL only: FTS5 is quick at phrases."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """As the database indexes it."""
        own: TypeEngine[Any] = ARRAY(SmallInteger) if dialect.name == "postgresql" else Text()
        return dialect.type_descriptor(own)

    def process_bind_param(self, value: Sequence[int] | None, dialect: Dialect) -> Any:  # noqa: ANN401 (SQL)
        """Nothing if it is not indexed."""
        return value if dialect.name == "postgresql" else None


passages = Table(
    "passages",
    metadata,
    # A job's are numbered from its end, so that the newest job comes first and its own are in order.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("project", NAME, nullable=False),
    Column("channel", Integer, nullable=False),
    Column("speaker", String(16)),
    # How many of the words are its own; those after them begin the next passage.
    Column("own_words", Integer, nullable=False),
    Column("start_seconds", Double, nullable=False),
    Column("text", Text, nullable=False),
    # Start, length and confidence of each word (`spool.store.transcripts.passages`).
    Column("times", LargeBinary, nullable=False),
    Column("terms", Terms, nullable=False),
    # Which tokens are adjacent (`spool.domain.archive.tokens`), for phrases of frequent words.
    Column("pairs", Pairs),
    # The alternatives, as JSON, and their tokens: null if the job kept none.
    Column("alternatives", Text),
    Column("alternative_terms", Terms),
    Index("ix_passages_project_id", "project", "id"),
)

passage_words = Table(
    "passage_words",
    metadata,
    # The sound of a word, and the words of each job that have it: what a search by sound reads first.
    # Without a foreign key, whose check took half of the time: no job's row is ever deleted.
    Column("project", NAME, primary_key=True),
    Column("sound", String(LONGEST), primary_key=True),
    Column("token", String(LONGEST), primary_key=True),
    Column("job_id", ID, primary_key=True, index=True),
    sqlite_with_rowid=False,
)
Index("ix_passages_terms", passages.c.terms, postgresql_using="gin").ddl_if(dialect="postgresql")
Index("ix_passages_pairs", passages.c.pairs, postgresql_using="gin").ddl_if(dialect="postgresql")
Index(
    "ix_passages_alternative_terms",
    passages.c.alternative_terms,
    postgresql_using="gin",
    postgresql_where=passages.c.alternative_terms.is_not(None),
).ddl_if(dialect="postgresql")

FTS5 = (
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
for _statement in FTS5:
    _created: ExecutableDDLElement = DDL(_statement)  # type: ignore[no-untyped-call]
    event.listen(passages, "after_create", _created.execute_if(dialect="sqlite"))
for _index in ("passage_index_alternatives", "passage_index"):
    _dropped: ExecutableDDLElement = DDL(f"DROP TABLE {_index}")  # type: ignore[no-untyped-call]
    event.listen(passages, "before_drop", _dropped.execute_if(dialect="sqlite"))
