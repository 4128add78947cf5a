"""Glossaries and language models of projects, by name and version. A glossary's phrases are in
`phrase_lists`, a language model's file in the object store."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Index

from spool.domain.columns import BigInt, Name, Sha256, ShortName
from spool.tables.record import table_of


@dataclass(frozen=True)
class Glossary:
    """One version of a glossary. sha256: the digest of its phrases, which jobs keep. auto_add_after: it
    takes up what corrections wrote in so many recordings of the project; None if it does not."""

    project: Name
    name: ShortName
    version: int
    sha256: Sha256
    count: int
    weight: float
    auto_add_after: int | None
    created_at: datetime
    created_by: Name

    @property
    def reference(self) -> str:
        """What a job shows of it."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True)
class LanguageModel:
    """One version of a language model: its file's hash and bytes, its order and n-grams, and the model whose
    tokens it uses, according to its author."""

    project: Name
    name: ShortName
    version: int
    sha256: Sha256
    size: BigInt
    ngram_order: int
    ngrams: BigInt
    model: Name | None
    created_at: datetime
    created_by: Name

    @property
    def reference(self) -> str:
        """The reference that a job shows."""
        return f"{self.name}@{self.version}"


glossaries = table_of(
    "glossaries",
    Glossary,
    # Whoever deletes a list checks whether a glossary uses it.
    Index("ix_glossaries_sha256", "sha256"),
    key=("project", "name", "version"),
)

language_models = table_of(
    "language_models",
    LanguageModel,
    # Whoever deletes a file checks whether another version uses it.
    Index("ix_language_models_sha256", "sha256"),
    key=("project", "name", "version"),
)
