"""Boosted phrases: as a submitter sends them, and as a job keeps them.

The same phrases in any order are one list with one digest, so that many jobs share it. Pure.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field, field_validator

MOST_PHRASES = 10_000
LONGEST_PHRASE = 200
"""Characters."""
REFERENCE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(@[1-9][0-9]{0,8})?$"
"""How a glossary is named: `NAME` or `NAME@VERSION`."""


@dataclass(frozen=True, slots=True)
class PhraseList:
    """Phrases in order, each once, and the SHA-256 (hex) that identifies them."""

    phrases: tuple[str, ...]
    sha256: str


def phrase_list(texts: Iterable[str]) -> PhraseList:
    """The list of these texts: sorted, with single spaces, without empty ones and duplicates."""
    phrases = tuple(sorted({phrase for text in texts if (phrase := " ".join(text.split()))}))
    return PhraseList(phrases, hashlib.sha256("\n".join(phrases).encode()).hexdigest())


# Categories Cc and Cs, except white space. Joiners between letters belong to the words of many languages.
_CONTROL = re.compile("[\\x00-\\x08\\x0e-\\x1b\\x7f-\\x84\\x86-\\x9f\\ud800-\\udfff]")


def _writable(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("must not contain control characters")
    return text


Phrase = Annotated[str, Field(max_length=LONGEST_PHRASE), AfterValidator(_writable)]
Weight = Annotated[
    float,
    Field(gt=0, le=100, strict=True, allow_inf_nan=False, description="How much the phrases are boosted."),
]


class Boost(BaseModel):
    """Phrases to boost, as a submitter sends them, including those of its glossary.

    Whoever receives a request adds the glossary's phrases; a glossary without them is refused, never ignored.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        defer_build=True,
        # What a submitter may omit.
        json_schema_extra={
            "required": [],
            "anyOf": [{"required": [name]} for name in ("phrases", "glossary")],
        },
    )

    phrases: Annotated[
        tuple[Phrase, ...],
        FailFast(),  # listing ten thousand faults takes a tenth of a second
        Field(
            max_length=MOST_PHRASES,
            description="Words and phrases as they are spoken; their order does not matter.",
        ),
    ]
    glossary: Annotated[
        str | None,
        Field(
            pattern=REFERENCE,
            description="A glossary of the project, whose phrases are added: `NAME`, its latest version now, "
            "or `NAME@VERSION`. The default weight is the glossary's.",
        ),
    ] = None
    weight: Weight = 1.0

    @field_validator("phrases")
    @classmethod
    def _one_form(cls, phrases: tuple[str, ...]) -> tuple[str, ...]:
        return phrase_list(phrases).phrases

    def with_glossary(self, glossary: str | None) -> "Boost":
        """A copy that names this version of a glossary as the origin of its phrases."""
        return Boost(phrases=self.phrases, weight=self.weight, glossary=glossary)

    @cached_property
    def phrase_list(self) -> PhraseList:
        """The list without its weight."""
        return phrase_list(self.phrases)

    @cached_property
    def kept(self) -> "KeptBoost":
        """The form in which a job stores it."""
        return KeptBoost(
            count=len(self.phrases),
            sha256=self.phrase_list.sha256,
            weight=self.weight,
            glossary=self.glossary,
        )


class KeptBoost(BaseModel):
    """Phrases to boost, as a job stores them: the list is stored separately, under its digest."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    count: Annotated[int, Field(description="The number of phrases.")]
    sha256: Annotated[
        str, Field(description="The digest of the list, which does not depend on the order of phrases.")
    ]
    weight: float
    glossary: Annotated[
        str | None,
        Field(
            exclude_if=lambda value: value is None,
            description="The version of the glossary that phrases came from, `NAME@VERSION`.",
        ),
    ] = None
