"""The tables of jobs, their queue and the ledger, as revision 0001 made them."""

import sqlalchemy as sa
from alembic import op

from migrations.types import UtcDateTime, partial


def create() -> None:
    """Create them."""
    _batches()
    _jobs()
    _jobs_indexes()
    _locks()
    _phrase_lists()
    _quota_use()
    _turns()
    _workers()
    _chunk_sums()
    _chunks()
    _cost_lines()
    _deletions()
    _idempotency()
    _outbox()


def _batches() -> None:
    op.create_table(
        "batches",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("reuse", sa.Boolean(), nullable=False),
        sa.Column("accepted", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("lines", sa.Integer()),
        sa.Column("bad", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("bad_lines", sa.JSON(), nullable=False),
        sa.Column("skipped", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("skipped_files", sa.JSON(), nullable=False),
        sa.Column("idempotency_key", sa.String(length=255)),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("closed_at", UtcDateTime()),
        sa.Column("cancelled_at", UtcDateTime()),
        sa.Column("ended_at", UtcDateTime()),
        sa.Column("key_id", sa.String(length=40)),
        sa.Column("priority", sa.SmallInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("deadline", UtcDateTime()),
        sa.Column("late", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("expected_at", UtcDateTime()),
        sa.Column("expected_basis", sa.Text()),
        sa.CheckConstraint("accepted >= 0 AND bad >= 0", name=op.f("ck_batches_counts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batches")),
    )
    op.create_index("ix_batches_created_at_id", "batches", ["created_at", "id"])
    op.create_index("ix_batches_deadline", "batches", ["deadline"], **partial("deadline IS NOT NULL"))
    op.create_index("ix_batches_project_created_at_id", "batches", ["project", "created_at", "id"])
    op.create_index(
        "ix_batches_project_idempotency_key",
        "batches",
        ["project", "idempotency_key"],
        unique=True,
        **partial("idempotency_key IS NOT NULL"),
    )


_LEASE = "(state = 'running') = (lease_owner IS NOT NULL AND lease_until IS NOT NULL)"
_SUSPECTED = "suspects IS NOT NULL AND state IN ('queued', 'running')"


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("source_kind", sa.String(length=16), nullable=False),
        sa.Column("source_uri", sa.Text(), nullable=False),
        sa.Column("source_size", sa.BigInteger()),
        sa.Column("source_etag", sa.Text()),
        sa.Column("source_connection", sa.String(length=64)),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("queue", sa.String(length=1000), nullable=False),
        sa.Column("pool", sa.String(length=200)),
        sa.Column("worker", sa.String(length=200)),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("crashes", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("suspects", sa.JSON(none_as_null=True)),
        sa.Column("transient_failures", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("ran_seconds", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_owner", sa.String(length=200)),
        sa.Column("lease_until", UtcDateTime()),
        sa.Column("cancel_requested", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("audio_seconds", sa.Double()),
        sa.Column("done_seconds", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("queued_at", UtcDateTime(), nullable=False),
        sa.Column("hinted_at", UtcDateTime()),
        sa.Column("started_at", UtcDateTime()),
        sa.Column("finished_at", UtcDateTime()),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("error_code", sa.String(length=64)),
        sa.Column("error_message", sa.Text()),
        sa.Column("transcript_key", sa.Text()),
        sa.Column("transcript_sha256", sa.String(length=64)),
        sa.Column("coverage", sa.Double()),
        sa.Column("decoded_seconds", sa.Double()),
        sa.Column("speech_coverage", sa.Double()),
        sa.Column("complete", sa.Boolean()),
        sa.Column("expected_seconds", sa.Double()),
        sa.Column("words", sa.Integer()),
        sa.Column("warnings", sa.JSON(none_as_null=True)),
        sa.Column("language", sa.String(length=8)),
        sa.Column("batch_id", sa.String(length=40)),
        sa.Column("batch_line", sa.Integer()),
        sa.Column("custom_id", sa.String(length=200)),
        sa.Column("tags", sa.JSON(none_as_null=True)),
        sa.Column("live_parts", sa.JSON(none_as_null=True)),
        sa.Column("reuse", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("reused_from", sa.String(length=40)),
        sa.Column("rerun_of", sa.String(length=40)),
        sa.Column("content_sha256", sa.String(length=64)),
        sa.Column("fingerprint", sa.String(length=64)),
        sa.Column("key_id", sa.String(length=40)),
        sa.Column("priority", sa.SmallInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("deadline", UtcDateTime()),
        sa.Column("deadline_rank", sa.BigInteger(), server_default=sa.text("(253402300799)"), nullable=False),
        sa.Column("queue_position", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("refusals", sa.JSON(none_as_null=True)),
        sa.Column("not_before", UtcDateTime()),
        sa.Column("forecast_seconds", sa.Double()),
        sa.Column("traceparent", sa.String(length=55)),
        sa.Column("phrases_sha256", sa.String(length=64)),
        sa.Column("speakers", sa.JSON(none_as_null=True)),
        sa.Column("output", sa.JSON(none_as_null=True)),
        sa.Column("source_deleted_at", UtcDateTime()),
        sa.Column("transcript_deleted_at", UtcDateTime()),
        sa.CheckConstraint(_LEASE, name=op.f("ck_jobs_lease")),
        sa.CheckConstraint(
            "source_kind IN ('upload', 'file', 's3', 'https', 'live')", name=op.f("ck_jobs_source_kind")
        ),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'done', 'failed', 'cancelled')", name=op.f("ck_jobs_state")
        ),
        sa.CheckConstraint("attempt >= 0 AND crashes >= 0", name=op.f("ck_jobs_counts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )


def _jobs_indexes() -> None:
    op.create_index(
        "ix_jobs_batch_id_batch_line", "jobs", ["batch_id", "batch_line"], **partial("batch_id IS NOT NULL")
    )
    op.create_index(
        "ix_jobs_batch_id_custom_id",
        "jobs",
        ["batch_id", "custom_id"],
        unique=True,
        **partial("batch_id IS NOT NULL"),
    )
    op.create_index("ix_jobs_created_at_id", "jobs", ["created_at", "id"])
    op.create_index(
        "ix_jobs_due",
        "jobs",
        ["deadline_rank"],
        **partial("state = 'queued' AND deadline_rank < 253402300799"),
    )
    op.create_index(
        "ix_jobs_ended",
        "jobs",
        ["project", "state", "error_code"],
        **partial("state IN ('done', 'failed', 'cancelled')"),
    )
    op.create_index(
        "ix_jobs_kept_source",
        "jobs",
        ["project", "finished_at"],
        **partial(
            "source_kind IN ('upload', 'live') AND finished_at IS NOT NULL AND source_deleted_at IS NULL"
        ),
    )
    op.create_index(
        "ix_jobs_kept_transcript",
        "jobs",
        ["project", "finished_at"],
        **partial("finished_at IS NOT NULL AND transcript_deleted_at IS NULL"),
    )
    op.create_index(
        "ix_jobs_known_content",
        "jobs",
        ["content_sha256"],
        **partial("state = 'done' AND content_sha256 IS NOT NULL"),
    )
    op.create_index(
        "ix_jobs_known_etag",
        "jobs",
        ["source_etag"],
        **partial("state = 'done' AND source_kind = 's3' AND fingerprint IS NOT NULL"),
    )
    op.create_index(
        "ix_jobs_next",
        "jobs",
        ["queue", "project", "priority", "deadline_rank", "queue_position", "id"],
        **partial("state = 'queued'"),
    )
    op.create_index(
        "ix_jobs_open_in_batch",
        "jobs",
        ["batch_id"],
        **partial("batch_id IS NOT NULL AND state NOT IN ('done', 'failed', 'cancelled')"),
    )
    op.create_index(
        "ix_jobs_phrases_sha256", "jobs", ["phrases_sha256"], **partial("phrases_sha256 IS NOT NULL")
    )
    op.create_index("ix_jobs_project_created_at_id", "jobs", ["project", "created_at", "id"])
    op.create_index("ix_jobs_queued", "jobs", ["queue", "hinted_at"], **partial("state = 'queued'"))
    op.create_index(
        "ix_jobs_refused", "jobs", ["pool"], **partial("state = 'queued' AND refusals IS NOT NULL")
    )
    op.create_index("ix_jobs_suspected", "jobs", ["id"], **partial(_SUSPECTED))
    op.create_index("ix_jobs_reused_from", "jobs", ["reused_from"], **partial("reused_from IS NOT NULL"))
    op.create_index("ix_jobs_rerun_of", "jobs", ["rerun_of"], **partial("rerun_of IS NOT NULL"))
    op.create_index("ix_jobs_running", "jobs", ["pool"], **partial("state = 'running'"))
    op.create_index("ix_jobs_state_created_at_id", "jobs", ["state", "created_at", "id"])
    if op.get_bind().dialect.name == "postgresql":
        op.execute("CREATE STATISTICS jobs_model ON (options ->> 'model') FROM jobs")


def _locks() -> None:
    op.create_table(
        "locks",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("owner", sa.String(length=200), nullable=False),
        sa.Column("held_until", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_locks")),
    )


def _phrase_lists() -> None:
    op.create_table(
        "phrase_lists",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("phrases", sa.JSON(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_phrase_lists")),
    )


def _quota_use() -> None:
    op.create_table(
        "quota_use",
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("day_samples", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("month_nanos", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("before_nanos", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("project", name=op.f("pk_quota_use")),
    )


def _turns() -> None:
    op.create_table(
        "turns",
        sa.Column("pool", sa.String(length=200), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("share", sa.Double(), server_default=sa.text("1"), nullable=False),
        sa.Column("start", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.Column("served", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.Column("claims", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("mean_seconds", sa.Double()),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("pool", "project", name=op.f("pk_turns")),
    )


def _workers() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("pool", sa.String(length=200), nullable=False),
        sa.Column("host", sa.String(length=200), nullable=False),
        sa.Column("chip", sa.String(length=200), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("models", sa.JSON(), nullable=False),
        sa.Column("price_per_hour_micros", sa.BigInteger(), nullable=False),
        sa.Column("concurrency", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("seen_at", UtcDateTime(), nullable=False),
        sa.Column("stopped_at", UtcDateTime()),
        sa.Column("busy_ns", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("engine_busy_ns", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("unbilled_ns", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("counts", sa.JSON(none_as_null=True)),
        sa.Column("gpu_cores", sa.Integer()),
        sa.Column("memory_bytes", sa.BigInteger()),
        sa.Column("pinned_models", sa.JSON(none_as_null=True)),
        sa.Column("loaded_models", sa.JSON(none_as_null=True)),
        sa.Column("backend", sa.String(length=16)),
        sa.Column("model_facts", sa.JSON(none_as_null=True)),
        sa.Column("quality", sa.JSON(none_as_null=True)),
        sa.CheckConstraint(
            "state IN ('starting', 'ready', 'draining', 'resting', 'unwell', 'stopped')",
            name=op.f("ck_workers_state"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    op.create_index("ix_workers_seen_at", "workers", ["seen_at"])


def _chunk_sums() -> None:
    op.create_table(
        "chunk_sums",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("engine_ns", sa.BigInteger(), nullable=False),
        sa.Column("audio_samples", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_chunk_sums_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "attempt", name=op.f("pk_chunk_sums")),
    )


def _chunks() -> None:
    op.create_table(
        "chunks",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("channel", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("core_start", sa.BigInteger(), nullable=False),
        sa.Column("core_end", sa.BigInteger(), nullable=False),
        sa.Column("start_sample", sa.BigInteger(), nullable=False),
        sa.Column("end_sample", sa.BigInteger(), nullable=False),
        sa.Column("words", sa.JSON(), nullable=False),
        sa.Column("engine_ns", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("fingerprint", sa.String(length=64)),
        sa.Column("nbest", sa.JSON(none_as_null=True)),
        sa.Column("tail", sa.JSON(none_as_null=True)),
        sa.Column("lattice", sa.JSON(none_as_null=True)),
        sa.Column("language", sa.JSON(none_as_null=True)),
        sa.Column("emissions", sa.LargeBinary()),
        sa.CheckConstraint(
            "start_sample <= core_start AND core_start < core_end AND core_end <= end_sample",
            name=op.f("ck_chunks_span"),
        ),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_chunks_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "channel", "number", name=op.f("pk_chunks")),
    )


def _cost_lines() -> None:
    op.create_table(
        "cost_lines",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("worker_id", sa.String(length=40), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("price_per_hour_micros", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("wasted", sa.Boolean(), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("pool", sa.String(length=200), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("engine_ns", sa.BigInteger(), nullable=False),
        sa.Column("audio_samples", sa.BigInteger(), nullable=False),
        sa.Column("cost_nanos", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", UtcDateTime(), nullable=False),
        sa.Column("key_id", sa.String(length=40)),
        sa.Column("batch_id", sa.String(length=40)),
        sa.Column("tags", sa.JSON(none_as_null=True)),
        sa.CheckConstraint(
            "engine_ns >= 0 AND audio_samples >= 0 AND cost_nanos >= 0", name=op.f("ck_cost_lines_amounts")
        ),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name=op.f("fk_cost_lines_worker_id_workers")),
        sa.PrimaryKeyConstraint(
            "job_id",
            "attempt",
            "worker_id",
            "day",
            "price_per_hour_micros",
            "wasted",
            name=op.f("pk_cost_lines"),
        ),
    )
    op.create_index("ix_cost_lines_day", "cost_lines", ["day"])


def _deletions() -> None:
    op.create_table(
        "deletions",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("content", sa.String(length=16), nullable=False),
        sa.Column("asked_by", sa.String(length=200), nullable=False),
        sa.Column("objects", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("done_at", UtcDateTime()),
        sa.Column("due_at", UtcDateTime()),
        sa.CheckConstraint("content IN ('source', 'transcript')", name=op.f("ck_deletions_content")),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_deletions_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deletions")),
    )
    op.create_index("ix_deletions_due_at", "deletions", ["due_at"], **partial("due_at IS NOT NULL"))
    op.create_index(op.f("ix_deletions_job_id"), "deletions", ["job_id"])


def _idempotency() -> None:
    op.create_table(
        "idempotency",
        sa.Column("project", sa.String(length=200), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("request_hash", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_idempotency_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("project", "key", name=op.f("pk_idempotency")),
    )
    op.create_index(op.f("ix_idempotency_created_at"), "idempotency", ["created_at"])
    op.create_index(op.f("ix_idempotency_job_id"), "idempotency", ["job_id"])


def _outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("queue", sa.String(length=1000), nullable=False),
        sa.Column("due_at", UtcDateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_outbox_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
    )
    op.create_index(op.f("ix_outbox_job_id"), "outbox", ["job_id"])
    op.create_index("ix_outbox_queue_due_at_id", "outbox", ["queue", "due_at", "id"])
