"""The schemas of jobs: requests and answers, options, priorities, deadlines, and deleted content.

Batches are in `spool.schemas.batches`.
"""

from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasPath, BeforeValidator, Field

from spool.domain.archive.diarization import MOST_SPEAKERS, Diarization
from spool.domain.jobs import JobState
from spool.domain.manifest import Name, Tags
from spool.domain.options import AskedOptions, JobOptions
from spool.domain.priority import PriorityName
from spool.domain.quotas import HeldBy
from spool.domain.transcript import SpeakerLabel
from spool.schemas.common import (
    AnswerModel,
    Money,
    Pool,
    Project,
    RequestModel,
    Requires,
    WorkerName,
    inline_schema,
)
from spool.schemas.outputs import Connection, ExportOut, Output, OutputOut


def _clean_name(name: str) -> str:
    shown = " ".join(name.split())
    if not shown or not shown.isprintable():
        raise ValueError("must be text without control characters")
    return shown


def add_options(schema: dict[str, Any]) -> None:
    """Show in the schema of a request's `options` what they are."""
    schema["properties"] = _inline_options()["properties"]


@cache
def _inline_options() -> dict[str, Any]:
    return inline_schema(AskedOptions)


def _moment(value: object) -> object:
    """A time from text; without a zone it is UTC."""
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
        raise ValueError("must be a time between the years 1 and 9999") from None


Priority = Annotated[
    PriorityName,
    Field(description="The order among the project's own jobs: high, then normal, then low."),
]
Deadline = Annotated[
    datetime,
    BeforeValidator(_moment),
    Field(
        description="When it should be done (ISO 8601). Within a priority, jobs with the earliest deadline "
        "that can still be met go first, before jobs without one."
    ),
]


class HeldOut(AnswerModel):
    """Why jobs wait although workers may be free. They keep their position in the queue."""

    by: HeldBy = Field(description="The project's quota that is exhausted.")
    reason: str
    until: datetime | None = Field(description="When they continue; null if that depends on other jobs.")


class DeadlineOut(AnswerModel):
    """A batch's deadline, and the latest forecast."""

    at: datetime
    state: Literal["unknown", "on_time", "late", "passed", "ended"] = Field(
        description="`late`: by the measured throughput it can no longer be met; its jobs then wait as if "
        "they had no deadline."
    )
    expected_at: datetime | None = Field(description="When the batch will be done; null while unknown.")
    basis: str


class SubmissionRequest(RequestModel):
    """What jobs have in common however they are submitted."""

    project: Project | None = Field(
        None, description="The project that pays. Default: the key's project, or `default`."
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="How to transcribe; omitted options have the server's defaults.",
        json_schema_extra=add_options,
    )
    pool: Pool | None = Field(None, description="The pool of workers. Default: any with the model.")
    worker: WorkerName | None = Field(None, description="Pin it to one worker, by name.")
    requires: Requires = Field(None, description="Requirements of its machine.")
    tags: Tags = Field(default_factory=dict)
    priority: Priority = "normal"
    output: Output = None
    deduplicate: bool = Field(
        False,
        description="Create no job for a recording that was submitted before with the same options: an "
        "upload by its content and name, a file by its size and time of change, an S3 object that was listed "
        "by its ETag. Jobs that failed, were cancelled or lost their transcript do not count; "
        "those that failed because the recording is empty, unreadable or not finite do.",
    )


class UploadRequest(SubmissionRequest):
    """The `request` part of an upload: everything about the job except its source."""

    name: Name | None = Field(None, description="A display name. Default: the source's file name.")
    reuse: bool = Field(
        False,
        description="Reuse an existing transcript of the same content, options and model, free of charge.",
    )
    deadline: Deadline | None = None


class JobRequest(UploadRequest):
    """A job whose recording a worker fetches."""

    source: Annotated[str, Field(min_length=1, max_length=4096)] = Field(
        description="`https://…`, `s3://bucket/key`, `file://…` under a folder that the server allows, "
        "`upload://…`: a complete upload of the project, or `sha256:…`: the job for an upload of this "
        "content under this `name` with the same options, to ask for before uploading it; 404 if there is "
        "none.",
        json_schema_extra={
            "pattern": "^(([Hh][Tt][Tt][Pp][Ss]|[Ss]3|[Ff][Ii][Ll][Ee]|upload)://.|sha256:[0-9a-f]{64}$)"
        },
    )
    connection: Connection = None


