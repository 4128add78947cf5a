"""The schemas of glossaries and language models."""

from datetime import datetime
from typing import Annotated

from pydantic import Field, model_validator

from spool.domain.search.phrases import MOST_PHRASES, Phrase, Weight
from spool.schemas.common import AnswerModel, Project, RequestModel

GlossaryName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class GlossaryRequest(RequestModel):
    """A version of a glossary to be added, from exactly one of `phrases`, `text` and `csv`."""

    name: GlossaryName
    project: Project | None = Field(
        None, description="The project that may use it. Default: the key's project, or `default`."
    )
    weight: Weight = 1.0
    phrases: Annotated[tuple[Phrase, ...], Field(max_length=MOST_PHRASES, strict=False)] | None = Field(
        None, description="Words and phrases as they are spoken."
    )
    text: str | None = Field(None, description="One phrase per line; lines that begin with # are skipped.")
    csv: str | None = Field(
        None, description="The column `phrase`, or the first column if there is none of that name."
    )

    extend: bool = Field(
        False, description="Add these to the phrases of the latest version instead of replacing them."
    )
    auto_add_after: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None,
        description="When a job names the glossary without a version, add phrases that "
        "corrections wrote in at least this many recordings of the project. Null: add none automatically.",
    )

    @model_validator(mode="after")
    def _has_one(self) -> "GlossaryRequest":
        if sum(each is not None for each in (self.phrases, self.text, self.csv)) != 1:
            raise ValueError("send exactly one of phrases, text and csv")
        return self


class GlossaryOut(AnswerModel):
    """A version of a glossary."""

    name: str
    version: int = Field(description="1, 2, 3 …; a version never changes.")
    project: str
    count: int = Field(description="The number of phrases.")
    sha256: str = Field(description="The digest of the phrases, which jobs show as `boost.sha256`.")
    weight: float
    auto_add_after: int | None = Field(
        description="Adds names that corrections wrote in this many recordings; null: it does not."
    )
    created_at: datetime
    created_by: str


class GlossaryDetail(GlossaryOut):
    """A version of a glossary with its phrases."""

    phrases: list[str] = Field(description="In alphabetical order, each once.")


class SuggestionOut(AnswerModel):
    """A phrase that corrections put in place of what was recognised."""

    phrase: str
    recordings: int = Field(description="In how many recordings.")
    job: str = Field(description="The latest job with such a correction.")
    first_word: int = Field(description="The corrected words, as they were recognised.")
    last_word: int


class LanguageModelRequest(RequestModel):
    """The description of an ARPA file to be added as a version of a language model."""

    name: GlossaryName
    project: Project | None = Field(
        None, description="The project that may use it. Default: the key's project, or `default`."
    )
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="The model whose tokens it uses."
    )


class LanguageModelOut(AnswerModel):
    """A version of a language model."""

    name: str
    version: int = Field(description="1, 2, 3 …; a version never changes.")
    project: str
    sha256: str = Field(description="Of the file, which transcripts show as `language_model.sha256`.")
    size: int = Field(description="Bytes of the file.")
    ngram_order: int
    ngrams: int
    model: str | None = Field(description="The model whose tokens it uses, according to its author.")
    created_at: datetime
    created_by: str
