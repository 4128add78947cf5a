"""Jobs, their saved chunks, and the phrase lists that they use."""

from sqlalchemy import (
    DDL,
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    String,
    Table,
    Text,
    event,
    false,
    text,
)
from sqlalchemy.schema import ExecutableDDLElement

from spool.domain.jobs import JobState
from spool.domain.priority import NEVER, NORMAL
from spool.tables.base import ID, NAME, QUEUE, UtcDateTime, metadata

_STATES = ", ".join(f"'{state}'" for state in JobState)
KEPT_SOURCE = "source_kind IN ('upload', 'live') AND finished_at IS NOT NULL AND source_deleted_at IS NULL"
KEPT_TRANSCRIPT = "finished_at IS NOT NULL AND transcript_deleted_at IS NULL"
SUSPECTED = "suspects IS NOT NULL AND state IN ('queued', 'running')"
STILL_OPEN = "state NOT IN ('done', 'failed', 'cancelled')"

jobs = Table(
    "jobs",
    metadata,
    Column("id", ID, primary_key=True),
    Column("project", NAME, nullable=False),
    Column("state", String(16), nullable=False),
    Column("name", Text, nullable=False),
    Column("source_kind", String(16), nullable=False),
    Column("source_uri", Text, nullable=False),
    Column("source_size", BigInteger),
    Column("source_etag", Text),
    # The project's connection whose credentials read it; for S3 sources only.
    Column("source_connection", String(64)),
    Column("options", JSON, nullable=False),
    # Where it waits: the name of its route (`spool.domain.fleet.routing`). `pool` is the requested one, else
    # that of the worker which ran it last.
    Column("queue", QUEUE, nullable=False),
    Column("pool", NAME),
    Column("worker", NAME),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("crashes", Integer, nullable=False, server_default=text("0")),
    # Workers that let its lease run out and may have crashed: by id, when each was last seen
    # (`spool.store.queue.crashes`).
    Column("suspects", JSON(none_as_null=True)),
    # Since the last retry: consecutive transient errors without a saved chunk, and seconds in workers.
    Column("transient_failures", Integer, nullable=False, server_default=text("0")),
    Column("ran_seconds", Double, nullable=False, server_default=text("0")),
    Column("lease_owner", NAME),
    Column("lease_until", UtcDateTime),
    Column("cancel_requested", Boolean, nullable=False, server_default=false()),
    Column("audio_seconds", Double),
    Column("done_seconds", Double, nullable=False, server_default=text("0")),
    Column("created_at", UtcDateTime, nullable=False),
    Column("queued_at", UtcDateTime, nullable=False),
    # When a message for this job was last put into Redis; the sweeper re-sends when that is long ago.
    Column("hinted_at", UtcDateTime),
    Column("started_at", UtcDateTime),
    Column("finished_at", UtcDateTime),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("error_code", String(64)),
    Column("error_message", Text),
    Column("transcript_key", Text),
    Column("transcript_sha256", String(64)),
    Column("coverage", Double),
    # How much of the recording the engine decoded, and the share of detected speech that has words.
    Column("decoded_seconds", Double),
    Column("speech_coverage", Double),
    # Whether the recording was as long as its header states, and that length; NULL if it states none.
    Column("complete", Boolean),
    Column("expected_seconds", Double),
    Column("words", Integer),
    # Anomalies of the recording, and requested options that could not be applied.
    Column("warnings", JSON(none_as_null=True)),
    Column("language", String(8)),
    # No foreign key: SQLite can neither add nor drop a column that has one.
    Column("batch_id", ID),
    Column("batch_line", Integer),
    Column("custom_id", String(200)),
    Column("tags", JSON(none_as_null=True)),
    # Where the parts of a live session's log begin, and whether it is closed (`spool.domain.live.log`).
    Column("live_parts", JSON(none_as_null=True)),
    # Whether a transcript of the same content, options and model may be reused, and the job it was reused
    # from.
    Column("reuse", Boolean, nullable=False, server_default=false()),
    Column("reused_from", ID),
    # The first job on its recording, if it transcribes that job's recording again.
    Column("rerun_of", ID),
    Column("content_sha256", String(64)),
    Column("fingerprint", String(64)),
    # The API key that submitted it; none if no key was required.
    Column("key_id", ID),
    # Its order (`spool.domain.priority`): the class, the requested deadline, and what a class is sorted by:
    # the deadline in Unix seconds while it can be met, and the position in Unix microseconds. A job that is
    # taken back keeps its position.
    Column("priority", SmallInteger, nullable=False, server_default=text(str(NORMAL))),
    Column("deadline", UtcDateTime),
    Column("deadline_rank", BigInteger, nullable=False, server_default=text(str(NEVER))),
    Column("queue_position", BigInteger, nullable=False, server_default=text("0")),
    # By worker name: why that worker returned the job. It is passed over until another worker has tried.
    Column("refusals", JSON(none_as_null=True)),
    # A pause after a transient error, or while a worker makes itself free for this job alone.
    Column("not_before", UtcDateTime),
    # What `done_seconds` should reach, according to what its project was charged when it was claimed.
    Column("forecast_seconds", Double),
    # The W3C trace context of its submission.
    Column("traceparent", String(55)),
    # The list of phrases in its options, until they are deleted with its transcript.
    Column("phrases_sha256", String(64)),
    # The speakers of its transcript: label, name as a person gave it, seconds, words.
    Column("speakers", JSON(none_as_null=True)),
    # Where its transcript is written, besides the object store (`spool.domain.archive.outputs`).
    Column("output", JSON(none_as_null=True)),
    # When its uploaded recording, and every word of it, were deleted on purpose.
    Column("source_deleted_at", UtcDateTime),
    Column("transcript_deleted_at", UtcDateTime),
    CheckConstraint(f"state IN ({_STATES})", name="state"),
    CheckConstraint("source_kind IN ('upload', 'file', 's3', 'https', 'live')", name="source_kind"),
    CheckConstraint(
        "(state = 'running') = (lease_owner IS NOT NULL AND lease_until IS NOT NULL)", name="lease"
    ),
    CheckConstraint("attempt >= 0 AND crashes >= 0", name="counts"),
    Index("ix_jobs_created_at_id", "created_at", "id"),
    Index("ix_jobs_state_created_at_id", "state", "created_at", "id"),
    Index("ix_jobs_project_created_at_id", "project", "created_at", "id"),
    Index(
        "ix_jobs_queued",
        "queue",
        "hinted_at",
        sqlite_where=text("state = 'queued'"),
        postgresql_where=text("state = 'queued'"),
    ),
    # Whose turn it is, read from its front: never a scan, however many wait.
    Index(
        "ix_jobs_next",
        "queue",
        "project",
        "priority",
        "deadline_rank",
        "queue_position",
        "id",
        sqlite_where=text("state = 'queued'"),
        postgresql_where=text("state = 'queued'"),
    ),
    Index(
        "ix_jobs_due",
        "deadline_rank",
        sqlite_where=text(f"state = 'queued' AND deadline_rank < {NEVER}"),
        postgresql_where=text(f"state = 'queued' AND deadline_rank < {NEVER}"),
    ),
    # Jobs by end, counted in the index alone, which stores equal entries once.
    Index(
        "ix_jobs_ended",
        "project",
        "state",
        "error_code",
        sqlite_where=text("state IN ('done', 'failed', 'cancelled')"),
        postgresql_where=text("state IN ('done', 'failed', 'cancelled')"),
    ),
    # Not by its lease: a renewal that changes no indexed column writes to no index (HOT updates).
    Index(
        "ix_jobs_running",
        "pool",
        sqlite_where=text("state = 'running'"),
        postgresql_where=text("state = 'running'"),
    ),
    Index(
        "ix_jobs_refused",
        "pool",
        sqlite_where=text("state = 'queued' AND refusals IS NOT NULL"),
        postgresql_where=text("state = 'queued' AND refusals IS NOT NULL"),
    ),
    Index(
        "ix_jobs_suspected",
        "id",
        sqlite_where=text(SUSPECTED),
        postgresql_where=text(SUSPECTED),
    ),
    Index(
        "ix_jobs_batch_id_custom_id",
        "batch_id",
        "custom_id",
        unique=True,
        sqlite_where=text("batch_id IS NOT NULL"),
        postgresql_where=text("batch_id IS NOT NULL"),
    ),
    Index(
        "ix_jobs_batch_id_batch_line",
        "batch_id",
        "batch_line",
        sqlite_where=text("batch_id IS NOT NULL"),
        postgresql_where=text("batch_id IS NOT NULL"),
    ),
    # Whether a batch has unfinished jobs.
    Index(
        "ix_jobs_open_in_batch",
        "batch_id",
        sqlite_where=text(f"batch_id IS NOT NULL AND {STILL_OPEN}"),
        postgresql_where=text(f"batch_id IS NOT NULL AND {STILL_OPEN}"),
    ),
    # The copies of a transcript, for its deletion.
    Index(
        "ix_jobs_reused_from",
        "reused_from",
        sqlite_where=text("reused_from IS NOT NULL"),
        postgresql_where=text("reused_from IS NOT NULL"),
    ),
    # The versions of a recording; the first one has only its own id.
    Index(
        "ix_jobs_rerun_of",
        "rerun_of",
        sqlite_where=text("rerun_of IS NOT NULL"),
        postgresql_where=text("rerun_of IS NOT NULL"),
    ),
    Index(
        "ix_jobs_phrases_sha256",
        "phrases_sha256",
        sqlite_where=text("phrases_sha256 IS NOT NULL"),
        postgresql_where=text("phrases_sha256 IS NOT NULL"),
    ),
    # What retention has yet to examine, by age.
    Index(
        "ix_jobs_kept_source",
        "project",
        "finished_at",
        sqlite_where=text(KEPT_SOURCE),
        postgresql_where=text(KEPT_SOURCE),
    ),
    Index(
        "ix_jobs_kept_transcript",
        "project",
        "finished_at",
        sqlite_where=text(KEPT_TRANSCRIPT),
        postgresql_where=text(KEPT_TRANSCRIPT),
    ),
    # What a job may reuse: the same content, or the same version of an S3 object.
    Index(
        "ix_jobs_known_content",
        "content_sha256",
        sqlite_where=text("state = 'done' AND content_sha256 IS NOT NULL"),
        postgresql_where=text("state = 'done' AND content_sha256 IS NOT NULL"),
    ),
    Index(
        "ix_jobs_known_etag",
        "source_etag",
        sqlite_where=text("state = 'done' AND source_kind = 's3' AND fingerprint IS NOT NULL"),
        postgresql_where=text("state = 'done' AND source_kind = 's3' AND fingerprint IS NOT NULL"),
    ),
)

