"""The schemas of the review."""

from datetime import datetime
from typing import Annotated

from pydantic import AliasPath, Field

from spool.domain.transcript import Share
from spool.schemas.common import ROUNDED, AnswerModel, Project, RequestModel

RoundedShare = Annotated[Share, ROUNDED]
Rounded = Annotated[float, ROUNDED]


class DoubtsOut(AnswerModel):
    """Why a passage is doubtful, each from 0 to 1."""

    confidence: Annotated[RoundedShare, Field(description="One minus the mean of the words' confidence.")]
    versions: Annotated[
        RoundedShare, Field(description="The share of words that differ in the previous version.")
    ]
    speech: Annotated[
        RoundedShare,
        Field(
            description="The share of words without detected speech; for speech without words "
            "its length over ten seconds."
        ),
    ]
    evidence: Annotated[
        RoundedShare, Field(description="The share of words that the witness found no evidence for.")
    ]
    language: Annotated[
        RoundedShare, Field(description="Where the language changes, the probability of other languages.")
    ]


class ReviewPassageOut(AnswerModel):
    """A stretch of a transcript as it was recognised."""

    job: str = Field(validation_alias=AliasPath("job", "id"))
    name: str = Field(validation_alias=AliasPath("job", "name"), description="The recording's.")
    project: str = Field(validation_alias=AliasPath("job", "project"))
    model: str = Field(validation_alias=AliasPath("job", "options", "model"))
    passage: int = Field(
        validation_alias=AliasPath("passage", "number"), description="Its number in the job, from 0."
    )
    channel: int = Field(validation_alias=AliasPath("passage", "channel"))
    start: float = Field(validation_alias=AliasPath("passage", "start_seconds"))
    end: float = Field(validation_alias=AliasPath("passage", "end_seconds"))
    first_word: int = Field(validation_alias=AliasPath("passage", "first_word"))
    last_word: int = Field(
        validation_alias=AliasPath("passage", "last_word"),
        description="Included; for speech without words the one before `first_word`.",
    )
    text: str = Field(
        validation_alias=AliasPath("passage", "text"),
        description="As recognised; empty for speech without words.",
    )
    doubt: Share = Field(
        validation_alias=AliasPath("passage", "doubts", "total"), description="All doubts together."
    )
    doubts: DoubtsOut = Field(validation_alias=AliasPath("passage", "doubts"))
    checked_by: str | None
    checked_at: datetime | None
    url: Annotated[str, Field(description="The job's page at this time, below the server's address.")]


class ReviewRecordingOut(AnswerModel):
    """A recording with the sums of its passages."""

    job: str = Field(
        validation_alias=AliasPath("job", "id"), description="The newest job that transcribed it."
    )
    name: str = Field(validation_alias=AliasPath("job", "name"))
    project: str = Field(validation_alias=AliasPath("job", "project"))
    model: str = Field(validation_alias=AliasPath("job", "options", "model"))
    passages: int
    unchecked: Annotated[int, Field(description="Passages neither checked nor corrected.")]
    doubt: Annotated[
        RoundedShare,
        Field(description="The mean of the passages' doubt by their lengths, 0 for those that were checked."),
    ]
    doubts: Annotated[DoubtsOut, Field(description="The same mean for each reason.")]
    url: Annotated[str, Field(description="Its passages on the page, below the server's address.")]


class CheckRequest(RequestModel):
    """Who checked a passage."""

    checked: bool = Field(default=True, description="False removes the mark.")
    author: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="Who checked it. Default: the key's id."
    )


Margin = Annotated[
    float,
    Field(ge=0.001, le=0.5, description="How far the estimated rate may be off: 0.02 is two points."),
]


class SizeOut(AnswerModel):
    """How many passages to listen to."""

    population: Annotated[int, Field(description="Passages with words in all.")]
    words: Annotated[int, Field(description="Words in them.")]
    passages: Annotated[
        int, Field(description="How many passages are needed to know the rate within ± `margin`.")
    ]


class SampleRequest(RequestModel):
    """What to draw passages from, and how many."""

    project: Project | None = Field(default=None, description="Default: the key's project.")
    batch: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="Only from jobs of this batch."
    )
    model: Annotated[str, Field(max_length=200)] | None = Field(
        default=None, description="Only from jobs of this model."
    )
    margin: Margin = 0.02
    passages: Annotated[int, Field(ge=2, le=10_000)] | None = Field(
        default=None, description="How many to draw. Default: as many as `margin` requires."
    )
    seed: Annotated[int, Field(ge=0, lt=2**53)] | None = Field(
        default=None,
        description="The same seed draws the same sample from the same passages. Default: random.",
    )
    author: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="Who draws it. Default: the key's id."
    )


class EstimateOut(AnswerModel):
    """The word error rate of the checked passages."""

    checked: Annotated[int, Field(description="Passages.")]
    words: Annotated[int, Field(description="Words that they should have.")]
    errors: Annotated[int, Field(description="Substituted, missing and superfluous words in them.")]
    rate: Annotated[Rounded | None, Field(description="Errors by words; null before any passage is checked.")]
    low: Annotated[
        Rounded | None, Field(description="Lower end of the 95 % interval; null below two passages.")
    ]
    high: Annotated[Rounded | None, Field(description="Its upper end.")]


class SampleOut(AnswerModel):
    """A random sample of passages, and its result so far."""

    id: str = Field(validation_alias=AliasPath("sample", "id"))
    project: str = Field(validation_alias=AliasPath("sample", "project"))
    batch: str | None = Field(validation_alias=AliasPath("sample", "batch"))
    model: str | None = Field(validation_alias=AliasPath("sample", "model"))
    population: int = Field(validation_alias=AliasPath("sample", "population"))
    margin: float = Field(validation_alias=AliasPath("sample", "margin"))
    seed: int = Field(validation_alias=AliasPath("sample", "seed"))
    size: int = Field(validation_alias=AliasPath("sample", "size"))
    gone: Annotated[int, Field(description="Its passages whose transcript was deleted.")]
    created_at: datetime = Field(validation_alias=AliasPath("sample", "created_at"))
    created_by: str = Field(validation_alias=AliasPath("sample", "created_by"))
    estimate: EstimateOut = Field(validation_alias="total")
    by_model: dict[str, EstimateOut]
