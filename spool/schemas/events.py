"""The schemas of events: the `data` of a stream's messages and the bodies that webhooks send."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from spool.domain.jobs import JobState

_CLOSED = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class EventError(BaseModel):
    """Why a job failed."""

    model_config = _CLOSED

    code: str | None = Field(description="Stable; see the list of error codes.")
    message: str


class JobEvent(BaseModel):
    """`job.queued`, `job.started`, `job.done`, `job.failed`, `job.cancelled`, `job.exported` or
    `transcript.corrected`."""

    model_config = _CLOSED

    project: str
    job: str
    batch: str | None
    custom_id: str | None
    at: datetime
    state: JobState
    name: str | None = None
    attempt: int | None = None
    audio_seconds: float | None = Field(None, description="Of `job.done`, like the following fields.")
    words: int | None = None
    coverage: float | None = None
    complete: bool | None = Field(
        None, description="Whether the recording is as long as its header states; null if it states none."
    )
    reused_from: str | None = None
    speakers: int | None = Field(None, description="How many, if speakers were told apart.")
    warnings: list[str] | None = Field(None, description="The job's first three warnings, if it has any.")
    error: EventError | None = Field(None, description="Of `job.failed`.")
    files: dict[str, int] | None = Field(
        None, description="Of `job.exported`: files of its output by state (`written`, `failed`, `replaced`)."
    )
    revision: int | None = Field(None, description="Of `transcript.corrected`, like the following fields.")
    undoes: int | None = Field(None, description="The revision that was undone; null for an edit.")
    author: str | None = None


class BatchEvent(BaseModel):
    """`batch.created`, `batch.received`, `batch.retried`, `batch.cancelled` or `batch.done`."""

    model_config = _CLOSED

    project: str
    job: None
    batch: str
    custom_id: None
    at: datetime
    name: str | None = Field(None, description="Of `batch.created`.")
    lines: int | None = Field(None, description="Of `batch.received`, like the following fields.")
    accepted: int | None = None
    bad: int | None = None
    skipped: int | None = None
    unchanged: int | None = None
    retried: int | None = Field(None, description="Of `batch.retried`: jobs queued again.")
    cancelled: int | None = Field(None, description="Of `batch.cancelled`: jobs that were waiting.")
    asked_to_stop: int | None = Field(None, description="Of `batch.cancelled`: jobs that were running.")
    jobs: dict[JobState, int] | None = Field(None, description="Of `batch.done`: jobs by state.")


class JobProgress(BaseModel):
    """`job.progress`: seconds of audio."""

    model_config = _CLOSED

    state: JobState
    done_seconds: float | None
    audio_seconds: float | None


class BatchProgress(BaseModel):
    """`batch.progress`: jobs by state."""

    model_config = _CLOSED

    jobs: dict[JobState, int]


EVENTS: tuple[type[BaseModel], ...] = (JobEvent, BatchEvent, JobProgress, BatchProgress)
"""The possible `data` of a stream, besides the empty object of its `end`."""