chunks = Table(
    "chunks",
    metadata,
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("channel", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("core_start", BigInteger, nullable=False),
    Column("core_end", BigInteger, nullable=False),
    Column("start_sample", BigInteger, nullable=False),
    Column("end_sample", BigInteger, nullable=False),
    Column("words", JSON, nullable=False),
    Column("engine_ns", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("fingerprint", String(64)),
    Column("nbest", JSON(none_as_null=True)),
    Column("tail", JSON(none_as_null=True)),
    Column("lattice", JSON(none_as_null=True)),
    Column("language", JSON(none_as_null=True)),
    # For a chunk whose words are given: the CTC head's scores of their tokens, until the job ends.
    Column("emissions", LargeBinary),
    CheckConstraint(
        "start_sample <= core_start AND core_start < core_end AND core_end <= end_sample", name="span"
    ),
)

# The speaker turns of one channel, as one attempt found them. Rows of earlier attempts stay, since their time
# was billed.
speaker_turns = Table(
    "speaker_turns",
    metadata,
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("channel", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("fingerprint", String(64), nullable=False),
    Column("turns", JSON, nullable=False),
    # By speaker a voice print in base64, until the job ends; NULL if not requested.
    Column("prints", JSON(none_as_null=True)),
    # The probability of each speaker in each frame (`worker.diarization.base.SpeakerActivity`).
    Column("activity", LargeBinary),
    Column("engine_ns", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
)

# The SHA-256 of each mebibyte of an uploaded recording, one after the other (`spool.objects.integrity`).
source_hashes = Table(
    "source_hashes",
    metadata,
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("hashes", LargeBinary, nullable=False),
)

# Direct uploads in parts (`spool.store.archive.uploads`), each under the key of its future job.
uploads = Table(
    "uploads",
    metadata,
    Column("id", ID, primary_key=True),
    Column("project", NAME, nullable=False),
    # Chosen beforehand; the job exists only once it is submitted and names the upload.
    Column("job_id", ID, nullable=False),
    Column("state", String(16), nullable=False),
    Column("name", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("part_bytes", BigInteger, nullable=False),
    # What the client announced.
    Column("sha256", String(64)),
    Column("content_type", String(100), nullable=False),
    # The store's id, which knows the parts.
    Column("multipart_id", Text, nullable=False),
    Column("etag", Text),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    CheckConstraint("state IN ('open', 'complete', 'used', 'removed')", name="state"),
    Index("ix_uploads_job_id", "job_id", unique=True),
    # The same file, sent again after an interruption.
    Index("ix_uploads_project_sha256", "project", "sha256"),
    Index("ix_uploads_expires_at", "expires_at"),
)

# The words of an existing transcript that a job aligns (`spool.domain.archive.alignment.Typescript`).
typescripts = Table(
    "typescripts",
    metadata,
    Column("job_id", ID, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
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
