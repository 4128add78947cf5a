"""A job: its states, the legal moves between them, its source, and the record that its row becomes.

Pure. `spool.store` refuses in SQL whatever `MOVES` does not list; options are in `spool.domain.options`.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, TypedDict

from spool.domain.archive.outputs import JobOutput
from spool.domain.archive.stretch import Stretch
from spool.domain.columns import BigInt, Id, Length, Name, QueueName, Sha256, ShortName, SmallInt
from spool.domain.fleet.routing import Route
from spool.domain.options import JobOptions
from spool.domain.priority import NEVER, NORMAL


class JobState(StrEnum):
    """A job's state: `queued → running → done | failed | cancelled`."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether the job stays in this state unless it is retried."""
        return self in TERMINAL


TERMINAL = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})

MOVES: frozenset[tuple[JobState, JobState]] = frozenset(
    {
        (JobState.QUEUED, JobState.RUNNING),  # a worker claims it
        (JobState.QUEUED, JobState.CANCELLED),
        (JobState.QUEUED, JobState.FAILED),  # set aside: too many attempts ended with a dead process
        (JobState.RUNNING, JobState.QUEUED),  # the lease ran out, or the worker drains or yields
        (JobState.RUNNING, JobState.DONE),
        (JobState.RUNNING, JobState.FAILED),
        (JobState.RUNNING, JobState.CANCELLED),
        (JobState.FAILED, JobState.QUEUED),  # a person retries
        (JobState.CANCELLED, JobState.QUEUED),
        (JobState.DONE, JobState.QUEUED),  # finding speakers again; the transcript stays available meanwhile
    }
)


def queue_name(pool: str, worker: str | None = None) -> str:
    """The queue of a pool (`spool.cpu`), or of one worker of it by name (`spool.cpu;at:mini-3`)."""
    return Route(pool, worker).queue


