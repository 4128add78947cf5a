"""Glossaries and language models of projects, by name and version. A glossary's phrases are in
`phrase_lists`, a language model's file in the object store."""

from sqlalchemy import BigInteger, Column, Double, Index, Integer, String, Table

from spool.tables.base import NAME, UtcDateTime, metadata

glossaries = Table(
    "glossaries",
    metadata,
    Column("project", NAME, primary_key=True),
    Column("name", String(64), primary_key=True),
    # 1, 2, 3 … of the name.
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("sha256", String(64), nullable=False),
    Column("count", Integer, nullable=False),
    Column("weight", Double, nullable=False),
    # It takes up what corrections wrote in so many recordings; NULL: only what people put into it.
    Column("auto_add_after", Integer),
    Column("created_at", UtcDateTime, nullable=False),
    Column("created_by", String(200), nullable=False),
    # Whoever deletes a list asks whether a glossary has it.
    Index("ix_glossaries_sha256", "sha256"),
)

language_models = Table(
    "language_models",
    metadata,
    Column("project", NAME, primary_key=True),
    Column("name", String(64), primary_key=True),
    # 1, 2, 3 … of the name.
    Column("version", Integer, primary_key=True, autoincrement=False),
    # Of the ARPA file; its key in the object store has it too.
    Column("sha256", String(64), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("ngram_order", Integer, nullable=False),
    Column("ngrams", BigInteger, nullable=False),
    # Over whose tokens it is, as its author says.
    Column("model", String(200)),
    Column("created_at", UtcDateTime, nullable=False),
    Column("created_by", String(200), nullable=False),
    # Whoever deletes a file asks whether another version has it.
    Index("ix_language_models_sha256", "sha256"),
)