class SourceOut(AnswerModel):
    """Where the recording is."""

    kind: Literal["upload", "file", "s3", "https", "live"]
    uri: str
    size: int | None = Field(description="Size in bytes; null while unknown.")
    connection: str | None = Field(None, description="The connection that reads it.")


class ProgressOut(AnswerModel):
    """The job's progress, in seconds of audio."""

    audio_seconds: float | None = Field(description="Length of the recording; null until it is read.")
    done_seconds: float
    fraction: float | None = Field(description="0 to 1; null until the length is known.")


class TimesOut(AnswerModel):
    """When the job entered its states (UTC, by the database's clock)."""

    created_at: datetime
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime


class JobErrorOut(AnswerModel):
    """Why the job failed; `code` is stable."""

    code: str
    message: str


class CostOut(AnswerModel):
    """The job's cost so far. `billable` is for work that was kept, `wasted` for work that was lost."""

    audio_seconds: float
    engine_seconds: float
    rtfx: float | None = Field(description="Audio seconds per engine second; null before any work.")
    billable: Money = Field(validation_alias="billable_cost")
    wasted: Money = Field(validation_alias="wasted_cost")
    currency: str


class DeletedOut(AnswerModel):
    """When content of a job was deleted; the job itself and its costs remain."""

    source: datetime | None = Field(
        validation_alias="source_deleted_at", description="The uploaded recording."
    )
    transcript: datetime | None = Field(
        validation_alias="transcript_deleted_at", description="The transcript, in every format."
    )


SpeakerName = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_clean_name)]


class SpeakerOut(AnswerModel):
    """One speaker of a transcript."""

    label: str = Field(description="`speaker_0` speaks first, `speaker_1` second, and so on.")
    name: str | None = Field(description="The name that a person gave.")
    talk_seconds: float = Field(description="How long they speak.")
    words: int = Field(description="The number of their words.")


class VoiceMatchOut(AnswerModel):
    """A named voice that a speaker may be."""

    voice: str = Field(validation_alias=AliasPath("voice", "id"), description="The voice's id.")
    name: str = Field(validation_alias=AliasPath("voice", "name"))
    similarity: float = Field(description="Cosine of the voice prints; 1 is the same.")
    recordings: int = Field(
        validation_alias=AliasPath("voice", "recordings"),
        description="In how many recordings a person confirmed the voice.",
    )


class HeardSpeakerOut(SpeakerOut):
    """One speaker of a transcript, and the voices it may be."""

    has_voice_print: bool = Field(description="Whether it can be remembered.")
    matches: list[VoiceMatchOut] = Field(
        description="Voices of the project that resemble it, the most similar first; empty once confirmed."
    )


class VoiceOut(AnswerModel):
    """A voice that a person named."""

    id: str
    project: str
    name: str
    recordings: int = Field(description="In how many recordings a person confirmed it.")


class SpeakerNames(RequestModel):
    """Names for speakers."""

    names: Annotated[
        dict[SpeakerLabel, SpeakerName | None], Field(min_length=1, max_length=MOST_SPEAKERS)
    ] = Field(description="Names by label; null removes a name. Omitted speakers keep theirs.")
    remember: bool = Field(
        default=False,
        strict=True,
        description="Recognise these speakers in the project's other recordings, by their voice prints.",
    )


class DiarizeRequest(RequestModel, Diarization):
    """A request to find a job's speakers, with what is known of them."""

    @property
    def plain(self) -> Diarization:
        """The same as a job stores it."""
        return Diarization(**{name: getattr(self, name) for name in Diarization.model_fields})


class StretchOut(AnswerModel):
    """What a version replaces of another one, in seconds."""

    job: Annotated[str, Field(description="The job whose other words it has.")]
    start: float
    end: float


