"""How to transcribe, as the schema of a request shows it.

What goes over the wire about who goes first: classes, deadlines, and why jobs are held.

What goes over the wire: the shapes of requests and answers, each with an example for the OpenAPI page.

Knows the ground's records and how they look from outside (money as decimal text, times in UTC). Knows neither
routes nor SQL.

The route of a job's boosted phrases, which its row names by their digest alone.

The routes of recordings: a link for a player, and the recording's bytes, whole or in part.

What lies in the object store, in a bucket or under an allowed folder is passed on; a web address is not
fetched for anybody. A recording is sent as sound or as nothing a browser would run.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from spool.domain.jobs import JobState
from spool.domain.manifest import Tags
from spool.domain.options import AskedOptions, JobOptions
from spool.domain.priority import PriorityName
from spool.domain.quotas import HeldBy
from spool.schemas.common import Money, Name, Pool, Project, WorkerName, with_example
from spool.schemas.examples import jobs


def option_schema() -> dict[str, Any]:
    """The options as the OpenAPI page shows them in a request: nothing in it points elsewhere."""
    schema = AskedOptions.model_json_schema()
    parts = schema.get("$defs", {})

    def whole(node: Any) -> Any:  # noqa: ANN401 - JSON
        if isinstance(node, list):
            return [whole(each) for each in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            told = {key: value for key, value in node.items() if key != "$ref"}
            return whole(parts[node["$ref"].rpartition("/")[2]]) | whole(told)
        return {key: whole(value) for key, value in node.items()}

    return {"properties": whole(schema["properties"])}


def _moment(value: object) -> object:
    """A time as it is written; one without a zone is meant in UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise ValueError("must be a time such as 2026-11-20T18:00:00Z") from None
    if not isinstance(value, datetime):
        raise ValueError("must be a time such as 2026-11-20T18:00:00Z")
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        raise ValueError("lies outside the calendar") from None


Priority = Annotated[
    PriorityName,
    Field(description="Who goes first among the project's own jobs: high, then normal, then low."),
]
Deadline = Annotated[
    datetime,
    BeforeValidator(_moment),
    Field(
        description="When it should be done (ISO 8601). Within a priority the earliest deadline that can "
        "still be made goes first, before what has none."
    ),
]


class HeldOut(BaseModel):
    """Why jobs wait although workers may be free; they lose nothing by it."""

    by: HeldBy = Field(description="The quota of the project that is used up.")
    reason: str
    until: datetime | None = Field(description="When they go on; null where that depends on other jobs.")


class DeadlineOut(BaseModel):
    """A batch's deadline, and what the last reckoning says of it."""

    at: datetime
    state: Literal["unknown", "on_time", "late", "passed", "ended"] = Field(
        description="`late`: it cannot be made any more, by the measured rate, and moves nothing ahead."
    )
    expected_at: datetime | None = Field(description="When the batch will be done; null while unknown.")
    basis: str


class UploadRequest(BaseModel):
    """The `request` part of an upload: everything about the job but its source."""

    model_config = with_example(jobs.UPLOAD_REQUEST, strict=True)

    name: Name | None = Field(None, description="For people; the source's file name unless given.")
    project: Project | None = Field(
        None, description="Whom the cost is booked on; the key's own project, else `default`, unless given."
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="How to transcribe; what is not given has the server's default.",
        json_schema_extra=option_schema(),
    )
    pool: Pool | None = Field(None, description="Which pool of workers; the server's default unless given.")
    worker: WorkerName | None = Field(None, description="Pin the job to one worker, by name.")
    tags: Tags = Field(default_factory=dict)
    reuse: bool = Field(
        False, description="Take over a transcript of the same content, options and model instead of paying."
    )
    priority: Priority = "normal"
    deadline: Deadline | None = None


