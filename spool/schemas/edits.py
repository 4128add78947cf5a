"""The schemas of corrections."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from spool.domain.archive.spreading import FoundBy
from spool.domain.transcript import Share, SpeakerLabel
from spool.schemas.common import AnswerModel, RequestModel

WordNumber = Annotated[int, Field(ge=0, lt=2**31)]


class EditRequest(RequestModel):
    """A correction of some words."""

    first_word: WordNumber = Field(
        description="The first word, counted from 0 in the transcript as it was recognised (`original=true`)."
    )
    last_word: WordNumber = Field(description="The last word, included.")
    text: Annotated[str, Field(max_length=20_000)] | None = Field(
        default=None,
        description="The correct text; empty deletes the words. Without it they stay, and only the speaker "
        "changes.",
    )
    speaker: SpeakerLabel | None = Field(default=None, description="The label of their speaker.")
    seen: Annotated[int, Field(ge=0, lt=2**31)] = Field(
        default=0,
        description="`X-Spool-Revision` of the transcript that the author saw: if these words were changed "
        "since, the answer is 409 `edited`, with that edit.",
    )
    author: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="Who makes the correction. Default: the key's id."
    )


class UndoRequest(RequestModel):
    """Who undoes an edit."""

    author: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="Who undoes it. Default: the key's id."
    )


class EditOut(AnswerModel):
    """One event in the history of a transcript."""

    revision: int
    first_word: int
    last_word: int
    text: str | None = Field(description="Null if only the speaker changed, and for an undo.")
    speaker: SpeakerLabel | None
    undoes: int | None = Field(description="The revision that this one undid.")
    stands: bool = Field(description="Whether the transcript shows it: not undone, and not replaced.")
    author: str
    created_at: datetime
    from_job: str | None = Field(description="The job of the correction that this one was spread from.")
    from_revision: int | None


class SpreadPlace(AnswerModel):
    """Another place where a corrected name was written otherwise: words as they were recognised."""

    job: str
    name: str = Field(description="The recording's.")
    model: str
    seen: int = Field(description="The latest revision of its transcript.")
    first_word: int
    last_word: int
    start: float
    end: float
    written: str = Field(description="What is written there.")
    text: str = Field(description="What a correction would write, with the punctuation of what is there.")
    before: str = Field(description="The words before it.")
    after: str
    found_by: list[FoundBy] = Field(
        description="`words`: the same words as were corrected. `alternative`: the name is in what else was "
        "recognised. `spelling`: similar letters. `sound`: it sounds so, in jobs with a witness."
    )
    certainty: Share | None = Field(description="How sure it is by its sound; null if not found by it.")
    clip: str = Field(description="The address of its clip, below the server's.")
    audio: str = Field(description="The address of its sound.")


class SpreadOut(AnswerModel):
    """The places that a correction can spread to, the surest first."""

    names: list[str] = Field(description="The names that the correction wrote in place of other words.")
    items: list[SpreadPlace]
    hours: float = Field(description="Hours that were searched by sound.")
    without_sounds: int = Field(description="Finished jobs that cannot be searched by sound.")


class WantedPlace(RequestModel):
    """A place to correct: as a `SpreadPlace` has it, perhaps with another text."""

    job: str = Field(min_length=1, max_length=64)
    first_word: WordNumber
    last_word: WordNumber
    written: Annotated[str, Field(min_length=1, max_length=2000)]
    text: Annotated[str, Field(min_length=1, max_length=2000)]
    seen: Annotated[int, Field(ge=0, lt=2**31)] = 0


class SpreadRequest(RequestModel):
    """The places that a correction is to spread to."""

    places: Annotated[list[WantedPlace], Field(max_length=200)]
    author: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="Who spreads it. Default: the key's id."
    )


class SpreadEdit(EditOut):
    """A correction of one of the jobs."""

    job: str


class RefusedPlace(AnswerModel):
    """Words that stay as they are."""

    job: str
    first_word: int
    last_word: int
    reason: str


class SpreadDone(AnswerModel):
    """What was corrected, or undone, and what was not: the words of each job are changed together or not at
    all."""

    items: list[SpreadEdit]
    refused: list[RefusedPlace]
