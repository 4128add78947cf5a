"""The schemas of watched folders and buckets."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, RootModel

from spool.domain.manifest import Name
from spool.schemas.common import AnswerModel, RequestModel
from spool.schemas.jobs import SubmissionRequest, add_options
from spool.schemas.outputs import Connection, OutputOut

ItemState = Literal["settling", "taken", "skipped", "refused"]


class SourceRequest(SubmissionRequest):
    """A folder or prefix to watch, and the options of its jobs."""

    source: Annotated[str, Field(min_length=1, max_length=4096)] = Field(
        description="`s3://bucket/prefix/`, or `file:///folder/` under an allowed folder."
    )
    name: Name | None = Field(None, description="A display name. Default: the address.")
    every_seconds: Annotated[float, Field(ge=10, le=7 * 86400, allow_inf_nan=False)] = Field(
        300, description="How often it is listed."
    )
    settle_seconds: Annotated[float, Field(ge=0, le=86400, allow_inf_nan=False)] | None = Field(
        None,
        description="A file is submitted once it has been unchanged for so long. Default: 30 for a folder; 0 "
        "for a bucket, where objects appear whole.",
    )
    reuse: bool = Field(
        True,
        description="Reuse existing transcripts of the same content, options and model, free of charge.",
    )
    connection: Connection = None

    def for_jobs(self) -> dict[str, Any]:
        """The options of its jobs, in the form of a batch's request."""
        own = {"source", "name", "project", "every_seconds", "settle_seconds"}
        return self.model_dump(mode="json", exclude=own, exclude_none=True)


class SourceChangeRequest(RequestModel):
    """What to change; omitted fields stay as they are."""

    name: Name | None = Field(None, description="Its name, for display.")
    every_seconds: Annotated[float, Field(ge=10, le=7 * 86400, allow_inf_nan=False)] | None = Field(
        None, description="How often it is listed."
    )
    settle_seconds: Annotated[float, Field(ge=0, le=86400, allow_inf_nan=False)] | None = Field(
        None, description="How long a file must have been unchanged."
    )
    paused: bool | None = Field(
        None, description="True: stop listing it. False: list it again, starting now."
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Options that replace those of its future jobs; the others are kept if they apply.",
        json_schema_extra=add_options,
    )


class SourceCounts(AnswerModel):
    """Versions of files, by state."""

    settling: int = Field(0, description="Files that may still be growing.")
    taken: int = Field(0, description="Submitted.")
    skipped: int = Field(0, description="No recordings, or hidden.")
    refused: int = Field(0, description="Recordings for which no job could be created.")


class WatchedSourceOut(AnswerModel):
    """A watched folder or prefix."""

    id: str
    name: str
    project: str
    source: str = Field(validation_alias="address")
    state: Literal["watching", "failing", "paused"]
    error: str | None = Field(description="Why it cannot be listed; it is tried again.")
    failing_since: datetime | None
    every_seconds: float
    settle_seconds: float
    options: dict[str, Any]
    tags: dict[str, str]
    output: OutputOut | None
    connection: str | None = Field(None, description="The connection that reads it.")
    counts: SourceCounts
    files: int | None = Field(description="Files in the last listing; null before the first.")
    created_at: datetime
    paused_at: datetime | None
    listed_at: datetime | None = Field(description="When a listing was last completed.")
    next_listing_at: datetime | None = Field(description="Null while it is paused.")


class SourceItemOut(AnswerModel):
    """One version of a file."""

    path: str = Field(
        validation_alias="place", description="Below the source's address; a very long path ends in a digest."
    )
    version: str = Field(description="An object's ETag, or a file's size and time of change.")
    state: ItemState
    reason: str | None = Field(description="Why it was not submitted.")
    job: str | None = Field(validation_alias="job_id")
    seen_at: datetime = Field(validation_alias="created_at")


class S3Notification(RootModel[dict[str, Any] | list[dict[str, Any]]]):
    """An event notification of S3 or MinIO, plain or in an envelope of SNS, SQS or EventBridge; other fields
    are ignored."""


class Marked(AnswerModel):
    """How many files will be looked at."""

    marked: int
    to_confirm: list[str] = Field(
        description="SNS topics whose subscriptions wait for confirmation; the server's log has the "
        "command. Spool never confirms one itself."
    )
