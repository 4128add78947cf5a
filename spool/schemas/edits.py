"""The schemas of corrections."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from spool.domain.transcript import SpeakerLabel
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
