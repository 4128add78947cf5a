"""The schemas of closures: what of a recording is closed to readers."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from spool.domain.transcript import SpeakerLabel
from spool.schemas.common import AnswerModel, Moment, RecordingTime, RequestModel

ClosedKind = Literal["whole", "range", "speaker"]


class ClosureRequest(RequestModel):
    """What to close, and until when."""

    kind: ClosedKind = Field(description="The whole recording, a range of time, or a speaker.")
    start: RecordingTime | None = Field(None, description="Where the range begins, in seconds.")
    end: RecordingTime | None = Field(None, description="Where the range ends, in seconds.")
    speaker: SpeakerLabel | None = Field(None, description="The label of the speaker.")
    until: Annotated[Moment | None, Field(strict=False)] = Field(
        None, description="When it opens by itself (ISO 8601; UTC without a zone). Default: never."
    )
    reason: Annotated[str, Field(max_length=1000)] = Field("", description="Why, for those who may open it.")


class ClosureOut(AnswerModel):
    """Something that is closed to readers, or was."""

    id: str
    job: str = Field(validation_alias="job_id", description="The job that it was made on.")
    recording: str = Field(description="The first job on the recording, all of whose versions are closed.")
    kind: ClosedKind
    start: float | None = Field(validation_alias="start_seconds", description="Of a range, in seconds.")
    end: float | None = Field(validation_alias="end_seconds")
    speaker: str | None = Field(description="The label of a closed speaker.")
    until: datetime | None = Field(description="When it opens by itself; null: never.")
    reason: str | None = Field(description="Null for keys that may not open it.")
    created_by: str = Field(description="Who closed it: a key's id, `operator` or `anybody`.")
    created_at: datetime
    lifted_at: datetime | None = Field(description="When it was opened again; null while it is closed.")
    lifted_by: str | None = Field(description="Who opened it, or `date`.")


class OpeningOut(AnswerModel):
    """Somebody with the right was given something closed."""

    job: str = Field(validation_alias="job_id")
    by: str = Field(description="A key's id, `operator` or `anybody`.")
    way: str = Field(description="The route.")
    at: datetime


class PrivateDecision(RequestModel):
    """What a person decided about a suggestion."""

    kind: Literal["name", "phone", "address"]
    text: Annotated[str, Field(min_length=1, max_length=1000, description="The words, as suggested.")]
    private: bool = Field(False, description="True: suggest these words again.")


class PrivateOut(AnswerModel):
    """Words that may name somebody: for a person to decide about."""

    kind: Literal["name", "phone", "address"]
    text: str
    start: float
    end: float
