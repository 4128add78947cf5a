"""What goes over the wire about batches; jobs are in `jobs`. Knows neither routes nor SQL."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from spool.domain.jobs import JobState
from spool.domain.manifest import Tags
from spool.schemas.common import Money, Name, Pool, Project, WorkerName, with_example
from spool.schemas.examples import batches as examples
from spool.schemas.jobs import Deadline, DeadlineOut, HeldOut, Priority, option_schema

BatchState = Literal["receiving", "running", "ended"]


class BatchUploadRequest(BaseModel):
    """Everything about a batch but its manifest; what a line says for itself wins."""

    model_config = with_example(examples.BATCH_UPLOAD_REQUEST, strict=True)

    name: Name | None = Field(None, description="For people; where it came from unless given.")
    project: Project | None = Field(
        None, description="Whom the cost is booked on; the key's own project, else `default`, unless given."
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="How to transcribe, for lines that do not say.",
        json_schema_extra=option_schema(),
    )
    tags: Tags = Field(default_factory=dict, description="Kept with every job, beside the line's own.")
    strict: bool = Field(False, description="Run nothing at all when one line is bad.")
    reuse: bool = Field(
        True,
        description="Take over transcripts of the same content, options and model instead of paying again.",
    )
    pool: Pool | None = Field(None, description="Which pool of workers; the server's default unless given.")
    worker: WorkerName | None = Field(None, description="Pin all jobs to one worker, by name.")
    priority: Priority = Field("normal", description="For lines that do not say: high, normal or low.")
    deadline: Deadline | None = None


class BatchRequest(BatchUploadRequest):
    """A batch that the server lists or reads itself."""

    model_config = with_example(examples.BATCH_REQUEST, strict=True)

    source: Annotated[str, Field(min_length=1, max_length=4096)] = Field(
        description="`s3://bucket/prefix/` or `file:///folder/` under a root that the server allows: every "
        "recording below it. One that ends in `.jsonl` or `.ndjson` is a manifest."
    )


class LinesOut(BaseModel):
    """What was read: lines of a manifest, or recordings found."""

    read: int | None = Field(description="Null until all was read.")
    accepted: int = Field(description="Jobs made.")
    bad: int = Field(description="Lines that make no job.")


class BadLineOut(BaseModel):
    """A line that makes no job."""

    line: int
    custom_id: str | None
    code: str
    message: str


class BatchTimesOut(BaseModel):
    """When the batch was handed in (UTC, the database's clock)."""

    created_at: datetime
    closed_at: datetime | None = Field(description="When all of it had been read.")
    cancelled_at: datetime | None
    updated_at: datetime


class BatchOut(BaseModel):
    """One batch, as lists show it."""

    model_config = with_example(examples.BATCH)

    id: str
    name: str
    project: str
    source: str = Field(description="Where it was listed from; `manifest` for one that was sent.")
    state: BatchState = Field(description="`receiving` while lines are read, `ended` when no job is open.")
    reuse: bool
    lines: LinesOut
    counts: dict[JobState, int] = Field(description="Jobs by state.")
    times: BatchTimesOut
    priority: Priority = "normal"
    deadline: DeadlineOut | None = None
    held: HeldOut | None = Field(None, description="Why its jobs wait, where a quota is used up.")


class BatchAudioOut(BaseModel):
    """Seconds of audio; `left_seconds` is null while nothing is known of it."""

    done_seconds: float
    left_seconds: float | None
    basis: str


class BatchSpeedOut(BaseModel):
    """Both over the last ten minutes; null when nothing was decoded in them."""

    rtfx_now: float | None = Field(description="Seconds of audio per second of engine.")
    pace: float | None = Field(description="Seconds of audio per second of wall time, all workers together.")


class BatchTimeOut(BaseModel):
    """How long the rest will take, and what that rests on."""

    left_seconds: float | None
    basis: str


class BatchCostOut(BaseModel):
    """So far, and expected for the whole batch."""

    billable: Money
    wasted: Money
    expected: Money | None
    currency: str
    basis: str


class BatchDetail(BatchOut):
    """One batch: how far it is, how fast, how long still, and for how much."""

    model_config = with_example(examples.BATCH_DETAIL)

    bad_lines: list[BadLineOut] = Field(description="The first bad lines; `lines.bad` counts all.")
    reused: int = Field(description="Jobs that took over an earlier transcript, for nothing.")
    audio: BatchAudioOut
    speed: BatchSpeedOut
    time: BatchTimeOut
    cost: BatchCostOut


class BatchPage(BaseModel):
    """A page of batches, newest first; `next_cursor` fetches the next one and is null on the last."""

    model_config = with_example(examples.BATCH_PAGE)

    items: list[BatchOut]
    next_cursor: str | None


class BatchRetried(BaseModel):
    """How many failed jobs were queued again."""

    model_config = with_example(examples.BATCH_RETRIED)

    retried: int


class ResultError(BaseModel):
    """Why there is no text."""

    code: str
    message: str


class BatchResult(BaseModel):
    """One line of a batch's results."""

    model_config = with_example(examples.RESULT)

    custom_id: str | None
    line: int | None
    job: str
    name: str
    source: str
    tags: dict[str, str]
    state: JobState
    audio_seconds: float | None
    reused_from: str | None
    text: str | None = None
    words: list[dict[str, Any]] | None = Field(None, description="With `include=words`.")
    error: ResultError | None = None
