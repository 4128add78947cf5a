"""The schemas of the search."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from spool.domain.transcript import Share
from spool.schemas.common import AnswerModel


class MatchOut(AnswerModel):
    """Words that match: when they are spoken, the confidence of the least certain of them, and their
    characters in the hit's `text`. A match by an alternative has it as its `alternative`; the characters are
    then those of the transcript in its place."""

    start: float
    end: float
    confidence: Annotated[
        Share | None, Field(description="None for an alternative from an n-best list, which has none.")
    ]
    first_character: Annotated[int, Field(description="The first one is 0.")]
    last_character: Annotated[int, Field(description="The one after the last.")]
    alternative: Annotated[
        str | None, Field(description="The words that match, if the transcript has others in their place.")
    ]


class HitOut(AnswerModel):
    """A passage of a transcript with words that match."""

    job: str = Field(validation_alias="id")
    name: Annotated[str, Field(description="The recording's.")]
    project: str
    batch: str | None = Field(validation_alias="batch_id")
    custom_id: str | None
    recording: Annotated[
        str, Field(description="The same for all versions of a recording and for copies with the same bytes.")
    ]
    model: Annotated[str, Field(description="The model of the transcript.")]
    created_at: Annotated[datetime, Field(description="When the job was submitted.")]
    channel: int
    speaker: Annotated[str | None, Field(description="The speaker's label.")]
    speaker_name: Annotated[str | None, Field(description="The name that a person gave the speaker.")]
    start: Annotated[float, Field(description="When the first match begins, in seconds.")]
    text: Annotated[str, Field(description="The surrounding words, up to 50.")]
    matches: list[MatchOut]
    closed: Annotated[bool, Field(description="Whether something in it is closed to readers.")] = False
    url: Annotated[str, Field(description="The job's page at this time, below the server's address.")]
