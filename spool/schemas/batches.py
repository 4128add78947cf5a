"""The schemas of batches. Jobs are in `spool.schemas.jobs`."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from spool.domain.jobs import JobState
from spool.domain.manifest import Name
from spool.schemas.common import AnswerModel, Money
from spool.schemas.jobs import Deadline, DeadlineOut, HeldOut, Priority, SubmissionRequest
from spool.schemas.outputs import Connection

BatchState = Literal["receiving", "running", "ended"]


class BatchUploadRequest(SubmissionRequest):
    """Everything about a batch except its manifest; a line's own name, options and priority take
    precedence, and its tags are added."""

    name: Name | None = Field(None, description="A display name. Default: where it came from.")
    strict: bool = Field(False, description="Create no job if any line is bad.")
    reuse: bool = Field(
        True,
        description="Reuse existing transcripts of the same content, options and model, free of charge.",
    )
    deadline: Deadline | None = None
    connection: Connection = None


class BatchRequest(BatchUploadRequest):
    """A batch that the server lists or reads itself."""

    source: Annotated[str, Field(min_length=1, max_length=4096)] = Field(
        description="`s3://bucket/prefix/`, or `file:///folder/` under an allowed folder: every "
        "recording below it. An address that ends in `.jsonl` or `.ndjson` is a manifest."
    )


class LinesOut(AnswerModel):
    """Lines of the manifest, or recordings in the listing."""

    read: int | None = Field(validation_alias="lines", description="Lines read; null until all are.")
    accepted: int = Field(description="Jobs created.")
    bad: int = Field(description="Lines that create no job.")
    unchanged: int = Field(
        0, description="Lines whose recordings were submitted before with the same options (`deduplicate`)."
    )
    skipped: int = Field(0, description="Files of the folder or prefix that are hidden or not recordings.")


class BadLineOut(AnswerModel):
    """A line that creates no job."""

    line: int
    custom_id: str | None
    code: str
    message: str


class SkippedFileOut(AnswerModel):
    """A file of the folder or prefix that creates no job."""

    path: str = Field(description="Below the address that was listed.")
    reason: str


class BatchTimesOut(AnswerModel):
    """When the batch was submitted (UTC, by the database's clock)."""

    created_at: datetime
    closed_at: datetime | None = Field(description="When the whole submission had been read.")
    cancelled_at: datetime | None
    updated_at: datetime


class BatchOut(AnswerModel):
    """One batch, as in lists."""

    id: str
    name: str
    project: str
    source: str = Field(description="The address that was listed; `manifest` for an uploaded one.")
    state: BatchState = Field(description="`receiving` while lines are read, `ended` when every job has.")
    reuse: bool
    lines: LinesOut
    counts: dict[JobState, int] = Field(description="Jobs by state.")
    times: BatchTimesOut
    priority: Priority = "normal"
    deadline: DeadlineOut | None = None
    held: HeldOut | None = Field(None, description="Why its jobs are held, if a quota is exhausted.")


class BatchAudioOut(AnswerModel):
    """Seconds of audio; `left_seconds` is null while unknown."""

    done_seconds: float
    left_seconds: float | None = Field(validation_alias="audio_left_seconds")
    basis: str = Field(validation_alias="audio_basis")


class BatchSpeedOut(AnswerModel):
    """Throughput over the last ten minutes; null if nothing was decoded."""

    rtfx_now: float | None = Field(description="Seconds of audio per second of engine.")
    pace: float | None = Field(description="Seconds of audio per second of wall time, all workers together.")


class BatchTimeOut(AnswerModel):
    """How long the rest will take, and how that was estimated."""

    left_seconds: float | None = Field(validation_alias="time_left_seconds")
    basis: str = Field(validation_alias="time_basis")


class BatchCostOut(AnswerModel):
    """Cost so far, and expected for the whole batch."""

    billable: Money
    wasted: Money
    expected: Money | None
    currency: str
    basis: str


class BatchDetail(BatchOut):
    """One batch: progress, throughput, time left and cost."""

    bad_lines: list[BadLineOut] = Field(description="The first bad lines; `lines.bad` counts all of them.")
    skipped_files: list[SkippedFileOut] = Field(
        default_factory=list,
        description="The first files that were skipped, and why; `lines.skipped` counts all of them.",
    )
    waiting_for: list[str] = Field(
        default_factory=list, description="What queued jobs are waiting for that no worker can take now."
    )
    reused: int = Field(description="Jobs that reused an existing transcript, free of charge.")
    incomplete: int = Field(
        0, description="Jobs that are done and whose recording was cut off (`complete: false`)."
    )
    audio: BatchAudioOut
    speed: BatchSpeedOut
    time: BatchTimeOut
    cost: BatchCostOut


class BatchRetried(AnswerModel):
    """How many failed jobs were queued again."""

    retried: int


class ResultError(AnswerModel):
    """Why there is no text."""

    code: str
    message: str


class BatchResult(AnswerModel):
    """One line of a batch's results."""

    custom_id: str | None
    line: int | None
    job: str
    name: str
    source: str
    tags: dict[str, str]
    state: JobState
    audio_seconds: float | None
    complete: bool | None = Field(
        None, description="False: the recording was cut off. Null: the file does not state its length."
    )
    expected_seconds: float | None = Field(None, description="The length that the recording's header states.")
    missing_seconds: float | None = Field(None, description="How much of it is missing, if known.")
    reused_from: str | None
    text: str | None = None
    words: list[dict[str, Any]] | None = Field(None, description="With `include=words`.")
    error: ResultError | None = None
