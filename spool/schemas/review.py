"""The schemas of the review. Routes and SQL are for others."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from spool.domain.transcript import Share
from spool.schemas.common import with_example
from spool.schemas.examples import review as examples

Reason = Literal["confidence", "versions", "speech", "language"]


class DoubtsOut(BaseModel):
    """Why a passage is doubtful, each from 0 to 1."""

    confidence: Annotated[Share, Field(description="One less the mean of the words' confidence.")]
    versions: Annotated[Share, Field(description="The share of words that the version before has otherwise.")]
    speech: Annotated[
        Share,
        Field(
            description="The share of words where the speech detector heard nobody; of speech without words "
            "its length over ten seconds."
        ),
    ]
    language: Annotated[
        Share, Field(description="Where the language changes, what the model leaves to other languages.")
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
        int, Field(description="Included; of speech without words the one before `first_word`.")
    ]
    text: Annotated[str, Field(description="As recognised; empty where speech has no words.")]
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


class CheckRequest(BaseModel):
    """Who listened to a passage."""

    model_config = with_example(examples.CHECK_REQUEST, strict=True)

    checked: bool = Field(default=True, description="False takes the mark back.")
    author: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="Who checked it; the key's id unless given."
    )
