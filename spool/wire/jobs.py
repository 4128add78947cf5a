"""What goes over the wire: the shapes of requests and answers, each with an example for the OpenAPI page.

Knows the ground's records and how they look from outside (money as decimal text, times in UTC). Knows neither
routes nor SQL.
"""

from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from spool.batches import Tags
from spool.jobs import JobOptions, JobState
from spool.wire import examples
from spool.wire.options import option_schema
from spool.wire.order import Deadline, HeldOut, Priority


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not contain control characters")
    return text


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]
Project = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Pool = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")]
WorkerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


def _written_out(value: object) -> object:
    if isinstance(value, str) and value.strip().lstrip("+-").replace(".", "", 1).isdigit():
        raise ValueError("must be written as in 2026-11-20, not as a number")
    return value


# Pydantic would read a number as seconds since 1970.
Day = Annotated[date, BeforeValidator(_written_out)]
Moment = Annotated[datetime, BeforeValidator(_written_out)]


def _plain(amount: Decimal) -> str:
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


Money = Annotated[
    Decimal,
    PlainSerializer(_plain, return_type=str, when_used="json"),
    Field(description="An exact decimal number, as text."),
]


def with_example(example: dict[str, Any], *, strict: bool = False) -> ConfigDict:
    """A model's configuration: frozen, an example for OpenAPI; `strict` refuses what it does not know."""
    extra: Literal["forbid", "ignore"] = "forbid" if strict else "ignore"
    # What is asked is read as it is written: neither 1 nor "yes" is true.
    return ConfigDict(extra=extra, frozen=True, strict=strict, json_schema_extra={"examples": [example]})


class UploadRequest(BaseModel):
    """The `request` part of an upload: everything about the job but its source."""

    model_config = with_example(examples.UPLOAD_REQUEST, strict=True)

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

    model_config = with_example(examples.JOB_REQUEST, strict=True)

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

    model_config = with_example(examples.JOB)

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
    deaths: int = Field(description="Attempts that ended with a dead process.")
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

    model_config = with_example(examples.JOB_DETAIL)

    cost: CostOut


class JobPage(BaseModel):
    """A page of jobs, newest first; `next_cursor` fetches the next one and is null on the last."""

    model_config = with_example(examples.JOB_PAGE)

    items: list[JobOut]
    next_cursor: str | None


class WorkerOut(BaseModel):
    """One worker as it last reported."""

    id: str
    name: str
    pool: str
    host: str
    chip: str
    version: str
    state: str = Field(
        description="starting, ready, draining, resting (outside its hours), unwell, stopped, or lost: it "
        "said nothing for a minute."
    )
    reason: str | None = Field(description="Why it is unwell, lost or resting, and takes no jobs.")
    alive: bool = Field(description="Whether it reported lately.")
    models: list[str] = Field(description="Models that it is able to load.")
    loaded_models: list[str] | None = Field(
        None, description="Models in its memory now, the one needed last at the end."
    )
    pinned_models: list[str] | None = Field(None, description="Models that stay in its memory.")
    gpu_cores: int | None = None
    memory_bytes: int | None = None
    concurrency: int
    price_per_hour: Money
    busy_seconds: float
    started_at: datetime
    seen_at: datetime


class WorkerList(BaseModel):
    """Workers, most recently heard of first."""

    model_config = with_example(examples.WORKERS)

    items: list[WorkerOut]


class ModelOut(BaseModel):
    """A model that jobs may name."""

    name: str
    default: bool
    workers: int = Field(description="Workers that report now and offer it.")


class ModelList(BaseModel):
    """Every model that the settings name."""

    model_config = with_example(examples.MODELS)

    items: list[ModelOut]


class Health(BaseModel):
    """The process lives."""

    model_config = with_example(examples.HEALTH)

    status: Literal["ok"] = "ok"
    version: str


class CheckOut(BaseModel):
    """One part that the API depends on."""

    ok: bool
    milliseconds: int
    detail: str = ""


class Readiness(BaseModel):
    """Whether every part answers."""

    model_config = with_example(examples.READY)

    ready: bool
    checks: dict[str, CheckOut]


class FieldProblem(BaseModel):
    """One field that was refused."""

    where: str
    message: str


class ProblemOut(BaseModel):
    """An error (RFC 9457). `code` is stable; `detail` is for people."""

    model_config = with_example(examples.PROBLEM)

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str
    errors: list[FieldProblem] | None = None
