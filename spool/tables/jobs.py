"""Jobs, their saved chunks, and the phrase lists that they use."""

from dataclasses import dataclass
from typing import Annotated, Literal

from sqlalchemy import (
    DDL,
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    Index,
    LargeBinary,
    String,
    Table,
    event,
    text,
)
from sqlalchemy.schema import ExecutableDDLElement

from spool.domain.columns import BigInt, NullIfEmpty, Sha256
from spool.domain.jobs import Job, JobState
from spool.domain.priority import NEVER
from spool.domain.recognition import DecodedChunk
from spool.domain.transcript import LanguageSpan, Turn
from spool.tables.base import UtcDateTime, job_key, metadata, partial_index
from spool.tables.record import table_of

_STATES = ", ".join(f"'{state}'" for state in JobState)
KEPT_SOURCE = "source_kind IN ('upload', 'live') AND finished_at IS NOT NULL AND source_deleted_at IS NULL"
KEPT_TRANSCRIPT = "finished_at IS NOT NULL AND transcript_deleted_at IS NULL"
SUSPECTED = "suspects IS NOT NULL AND state IN ('queued', 'running')"
STILL_OPEN = "state NOT IN ('done', 'failed', 'cancelled')"

jobs = table_of(
    "jobs",
    Job,
    # When a message for this job was last put into Redis; the sweeper re-sends when that is long ago.
    Column("hinted_at", UtcDateTime),
    # What a class is sorted by, in Unix microseconds. A job that is taken back keeps its position.
    Column("queue_position", BigInteger, nullable=False, server_default=text("0")),
    # A pause after a transient error, or while a worker makes itself free for this job alone.
    Column("not_before", UtcDateTime),
    # Workers that let its lease run out and may have crashed: by id, when each was last seen
    # (`spool.store.queue.crashes`).
    Column("suspects", JSON(none_as_null=True)),
    # The list of phrases in its options, until they are deleted with its transcript.
    Column("phrases_sha256", String(64)),
    # What makes two submissions the same (`NewJob.submission_sha256`).
    Column("submission_sha256", String(64)),
    # Where the parts of a live session's log begin, and whether it is closed (`spool.domain.live.log`).
    Column("live_parts", JSON(none_as_null=True)),
    CheckConstraint(f"state IN ({_STATES})", name="state"),
    CheckConstraint("source_kind IN ('upload', 'file', 's3', 'https', 'live')", name="source_kind"),
    CheckConstraint(
        "(state = 'running') = (lease_owner IS NOT NULL AND lease_until IS NOT NULL)", name="lease"
    ),
    CheckConstraint("attempt >= 0 AND crashes >= 0", name="counts"),
    Index("ix_jobs_created_at_id", "created_at", "id"),
    Index("ix_jobs_state_created_at_id", "state", "created_at", "id"),
    Index("ix_jobs_project_created_at_id", "project", "created_at", "id"),
    partial_index("ix_jobs_queued", "queue", "hinted_at", where="state = 'queued'"),
    # Whose turn it is, read from its front: never a scan, however many wait.
    partial_index(
        "ix_jobs_next",
        "queue",
        "project",
        "priority",
        "deadline_rank",
        "queue_position",
        "id",
        where="state = 'queued'",
    ),
    partial_index("ix_jobs_due", "deadline_rank", where=f"state = 'queued' AND deadline_rank < {NEVER}"),
    # Jobs by end, counted in the index alone, which stores equal entries once.
    partial_index(
        "ix_jobs_ended", "project", "state", "error_code", where="state IN ('done', 'failed', 'cancelled')"
    ),
    # Not by its lease: a renewal that changes no indexed column writes to no index (HOT updates).
    partial_index("ix_jobs_running", "pool", where="state = 'running'"),
    partial_index("ix_jobs_refused", "pool", where="state = 'queued' AND refusals IS NOT NULL"),
    partial_index("ix_jobs_suspected", "id", where=SUSPECTED),
    partial_index(
        "ix_jobs_batch_id_custom_id", "batch_id", "custom_id", where="batch_id IS NOT NULL", unique=True
    ),
    partial_index("ix_jobs_batch_id_batch_line", "batch_id", "batch_line", where="batch_id IS NOT NULL"),
    # Whether a batch has unfinished jobs.
    partial_index("ix_jobs_open_in_batch", "batch_id", where=f"batch_id IS NOT NULL AND {STILL_OPEN}"),
    # The copies of a transcript, for its deletion.
    partial_index("ix_jobs_reused_from", "reused_from", where="reused_from IS NOT NULL"),
    # The versions of a recording; the first one has only its own id.
    partial_index("ix_jobs_rerun_of", "rerun_of", where="rerun_of IS NOT NULL"),
    partial_index("ix_jobs_submission_sha256", "submission_sha256", where="submission_sha256 IS NOT NULL"),
    partial_index("ix_jobs_phrases_sha256", "phrases_sha256", where="phrases_sha256 IS NOT NULL"),
    # What retention has yet to examine, by age.
    partial_index("ix_jobs_kept_source", "project", "finished_at", where=KEPT_SOURCE),
    partial_index("ix_jobs_kept_transcript", "project", "finished_at", where=KEPT_TRANSCRIPT),
    # What a job may reuse: the same content, or the same version of an S3 object.
    partial_index(
        "ix_jobs_known_content", "content_sha256", where="state = 'done' AND content_sha256 IS NOT NULL"
    ),
    partial_index(
        "ix_jobs_known_etag",
        "source_etag",
        where="state = 'done' AND source_kind = 's3' AND fingerprint IS NOT NULL",
    ),
)

