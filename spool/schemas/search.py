"""The schemas of the search."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from spool.domain.transcript import Share
from spool.schemas.common import AnswerModel, Page


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


class SoundOut(AnswerModel):
    """How much a place sounds like what was searched for, whatever is written there."""

    start: float
    end: float
    score: Annotated[
        float, Field(description="Log-likelihood ratio a phone against what was heard, at most 0.")
    ]
    certainty: Annotated[
        Share, Field(description="How sure it is that this was said, as measured on other recordings.")
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
    matches: Annotated[
        list[MatchOut],
        Field(description="Of a hit by sound, the words that are written there: maybe none, or others."),
    ]
    sound: Annotated[SoundOut | None, Field(description="Of a hit by sound.")] = None
    closed: Annotated[bool, Field(description="Whether something in it is closed to readers.")] = False
    url: Annotated[str, Field(description="The job's page at this time, below the server's address.")]


class SoundsOut(AnswerModel):
    """What a search by sound looked for, and in how much."""

    phones: Annotated[list[str], Field(description="Each way to say it, as ARPABET.")]
    source: Annotated[
        Literal["dictionary", "letters", "given"],
        Field(description="`letters`: some words are in no dictionary, and were read letter by letter."),
    ]
    hours: Annotated[float, Field(description="Hours of sound that were searched.")]
    without_sounds: Annotated[
        int,
        Field(description="Finished jobs that cannot be searched by sound: without a witness, or abstained."),
    ]
    damaged: Annotated[
        list[str], Field(description="Jobs with a damaged block, which was left out of the search.")
    ]


class FoundOut(Page[HitOut]):
    """A page of hits. With `sound` or `spelling` it is the only one, best hits first."""

    sounds: Annotated[SoundsOut | None, Field(description="Of a search by sound.")] = None