SourceKind = Literal["upload", "file", "s3", "https", "live"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where the recording is. For an upload, `uri` is its key in the object store (`jobs/{id}/source`). A
    live session is `live`, with the key that its recording will have, until it is done; then it is an upload.
    `etag`: an object's, or a file's size and time of change; None if unknown.
    `connection`: the project's connection whose credentials read an S3 object."""

    kind: SourceKind
    uri: str
    size: BigInt | None = None
    etag: str | None = None
    connection: ShortName | None = None


class JobSpeaker(TypedDict):
    """One speaker of a job's transcript, as stored in its row."""

    label: str
    name: str | None
    talk_seconds: float
    words: int


@dataclass(frozen=True)
class SubmittedJob:
    """What is decided when a job is submitted."""

    source: Source
    options: JobOptions
    name: str
    project: Name = "default"
    pool: Name | None = "cpu"
    """The requested pool, or None for any worker that has its model. Once it has run, the pool of the worker
    that ran it last."""
    worker: Name | None = None
    """Name of the worker it is pinned to."""
    reuse: bool = False
    """Whether an existing transcript of the same content, options and model may be reused."""
    batch_id: Id | None = None
    batch_line: int | None = None
    """Its line in the batch's manifest, or its position in the listing of a prefix or folder, from 1."""
    custom_id: Name | None = None
    """The submitter's own id; unique within a batch."""
    tags: dict[str, str] | None = None
    key_id: Id | None = None
    """The API key that submitted it; None if no key was required."""
    traceparent: Annotated[str, Length(55)] | None = None
    """The W3C trace context of its submission."""
    priority: SmallInt = NORMAL
    """Its priority as a number (`spool.domain.priority`)."""
    deadline: datetime | None = None
    output: JobOutput | None = None
    """Where its transcript is written, besides the object store."""
    rerun_of: Id | None = None
    """The first job on its recording, if this job transcribes that recording again."""
    stretch: Stretch | None = None
    """What it replaces of another job's transcript, if it does not transcribe the whole recording."""


@dataclass(frozen=True)
class JobResult:
    """What is known of a job once it is done; some of it is known before. None: not known."""

    audio_seconds: float | None = None
    """Length of the recording."""
    transcript_key: str | None = None
    transcript_sha256: Sha256 | None = None
    coverage: float | None = None
    """Share of the samples that a chunk's core covered, 0 to 1."""
    words: int | None = None
    """How many words the transcript has."""
    language: Annotated[str, Length(8)] | None = None
    """The language spoken for most of the time, if the model detects it."""
    content_sha256: Sha256 | None = None
    """The hash of the source's bytes: as announced, or as the first worker read them."""
    fingerprint: Sha256 | None = None
    """The hash of the options and the model's weights."""
    reused_from: Id | None = None
    """The job whose transcript was reused."""
    speakers: list[JobSpeaker] | None = None
    """The speakers of its transcript, with the names that people gave them; None if speakers were not
    requested."""
    complete: bool | None = None
    """Whether the recording was as long as its header states; None if the header states no length."""
    expected_seconds: float | None = None
    """The length that the recording's header states."""
    warnings: list[str] | None = None
    """Anomalies of its recording, and requested options that could not be applied."""
    decoded_seconds: float | None = None
    """How much of it the engine decoded; the rest is silence or has no speech."""
    speech_coverage: float | None = None
    """The share of detected speech that has words; None without a detector."""
    words_without_evidence: int | None = None
    """How many words the witness found no evidence for; None if it was not asked, or judged nothing."""
    speech_without_words: float | None = None
    """Seconds of clear speech over which the witness found no word; None likewise."""


@dataclass(frozen=True, kw_only=True)
class Job(JobResult, SubmittedJob):
    """One recording to be transcribed: a row of `jobs`, whose columns these fields are."""

    id: Id
    state: JobState
    queue: QueueName = ""
    """The name of its route (`spool.domain.fleet.routing`)."""
    attempt: int = 0
    """Grows with each claim; it fences every write of a worker."""
    crashes: int = 0
    """Attempts since the last retry whose worker's process has ended (`spool.store.queue.crashes`)."""
    retries: int = 0
    """How often a person has queued it again after it ended."""
    transient_failures: int = 0
    """Attempts in a row that ended with a retryable error and saved no chunk."""
    ran_seconds: float = 0.0
    """How long workers have run it since it was submitted or retried, as of the last renewal."""
    lease_owner: Name | None = None
    lease_until: datetime | None = None
    cancel_requested: bool = False
    done_seconds: float = 0.0
    """How much of it has been decoded."""
    created_at: datetime
    queued_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    updated_at: datetime
    error_code: ShortName | None = None
    error_message: str | None = None
    refusals: dict[str, str] | None = None
    """By worker name: why that worker returned the job as one that it cannot run. It is passed over until
    another worker has tried."""
    deadline_rank: BigInt = NEVER
    """The deadline in Unix seconds while it can be met; else `NEVER`."""
    forecast_seconds: float | None = None
    """What `done_seconds` should reach, according to what its project was charged when it was claimed."""
    source_deleted_at: datetime | None = None
    """When its uploaded recording was deleted."""
    transcript_deleted_at: datetime | None = None
    """When its transcript was deleted, with every chunk and phrase."""

    @property
    def recording(self) -> str:
        """The first job on its recording: the job itself, unless it transcribes another's recording again."""
        return self.rerun_of or self.id

    @property
    def missing_seconds(self) -> float | None:
        """How many seconds are missing compared with the header; None if unknown."""
        if self.complete is None or self.expected_seconds is None or self.audio_seconds is None:
            return None
        return 0.0 if self.complete else round(max(0.0, self.expected_seconds - self.audio_seconds), 3)

    @property
    def speaker_names(self) -> dict[str, str]:
        """The names by label."""
        return {each["label"]: each["name"] for each in self.speakers or () if each["name"]}

    @property
    def ids(self) -> dict[str, str]:
        """The ids that every log line about the job contains."""
        return {"job_id": self.id} | ({"batch_id": self.batch_id} if self.batch_id else {})