chunks = table_of(
    "chunks",
    DecodedChunk,
    job_key(),
    Column("created_at", UtcDateTime, nullable=False),
    CheckConstraint(
        "start_sample <= core_start AND core_start < core_end AND core_end <= end_sample", name="span"
    ),
    key=("channel", "number"),
)


PassName = Literal["speakers", "witness", "language"]


@dataclass(frozen=True)
class ChannelPass:
    """What one attempt heard in one channel when it listened a second time, after the words. Rows of earlier
    attempts stay: their time was billed."""

    listener: PassName
    channel: int
    engine_ns: BigInt
    attempt: int
    fingerprint: Sha256
    """Of the model and its options."""
    turns: tuple[Turn, ...] = ()
    """In seconds of the recording, as a diarization model returned them, before they were numbered by the
    words."""
    prints: dict[str, str] | None = None
    """By speaker a voice print in base64, until the job ends; None if not requested."""
    frames: bytes | None = None
    """The probability of each speaker in each frame (`worker.diarization.base.SpeakerActivity`), if the model
    reports it; of the witness what it hears (`spool.sounds.phones.PhoneFrames`), until the job ends."""
    languages: Annotated[tuple[LanguageSpan, ...], NullIfEmpty()] = ()
    """What is spoken at a few places of the whole recording (channel 0), if that was listened to."""


channel_passes = table_of(
    "channel_passes",
    ChannelPass,
    job_key(),
    Column("created_at", UtcDateTime, nullable=False),
    key=("listener", "channel", "attempt"),
)

# The SHA-256 of each mebibyte of an uploaded recording, one after the other (`spool.objects.integrity`).
source_hashes = Table(
    "source_hashes",
    metadata,
    job_key(),
    Column("hashes", LargeBinary, nullable=False),
)

# The words of an existing transcript that a job aligns (`spool.domain.archive.alignment.Typescript`).
typescripts = Table(
    "typescripts",
    metadata,
    job_key(),
    Column("words", LargeBinary, nullable=False),
)

# How many jobs a model has: PostgreSQL assumes one in 200, and would sort all passages of a model for a page
# of its review.
_STATISTICS = "CREATE STATISTICS jobs_model ON (options ->> 'model') FROM jobs"
_created: ExecutableDDLElement = DDL(_STATISTICS)  # type: ignore[no-untyped-call]
event.listen(jobs, "after_create", _created.execute_if(dialect="postgresql"))

# Boosted phrases, once for all jobs that have the same; a job's options name them by this digest.
phrase_lists = Table(
    "phrase_lists",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("phrases", JSON, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)
