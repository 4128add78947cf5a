"""What a job is allowed to be: its states, the legal moves between them, its options.

Pure: no SQL and no clock. `spool.store` refuses in SQL whatever `MOVES` does not list.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
    model_validator,
)

from spool.phrases import Boost, KeptBoost, PhraseList


class JobState(StrEnum):
    """Where a job stands. `queued → running → done | failed | cancelled`."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether only a person can move the job on from here."""
        return self in TERMINAL


TERMINAL = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})

MOVES: frozenset[tuple[JobState, JobState]] = frozenset(
    {
        (JobState.QUEUED, JobState.RUNNING),  # a worker claims it
        (JobState.QUEUED, JobState.CANCELLED),
        (JobState.QUEUED, JobState.FAILED),  # set aside: too many attempts ended with a dead process
        (JobState.RUNNING, JobState.QUEUED),  # the lease ran out, or the worker drains or yields
        (JobState.RUNNING, JobState.DONE),
        (JobState.RUNNING, JobState.FAILED),
        (JobState.RUNNING, JobState.CANCELLED),
        (JobState.FAILED, JobState.QUEUED),  # a person retries
        (JobState.CANCELLED, JobState.QUEUED),
    }
)


def may_move(old: JobState, new: JobState) -> bool:
    """Whether a job in state `old` may go to state `new`."""
    return (old, new) in MOVES


class _Options(BaseModel):
    """What the search is asked, but for the boosted phrases."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: Annotated[
        str, Field(min_length=1, max_length=200, description="A model name from the settings.")
    ] = "demo"
    decoder: Annotated[Literal["greedy", "beam"], Field(description="Search over the model's output.")] = (
        "greedy"
    )
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


def queue_name(pool: str, worker: str | None = None) -> str:
    """The queue of a pool (`spool.cpu`), or of one worker of it by name (`spool.cpu.at.mini-3`)."""
    return f"spool.{pool}.at.{worker}" if worker else f"spool.{pool}"
