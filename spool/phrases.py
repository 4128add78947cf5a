"""Phrases to be favoured, as a list that many jobs may share.

The same phrases are the same list, in any order and however often one stands in it: a search asks which
phrases there are, not in which order they were told. So each list has one form and one digest. Pure.
"""

import hashlib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

MOST_PHRASES = 10_000
LONGEST_PHRASE = 200
"""Characters."""


@dataclass(frozen=True, slots=True)
class PhraseList:
    """Phrases in order, each once; `sha256` (hex) is theirs alone."""

    phrases: tuple[str, ...]
    sha256: str


def phrase_list(texts: Iterable[str]) -> PhraseList:
    """The list of these texts: sorted, blanks made single, empty ones and repetitions left out."""
    phrases = tuple(sorted({phrase for text in texts if (phrase := " ".join(text.split()))}))
    return PhraseList(phrases, hashlib.sha256("\n".join(phrases).encode()).hexdigest())


def _writable(text: str) -> str:
    # Joiners between letters are no control characters and belong to words of many languages.
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in text if not char.isspace()):
        raise ValueError("must not contain control characters")
    return text


Phrase = Annotated[str, Field(max_length=LONGEST_PHRASE), AfterValidator(_writable)]
Weight = Annotated[
    float,
    Field(gt=0, le=100, strict=True, allow_inf_nan=False, description="How much the phrases are favoured."),
]


class Boost(BaseModel):
    """Phrases to be favoured, as a submitter tells them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    phrases: Annotated[
        tuple[Phrase, ...],
        Field(
            max_length=MOST_PHRASES,
            description="Words and phrases as they are spoken; their order does not count.",
        ),
    ]
    weight: Weight = 1.0

    @field_validator("phrases")
    @classmethod
    def _one_form(cls, phrases: tuple[str, ...]) -> tuple[str, ...]:
        return phrase_list(phrases).phrases

    @cached_property
    def told(self) -> PhraseList:
        """The list by itself."""
        return phrase_list(self.phrases)

    @cached_property
    def kept(self) -> "KeptBoost":
        """What a job keeps of it."""
        return KeptBoost(count=len(self.phrases), sha256=self.told.sha256, weight=self.weight)


class KeptBoost(BaseModel):
    """Phrases to be favoured, as a job keeps and shows them: the list stands elsewhere, under its digest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: Annotated[int, Field(description="How many phrases there are.")]
    sha256: Annotated[str, Field(description="Of the list; the same phrases in any order have the same.")]
    weight: float
