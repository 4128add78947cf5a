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
    # Add names that corrections wrote in this many recordings; NULL: only what people add.
    Column("auto_add_after", Integer),
    Column("created_at", UtcDateTime, nullable=False),
    Column("created_by", String(200), nullable=False),
    # Whoever deletes a list checks whether a glossary uses it.
    Index("ix_glossaries_sha256", "sha256"),
)

language_models = Table(
    "language_models",
    metadata,
    Column("project", NAME, primary_key=True),
    Column("name", String(64), primary_key=True),
    # 1, 2, 3 … of the name.
    Column("version", Integer, primary_key=True, autoincrement=False),
    # Of the ARPA file; its key in the object store contains it too.
    Column("sha256", String(64), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("ngram_order", Integer, nullable=False),
    Column("ngrams", BigInteger, nullable=False),
    # The model whose tokens it uses, according to its author.
    Column("model", String(200)),
    Column("created_at", UtcDateTime, nullable=False),
    Column("created_by", String(200), nullable=False),
    # Whoever deletes a file checks whether another version uses it.
    Index("ix_language_models_sha256", "sha256"),
)
