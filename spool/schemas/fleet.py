"""The schemas of workers, models, health, problems and the overview."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from spool.domain.jobs import JobState
from spool.schemas.common import AnswerModel, Money, RequestModel


class QualityOut(AnswerModel):
    """How a model's words on a worker compare with its float32 words, over a fixed set of recordings."""

    qoi: float = Field(description="Share of the recordings that are no worse, 0 to 1.")
    recordings: int
    wer: float
    reference_wer: float
    rtfx: float
    dtype: str
    device: str
    joules: float | None = Field(None, description="For a second of audio, if the machine reports it.")
    bits: int | None = Field(None, description="Bits of a weight if they are quantised, else null.")
    measured_at: datetime


class WorkerModelOut(AnswerModel):
    """A model as a worker has it; unknown fields are empty."""

    name: str
    family: str = ""
    sha256: str = Field("", description="Of the weights.")
    languages: list[str] = Field(
        default_factory=list, description="Codes; empty if it has no choice of language."
    )
    tasks: list[str] = Field(default_factory=list)
    dtype: str = ""
    heads: list[str] = Field(
        default_factory=list,
        description="What a search uses: tdt, rnnt, ctc, attention; with ctc+attention and rnnt+attention "
        "hypotheses can be rescored.",
    )
    streams: bool | None = Field(None, description="Whether live sessions can use it; null if not known yet.")
    bits: int | None = Field(None, description="Bits of a weight if they are quantised, else null.")
    bytes: int | None = Field(
        None, description="Of the weights in the worker's memory; null until it has loaded them."
    )


class WorkerOut(AnswerModel):
    """One worker as it last reported."""

    id: str
    name: str
    pool: str
    host: str
    chip: str
    version: str
    state: str = Field(
        description="starting, ready, draining, resting (outside its hours), unwell, stopped, or lost: no "
        "heartbeat for a minute."
    )
    reason: str | None = Field(description="Why it takes no jobs, when unwell, lost or resting.")
    alive: bool = Field(description="Whether its heartbeat is recent.")
    models: list[str] = Field(description="Models that it can load.")
    model_facts: list[WorkerModelOut] = Field(
        default_factory=list, description="What it knows of each model."
    )
    backend: str | None = Field(None, description="Where MLX computes: metal, cuda or cpu.")
    rtfx: float | None = Field(
        None, description="Audio seconds per engine second since it started; null before any work."
    )
    loaded_models: list[str] | None = Field(
        None, description="Models in its memory, the most recently used last."
    )
    pinned_models: list[str] | None = Field(None, description="Models that stay in its memory.")
    quality: dict[str, QualityOut] = Field(
        default_factory=dict, description="Quality of inference by model, where it was measured."
    )
    gpu_cores: int | None = None
    memory_bytes: int | None = None
    concurrency: int
    price_per_hour: Money
    busy_seconds: float
    refused_jobs: int = Field(
        0, description="Jobs that it returned because it cannot run them, since it started."
    )
    junk_messages: int = Field(
        0, description="Messages in its queues that Spool did not send, dropped since it started."
    )
    started_at: datetime
    seen_at: datetime


class ModelOut(AnswerModel):
    """A model that jobs may name."""

    name: str
    default: bool
    workers: int = Field(description="Live workers that can load it.")
    streams: bool | None = Field(
        None, description="Whether live sessions can use it; null until a worker has loaded it."
    )
    languages: list[str] = Field(
        default_factory=list, description="Codes; empty if it has no choice of language, or is not known yet."
    )
    good_for: str = Field("", description="What the catalogue recommends it for; empty for other models.")
    ready: bool = Field(
        False, description="Whether a live worker has its weights; otherwise its first job fetches them."
    )
    rtfx: float | None = Field(
        None, description="Audio seconds per engine second since yesterday (UTC); null without any work."
    )


class DefaultModel(RequestModel):
    """The model of jobs that name none."""

    name: str = Field(min_length=1, max_length=200)


class OpenAIModel(AnswerModel):
    """A model as clients of OpenAI's API know it."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "spool"


class ModelDetail(OpenAIModel, ModelOut):
    """One model, in Spool's terms and those of OpenAI's API (`models.retrieve()`)."""


class ModelList(AnswerModel):
    """Every model that a worker has, or that the settings name."""

    items: list[ModelOut]
    object: Literal["list"] = "list"
    data: list[OpenAIModel] = Field(description="The same for clients of OpenAI's API (`models.list()`).")


class Health(AnswerModel):
    """The process is alive."""

    status: Literal["ok", "stopping"] = Field(
        "ok", description="`stopping`, with status 503, between SIGTERM and the end of the process."
    )
    version: str
    detail: list[str] = Field(
        default_factory=list, description="Warnings, as sentences; the process itself is healthy."
    )


class CheckOut(AnswerModel):
    """One part that the API depends on."""

    ok: bool
    milliseconds: int
    detail: str = ""


class Readiness(AnswerModel):
    """Whether every part answers."""

    ready: bool
    checks: dict[str, CheckOut]


class FieldProblem(AnswerModel):
    """One field that was refused."""

    where: str
    message: str


class ProblemOut(AnswerModel):
    """An error (RFC 9457). `code` is stable; `detail` is for people."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str
    errors: list[FieldProblem] | None = None


class WaitingOut(AnswerModel):
    """The queue of one pool."""

    pool: str
    jobs: int
    oldest_seconds: float = Field(description="How long the oldest queued job has waited.")


class UnservedOut(AnswerModel):
    """Jobs that no worker can take now."""

    queue: str
    model: str
    jobs: int = Field(description="How many; counted up to 10,000.")
    waiting_for: str


class EndedOut(AnswerModel):
    """Jobs in one final state; failed ones by error."""

    state: JobState
    error: str = Field(description="The error's code; empty unless failed.")
    reason: str = Field(description="What the code means, in words; empty unless failed.")
    jobs: int


class CollectionFailureOut(AnswerModel):
    """Jobs of a collection that failed with the same error."""

    error: str = Field(description="The error's code.")
    reason: str = Field(description="What the code means, in words.")
    jobs: int


class CollectionOut(AnswerModel):
    """A project as a whole, or one of its batches."""

    project: str
    batch: str | None = Field(description="The batch; null for the project as a whole.")
    name: str
    created_at: datetime | None = Field(description="When the batch was submitted; null for a project.")
    counts: dict[JobState, int] = Field(description="Jobs by state.")
    failures: list[CollectionFailureOut] = Field(description="Why jobs failed, the most frequent first.")
    doubtful: int = Field(
        description="Passages of 0.3 `doubt` and more that nobody has checked or corrected."
    )
    left_seconds: float | None = Field(
        description="How long the jobs that have not ended will take; null while unknown."
    )


class TodayOut(AnswerModel):
    """The current UTC day."""

    audio_seconds: float
    engine_seconds: float
    rtfx: float | None = Field(description="Audio seconds per engine second; null before any work.")
    billable: Money
    wasted: Money
    currency: str


class Overview(AnswerModel):
    """What is queued, running and ended, and the current day's costs."""

    now: datetime
    waiting: list[WaitingOut]
    unserved: list[UnservedOut] = Field(
        default_factory=list, description="Jobs that no worker can take now; not for keys of a project."
    )
    running: dict[str, int] = Field(description="Jobs that workers are running, by pool.")
    ended: list[EndedOut]
    batches_receiving: int = Field(validation_alias="open_batches")
    collections: list[CollectionOut] = Field(
        default_factory=list, description="Projects with their newest batches, if `batches` asks for them."
    )
    today: TodayOut