class JobOut(AnswerModel):
    """One job, as in lists."""

    id: str
    name: str
    project: str
    state: JobState
    source: SourceOut
    options: JobOptions
    pool: str | None = Field(description="The requested pool, or the one in which it ran last.")
    worker: str | None = Field(description="The worker it is pinned to, if any.")
    requires: Requires = Field(None, description="Requirements of its machine.")
    waiting_for: str | None = Field(
        None, description="What it is waiting for if no worker can take it now; null while one can."
    )
    lease_owner: str | None = Field(description="The worker that is running it.")
    attempts: int = Field(validation_alias="attempt", description="How often a worker has claimed it.")
    crashes: int = Field(description="Attempts whose worker process ended.")
    refusals: dict[str, str] | None = Field(
        None, description="Workers that returned it because they cannot run it, and why; others go first."
    )
    cancel_requested: bool
    progress: ProgressOut
    times: TimesOut
    words: int | None = Field(description="Words in the transcript, once done.")
    language: str | None = Field(
        None, description="Language spoken for most of the time, once done, if the model detects it."
    )
    coverage: float | None = Field(
        description="Share of the samples in exactly one chunk, 0 to 1, once done."
    )
    warnings: list[str] = Field(
        default_factory=list,
        description="Anomalies of the recording, requested options that could not be applied, and why the "
        "words may be wrong: the model is unsure of them, or they repeat.",
    )
    decoded_seconds: float | None = Field(None, description="Audio that the engine decoded, once done.")
    skipped_seconds: float | None = Field(
        None, description="Audio passed over as silence or without detected speech."
    )
    speech_coverage: float | None = Field(
        None,
        description="Share of the detected speech within half a second of a word, once done; null if no "
        "speech was detected, or detection was off.",
    )
    words_without_evidence: int | None = Field(
        None,
        description="Words that the sound does not support, once done; null if the witness was not asked, or "
        "judged nothing.",
    )
    speech_without_words: float | None = Field(
        None, description="Seconds of clear speech over which the witness found no word; null likewise."
    )
    complete: bool | None = Field(
        None,
        description="Once done: whether the recording is as long as its header states. False: it was cut "
        "off, and what was there is transcribed. Null: the file does not state its length.",
    )
    expected_seconds: float | None = Field(None, description="The length that the recording's header states.")
    missing_seconds: float | None = Field(None, description="How much of it is missing; null if unknown.")
    error: JobErrorOut | None = Field(
        description="Why it failed; of a queued job, why its last attempt did: it is retried by itself."
    )
    batch: str | None = Field(None, validation_alias="batch_id", description="The batch that it belongs to.")
    custom_id: str | None = Field(None, description="The submitter's own id, unique within the batch.")
    tags: dict[str, str] = Field(default_factory=dict)
    reused_from: str | None = Field(None, description="The job whose transcript was reused, free of charge.")
    rerun_of: str | None = Field(
        None, description="The first job on its recording, if it transcribes that recording again."
    )
    stretch: StretchOut | None = Field(
        None,
        description="What it replaces of another version, if it does not transcribe the whole recording.",
    )
    priority: Priority = "normal"
    deadline: datetime | None = None
    late: bool = Field(False, description="It is queued and can no longer meet its deadline.")
    held: HeldOut | None = Field(None, description="Why it is held, if a quota of its project is exhausted.")
    deleted: DeletedOut | None = Field(None, description="Its content that was deleted.")
    speakers: list[SpeakerOut] | None = Field(
        None, description="The speakers of its transcript; null if not requested."
    )
    output: OutputOut | None = Field(
        None, description="Where its transcript is written, besides Spool's own store."
    )
    closed: bool = Field(
        False,
        description="Whether something of its recording is closed to readers (`GET …/closures`). Words are "
        "then not counted, and speakers not listed.",
    )
    first_words: str | None = Field(
        None, description="How its transcript begins, in lists that ask for it (`first_words=true`)."
    )


class JobDetail(JobOut):
    """One job with its cost so far."""

    cost: CostOut
    exports: list[ExportOut] = Field(
        default_factory=list, description="The files of its output, once it is done."
    )
    undelivered: str | None = Field(
        None,
        description="In a sentence: which of these files are not where they belong, where that is, and why.",
    )


class JobDeletion(JobDetail):
    """One job whose content was deleted, and which jobs still have its transcript."""

    copies: list[str] = Field(
        description="Jobs that still hold the same transcript, since they reused it or it was reused from "
        "them; delete them with `copies=true`."
    )


class PhrasesOut(AnswerModel):
    """The words and phrases that a job boosts; empty if it boosts none."""

    phrases: list[str] = Field(description="In alphabetical order, each once.")


class AudioLink(AnswerModel):
    """A signed link to the recording, for a player."""

    url: str
    expires_at: datetime = Field(description="When the link expires; it also ends when its key is revoked.")