class JobRequest(UploadRequest):
    """A job whose recording the workers fetch themselves."""

    model_config = with_example(jobs.JOB_REQUEST, strict=True)

    source: Annotated[str, Field(min_length=1, max_length=4096)] = Field(
        description="`https://…`, `s3://bucket/key`, or `file://…` under a root that the server allows.",
        json_schema_extra={"pattern": "^([Hh][Tt][Tt][Pp][Ss]|[Ss]3|[Ff][Ii][Ll][Ee])://."},
    )


class SourceOut(BaseModel):
    """Where the recording is."""

    kind: Literal["upload", "file", "s3", "https"]
    uri: str
    size: int | None = Field(description="Bytes, when known.")


class ProgressOut(BaseModel):
    """How far the job is, in seconds of audio."""

    audio_seconds: float | None = Field(description="Length of the recording; null until it was read.")
    done_seconds: float
    fraction: float | None = Field(description="0 to 1; null until the length is known.")


class TimesOut(BaseModel):
    """When the job went through its states (UTC, the database's clock)."""

    created_at: datetime
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime


class JobErrorOut(BaseModel):
    """Why the job failed; `code` is stable."""

    code: str
    message: str


class CostOut(BaseModel):
    """What the job cost so far. `billable` is work that counts, `wasted` what a lost attempt used up."""

    audio_seconds: float
    engine_seconds: float
    rtfx: float | None = Field(description="Audio seconds per engine second; null before any work.")
    billable: Money
    wasted: Money
    currency: str


class DeletedOut(BaseModel):
    """What of a job was deleted on purpose, and when; its row and its costs stay."""

    source: datetime | None = Field(description="Its uploaded recording.")
    transcript: datetime | None = Field(description="Every word of it, in every form.")


class JobOut(BaseModel):
    """One job, as lists show it."""

    model_config = with_example(jobs.JOB)

    id: str
    name: str
    project: str
    state: JobState
    source: SourceOut
    options: JobOptions
    pool: str
    worker: str | None = Field(description="The worker it is pinned to, if any.")
    lease_owner: str | None = Field(description="The worker that has it now.")
    attempts: int = Field(description="How often a worker has claimed it.")
    crashes: int = Field(description="Attempts that ended with a dead process.")
    cancel_requested: bool
    progress: ProgressOut
    times: TimesOut
    words: int | None = Field(description="Words in the transcript, once done.")
    coverage: float | None = Field(description="Share of the input that was transcribed, 0 to 1, once done.")
    error: JobErrorOut | None
    batch: str | None = Field(None, description="The batch it came in.")
    custom_id: str | None = Field(None, description="What its submitter calls it, once a batch.")
    tags: dict[str, str] = Field(default_factory=dict)
    reused_from: str | None = Field(None, description="The job whose transcript was taken over, for nothing.")
    priority: Priority = "normal"
    deadline: datetime | None = None
    late: bool = Field(False, description="It waits, and cannot make its deadline any more.")
    held: HeldOut | None = Field(None, description="Why it waits, where a quota of its project is used up.")
    deleted: DeletedOut | None = Field(None, description="What of it was deleted on purpose.")


class JobDetail(JobOut):
    """One job with what it cost so far."""

    model_config = with_example(jobs.JOB_DETAIL)

    cost: CostOut


class JobPage(BaseModel):
    """A page of jobs, newest first; `next_cursor` fetches the next one and is null on the last."""

    model_config = with_example(jobs.JOB_PAGE)

    items: list[JobOut]
    next_cursor: str | None


class PhrasesOut(BaseModel):
    """The words and phrases that a job favours; none where it asked for none."""

    model_config = with_example(jobs.PHRASES)

    phrases: list[str] = Field(description="In the order of their letters, each once.")


class AudioLink(BaseModel):
    """Where a player finds the recording."""

    model_config = with_example(jobs.AUDIO_LINK)

    url: str
    expires_at: datetime = Field(description="The link is no use after that, nor once its key is revoked.")
