"""Phrases to be favoured, as a list that many jobs may share.

The same phrases are the same list, in any order and however often one stands in it: a search asks which
phrases there are, not in which order they were told. So each list has one form and one digest. Pure.

What a job is allowed to be: its states, the legal moves between them, its options.

Pure: no SQL and no clock. `spool.store` refuses in SQL whatever `MOVES` does not list.
"""

import hashlib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
    model_validator,
)

Decoder = Literal["greedy", "beam"]

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


class _Options(BaseModel):
    """What the search is asked, but for the boosted phrases."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Annotated[
        str, Field(min_length=1, max_length=200, description="A model name from the settings.")
    ] = "demo"
    decoder: Annotated[Decoder, Field(description="Search over the model's output.")] = "greedy"
    beam: Annotated[
        int, Field(ge=1, le=32, strict=True, description="Hypotheses kept by the beam decoder.")
    ] = 4
    channels: Annotated[
        Literal["mix", "separate"], Field(description="Mix all channels, or transcribe each one by itself.")
    ] = "mix"
    nbest: Annotated[
        int,
        Field(
            ge=1,
            le=32,
            strict=True,
            description="Hypotheses of each chunk in the transcript; the beam has to hold as many.",
        ),
    ] = 1
    alternatives: Annotated[
        int,
        Field(ge=0, le=20, strict=True, description="Other words that the beam heard in place of each one."),
    ] = 0
    lattice: Annotated[
        float | None,
        Field(
            ge=0,
            le=1000,
            strict=True,
            allow_inf_nan=False,
            description="Keep a lattice of each chunk: the words whose best path scores within so much "
            "(natural logarithm) of the best path; 5 to 10 is usual.",
        ),
    ] = None
    language_model: Annotated[
        str | None,
        Field(min_length=1, max_length=200, description="An n-gram language model's name from the settings."),
    ] = None
    lm_weight: Annotated[
        float,
        Field(ge=0, le=10, strict=True, allow_inf_nan=False, description="The language model's weight."),
    ] = 0.3
    lm_blanks: Annotated[
        bool, Field(strict=True, description="Let the language model have a say in blanks too.")
    ] = False
    pruning: Annotated[
        Literal["late", "early"],
        Field(
            description="Whether language model and phrases speak before the beam is cut to its best (late) "
            "or only order what the model alone kept (early)."
        ),
    ] = "late"
    context: Annotated[
        Literal["chunk", "job"],
        Field(
            description="Where language model and phrases begin anew: with each chunk, or not before the "
            "recording's end; its chunks are then decoded one after another."
        ),
    ] = "chunk"
    scores: Annotated[
        Literal["float", "fixed"],
        Field(
            description="How scores are added up: as 32-bit floats, or in fixed point (Q16.16), where the "
            "order of sums does not count."
        ),
    ] = "float"
    language: Annotated[
        str | None,
        Field(
            pattern="^[a-z]{2,3}$",
            description="The language spoken, such as `en`; null lets the model detect it in each chunk.",
        ),
    ] = None
    task: Annotated[
        Literal["transcribe", "translate"],
        Field(description="Write what is said, or its English translation; for models that can."),
    ] = "transcribe"
    timestamps: Annotated[
        Literal["auto", "on", "off"],
        Field(
            description="Whether an attention decoder writes times among its tokens; auto asks with and "
            "without and takes the better answer."
        ),
    ] = "auto"
    prompt: Annotated[
        str,
        Field(max_length=4000, description="Text that came before, for an attention decoder."),
    ] = ""
    hotwords: Annotated[
        str, Field(max_length=4000, description="Words to expect, told to an attention decoder.")
    ] = ""
    patience: Annotated[
        float,
        Field(
            gt=0,
            le=10,
            strict=True,
            allow_inf_nan=False,
            description="An attention decoder's beam ends with beam times patience finished hypotheses.",
        ),
    ] = 1.0
    length_penalty: Annotated[
        float | None,
        Field(
            ge=0,
            le=2,
            strict=True,
            allow_inf_nan=False,
            description="Hypotheses are ranked by score / ((5 + tokens) / 6)^length_penalty; null ranks them "
            "by their mean score.",
        ),
    ] = None


class JobOptions(_Options):
    """What the submitter chose; together with audio and model it alone decides the transcript (law 7)."""

    boost: Annotated[KeptBoost | None, Field(description="Phrases that are favoured.")] = None

    def told(self) -> dict[str, JsonValue]:
        """The options that say something: an option that did not exist yet when a transcript was made is
        left out where it asks for what was done then."""
        return {
            name: value
            for name, value in self.model_dump(mode="json").items()
            if name in _FIRST_OPTIONS or value != type(self).model_fields[name].default
        }


_FIRST_OPTIONS = frozenset({"model", "decoder", "beam", "channels"})


class AskedOptions(_Options):
    """The options as a request tells them, with the phrases themselves.

    What contradicts itself is refused at the field that was told last; with `language_models` in the context
    of the validation, so is a name that is not among them.
    """

    boost: Annotated[Boost | None, Field(description="Words and phrases to be favoured.")] = None

    @field_validator("language_model")
    @classmethod
    def _is_known(cls, name: str | None, told: ValidationInfo) -> str | None:
        known = (told.context or {}).get("language_models")
        if name is not None and known is not None and name not in known:
            raise ValueError(f"there is no such language model; known here: {', '.join(known) or 'none'}")
        return name

    @field_validator("nbest")
    @classmethod
    def _is_in_the_beam(cls, nbest: int, told: ValidationInfo) -> int:
        if nbest > 1 and told.data.get("decoder") == "greedy":
            raise ValueError("the greedy decoder knows one hypothesis; ask for the beam decoder")
        if nbest > told.data.get("beam", nbest):
            raise ValueError(f"must not be more than the beam, which is {told.data['beam']}")
        return nbest

    @field_validator("alternatives", "lattice")
    @classmethod
    def _wants_a_beam(cls, asked: float | None, told: ValidationInfo) -> float | None:
        nothing = cls.model_fields[told.field_name or ""].default
        if asked != nothing and told.data.get("decoder") == "greedy":
            raise ValueError("the greedy decoder knows one path; ask for the beam decoder")
        return asked

    @field_validator("lm_weight", "lm_blanks")
    @classmethod
    def _has_a_language_model(cls, value: float, told: ValidationInfo) -> float:
        default = cls.model_fields[told.field_name or ""].default
        if value != default and told.data.get("language_model", "") is None:
            raise ValueError("says something of a language model, and language_model names none")
        return value

    @field_validator("boost")
    @classmethod
    def _says_something(cls, boost: Boost | None) -> Boost | None:
        return boost if boost and boost.phrases else None

    @model_validator(mode="after")
    def _has_something_to_fuse(self) -> "AskedOptions":
        if self.language_model is not None or self.boost is not None:
            if self.decoder == "greedy" and self.pruning == "early":
                raise ValueError("pruning: there is no beam to cut; ask for the beam decoder")
            if self.decoder == "greedy" and self.lm_blanks:
                raise ValueError("lm_blanks: the greedy decoder leaves blanks to the model")
            return self
        for name in ("pruning", "context"):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}: asks how to fuse, and there is neither language_model nor boost")
        return self

    @property
    def phrases(self) -> PhraseList | None:
        """The list that the job's options name."""
        return None if self.boost is None else self.boost.told

    def kept(self) -> JobOptions:
        """The options as the job keeps them."""
        told = {name: getattr(self, name) for name in _Options.model_fields}
        return JobOptions(**told, boost=self.boost and self.boost.kept)
