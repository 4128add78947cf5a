"""The schemas of the review."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from spool.domain.transcript import Share
from spool.schemas.common import Project, with_example
from spool.schemas.examples import review as examples

Reason = Literal["confidence", "versions", "speech", "language"]


class DoubtsOut(BaseModel):
    """Why a passage is doubtful, each from 0 to 1."""

    confidence: Annotated[Share, Field(description="One minus the mean of the words' confidence.")]
    versions: Annotated[Share, Field(description="The share of words that differ in the previous version.")]
    speech: Annotated[
        Share,
        Field(
            description="The share of words without detected speech; for speech without words "
            "its length over ten seconds."
        ),
    ]
    language: Annotated[
        Share, Field(description="Where the language changes, the probability of other languages.")
    ]


class ReviewPassageOut(BaseModel):
    """A stretch of a transcript as it was recognised."""

    model_config = with_example(examples.PASSAGE)

    job: str
    name: Annotated[str, Field(description="The recording's.")]
    project: str
    model: str
    passage: Annotated[int, Field(description="Its number in the job, from 0.")]
    channel: int
    start: float
    end: float
    first_word: int
    last_word: Annotated[
        int, Field(description="Included; for speech without words the one before `first_word`.")
    ]
    text: Annotated[str, Field(description="As recognised; empty for speech without words.")]
    doubt: Annotated[Share, Field(description="All doubts together.")]
    doubts: DoubtsOut
    checked_by: str | None
    checked_at: datetime | None
    url: Annotated[str, Field(description="The job's page at this time, below the server's address.")]


class ReviewPage(BaseModel):
    """A page of passages."""

    model_config = with_example(examples.REVIEW_PAGE)

    items: list[ReviewPassageOut]
    next_cursor: str | None


class ReviewRecordingOut(BaseModel):
    """A recording with the sums of its passages."""

    model_config = with_example(examples.RECORDING)

    job: Annotated[str, Field(description="The newest job that transcribed it.")]
    name: str
    project: str
    model: str
    passages: int
    unchecked: Annotated[int, Field(description="Passages neither checked nor corrected.")]
    doubt: Annotated[
        Share,
        Field(description="The mean of the passages' doubt by their lengths, 0 for those that were checked."),
    ]
    doubts: Annotated[DoubtsOut, Field(description="The same mean for each reason.")]
    url: Annotated[str, Field(description="Its passages on the page, below the server's address.")]


class ReviewRecordingPage(BaseModel):
    """A page of recordings."""

    model_config = with_example(examples.RECORDING_PAGE)

    items: list[ReviewRecordingOut]
    next_cursor: str | None


class CheckRequest(BaseModel):
    """Who checked a passage."""

    model_config = with_example(examples.CHECK_REQUEST, strict=True)

    checked: bool = Field(default=True, description="False removes the mark.")
    author: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="Who checked it. Default: the key's id."
    )


Margin = Annotated[
    float,
    Field(ge=0.001, le=0.5, description="How far the estimated rate may be off: 0.02 is two points."),
]


class SizeOut(BaseModel):
    """How many passages to listen to."""

    model_config = with_example(examples.SIZE)

    population: Annotated[int, Field(description="Passages with words in all.")]
    words: Annotated[int, Field(description="Words in them.")]
    passages: Annotated[
        int, Field(description="How many passages are needed to know the rate within ± `margin`.")
    ]


class SampleRequest(BaseModel):
    """What to draw passages from, and how many."""

    model_config = with_example(examples.SAMPLE_REQUEST, strict=True)

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


class EstimateOut(BaseModel):
    """The word error rate of the checked passages."""

    model_config = with_example(examples.ESTIMATE)

    checked: Annotated[int, Field(description="Passages.")]
    words: Annotated[int, Field(description="Words that they should have.")]
    errors: Annotated[int, Field(description="Substituted, missing and superfluous words in them.")]
    rate: Annotated[float | None, Field(description="Errors by words; null before any passage is checked.")]
    low: Annotated[
        float | None, Field(description="Lower end of the 95 % interval; null below two passages.")
    ]
    high: Annotated[float | None, Field(description="Its upper end.")]


class SampleOut(BaseModel):
    """A random sample of passages, and its result so far."""

    model_config = with_example(examples.SAMPLE)

    id: str
    project: str
    batch: str | None
    model: str | None
    population: int
    margin: float
    seed: int
    size: int
    gone: Annotated[int, Field(description="Its passages whose transcript was deleted.")]
    created_at: datetime
    created_by: str
    estimate: EstimateOut
    by_model: dict[str, EstimateOut]


class SamplePage(BaseModel):
    """A page of samples, newest first."""

    model_config = with_example(examples.SAMPLE_PAGE)

    items: list[SampleOut]
    next_cursor: str | None
