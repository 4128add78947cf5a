"""Batches of jobs: written block by block, looked up, listed, cancelled, retried.

A block of jobs, their outbox lines and the batch's count commit together (law 2). So a submission that was
interrupted runs what it had written, and repeating it under its idempotency key continues from there: within
a batch a `custom_id` creates one job. Progress is in `spool.store.batch_progress`; `api.submission` reads
manifests and listings.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, insert, literal, select, tuple_, update

from spool.domain.events import BATCH_CANCELLED, BATCH_CREATED, BATCH_RECEIVED, BATCH_RETRIED
from spool.domain.jobs import Job, JobState
from spool.domain.manifest import ManifestReport
from spool.errors import Conflict
from spool.ids import new_id
from spool.store.archive.typescripts import keep_typescripts
from spool.store.deletions import whole
from spool.store.event_log import note_batch, note_cancelled
from spool.store.jobs import (
    NewJob,
    columns_of_new,
    job_of_key,
    keep_key,
    keep_phrases,
    key_in_use,
    key_reused,
    retry_values,
)
from spool.store.queue.queues import in_queue
from spool.store.rows import JOB_COLUMNS, add_hints, job_of
from spool.store.sql import Page, epoch_us, fetch_page, find_row, now_utc, read_clock, upsert
from spool.tables import batches, jobs, outbox
from spool.tables.batches import Batch, NewBatch
from spool.tables.record import reader_of, values_of


def create_batch(tx: Connection, new: NewBatch) -> tuple[Batch, bool]:
    """Write the batch's row. The bool is True when the batch is new.

    A repeated idempotency key (per project) with the same hash returns the first batch, which may not be
    closed yet. Raises Conflict when the key was used for another request.
    """
    values = values_of(new, NewBatch)
    values |= {
        "id": new_id("bat"),
        "bad_lines": [],
        "skipped_files": [],
        "created_at": now_utc(),
        "updated_at": now_utc(),
    }
    row = upsert(tx, batches, values, returning=list(batches.c)).one_or_none()
    if row is not None:
        note_batch(tx, BATCH_CREATED, row.id, row.project, {"name": row.name})
        return _batch_of(row), True
    first = find_batch(tx, new)
    if first is None:
        raise key_in_use(new.idempotency_key)
    return first, False


def find_batch(tx: Connection, new: NewBatch) -> Batch | None:
    """The batch created under this idempotency key, if any. Raises Conflict for another request's key."""
    if new.idempotency_key is None:
        return None
    row = tx.execute(
        select(*batches.c).where(
            batches.c.project == new.project, batches.c.idempotency_key == new.idempotency_key
        )
    ).one_or_none()
    if row is not None and row.request_hash != new.request_hash:
        raise key_reused(new.idempotency_key)
    return None if row is None else _batch_of(row)


def add_jobs(tx: Connection, batch_id: str, new: Sequence[NewJob]) -> int:
    """Write a block of jobs with their outbox lines; return how many were new to the batch.

    Raises Conflict when the batch was cancelled: no job is added after its cancellation.
    """
    # This row's lock makes either a cancellation wait for the block, or the block see the cancellation.
    if not _touch(tx, batch_id):
        raise Conflict(f"Batch {batch_id} was cancelled while it was being submitted.")
    times = {"created_at": now_utc(), "queued_at": now_utc(), "updated_at": now_utc()}
    written = 0
    if new:
        # The database's clock, one more for each line, so that the order of the manifest is kept.
        start = tx.scalar(select(epoch_us())) or 0
        rows = [columns_of_new(job) | {"queue_position": start + step} for step, job in enumerate(new)]
        keep_phrases(tx, [job.phrases for job in new])
        # One prepared statement row by row: lists of ten thousand parameters take far longer to parse.
        upsert(tx, jobs, times, rows)
        keep_typescripts(tx, {row["id"]: job.typescript for row, job in zip(rows, new, strict=True)})
        for queue in {row["queue"] for row in rows}:
            written += _add_hints(tx, [row["id"] for row in rows if row["queue"] == queue], queue)
    tx.execute(
        update(batches)
        .where(batches.c.id == batch_id)
        .values(accepted=batches.c.accepted + written, updated_at=now_utc())
    )
    return written


def close_batch(tx: Connection, batch_id: str, report: ManifestReport) -> Batch:
    """Record that the whole submission was read. Closing again changes nothing."""
    closed = tx.execute(
        update(batches)
        .where(batches.c.id == batch_id, batches.c.closed_at.is_(None))
        .values(
            lines=report.lines,
            bad=report.bad,
            bad_lines=[asdict(bad) for bad in report.bad_lines],
            unchanged=report.unchanged,
            skipped=report.skipped,
            skipped_files=[asdict(file) for file in report.skipped_files],
            closed_at=now_utc(),
            updated_at=now_utc(),
        )
    )
    batch = get_batch(tx, batch_id)
    if closed.rowcount:
        counts = {"accepted": batch.accepted, "lines": batch.lines, "bad": batch.bad}
        counts |= {"skipped": batch.skipped, "unchanged": batch.unchanged}
        note_batch(tx, BATCH_RECEIVED, batch_id, batch.project, counts)
    return batch


def get_batch(tx: Connection, batch_id: str) -> Batch:
    """The batch. Raises NotFound."""
    query = select(*batches.c).where(batches.c.id == batch_id)
    return _batch_of(find_row(tx, query, f"There is no batch {batch_id}."))


def list_batches(
    tx: Connection, project: str | None = None, cursor: str | None = None, limit: int = 50
) -> Page[Batch]:
    """Up to `limit` (1 to 1000) batches, newest first, after `cursor`. Raises InvalidRequest."""
    query = select(*batches.c)
    if project is not None:
        query = query.where(batches.c.project == project)
    return fetch_page(tx, batches, query, _batch_of, ("batches", project), cursor=cursor, limit=limit)


def batch_jobs(
    tx: Connection, batch_id: str, after: tuple[int, str] | None, limit: int, state: JobState | None = None
) -> list[Job]:
    """Up to `limit` jobs in the order of the manifest, after the position (line, id)."""
    query = select(*JOB_COLUMNS).where(jobs.c.batch_id == batch_id)
    if state is not None:
        query = query.where(jobs.c.state == state.value)
    if after is not None:
        query = query.where(tuple_(jobs.c.batch_line, jobs.c.id) > tuple_(*map(literal, after)))
    query = query.order_by(jobs.c.batch_line, jobs.c.id).limit(limit)
    return [job_of(row) for row in tx.execute(query)]


def waits_in(tx: Connection, batch_id: str, queue: str) -> bool:
    """Whether a job of the batch waits in this queue."""
    waiting = select(jobs.c.id).where(jobs.c.batch_id == batch_id, *in_queue(queue)).limit(1)
    return tx.execute(waiting).one_or_none() is not None


def _add_hints(tx: Connection, ids: Sequence[str], queue: str) -> int:
    """Write an outbox line for each job that was written, in the order of the manifest; return how many."""
    written = (
        select(jobs.c.id, literal(queue), now_utc()).where(jobs.c.id.in_(ids)).order_by(jobs.c.batch_line)
    )
    columns = [outbox.c.job_id, outbox.c.queue, outbox.c.due_at]
    statement = insert(outbox).from_select(columns, written).execution_options(preserve_rowcount=True)
    return tx.execute(statement).rowcount


def _touch(tx: Connection, batch_id: str) -> bool:
    touched = tx.execute(
        update(batches)
        .where(batches.c.id == batch_id, batches.c.cancelled_at.is_(None))
        .values(updated_at=now_utc())
    )
    return touched.rowcount == 1


_batch_of = reader_of(Batch)


def cancel_batch(tx: Connection, batch_id: str) -> int:
    """Cancel every queued job, ask the running ones to stop, accept no more; returns how many were affected.

    Raises NotFound, and Conflict if every job has already ended.
    """
    project = get_batch(tx, batch_id).project
    tx.execute(
        update(batches)
        .where(batches.c.id == batch_id, batches.c.cancelled_at.is_(None))
        .values(cancelled_at=now_utc(), updated_at=now_utc())
    )
    now = read_clock(tx)
    ended = {"state": JobState.CANCELLED.value, "finished_at": now}
    waiting = _change_all(tx, batch_id, JobState.QUEUED, ended)
    running = _change_all(tx, batch_id, JobState.RUNNING, {"cancel_requested": True})
    if waiting + running == 0 and get_batch(tx, batch_id).closed_at is not None:
        raise Conflict(f"Batch {batch_id} has ended; there is nothing to cancel.")
    note_cancelled(tx, batch_id, now)
    note_batch(tx, BATCH_CANCELLED, batch_id, project, {"cancelled": waiting, "asked_to_stop": running})
    return waiting + running


def retry_failed(tx: Connection, batch_id: str, after: int = -1, limit: int = 1000) -> list[int]:
    """Queue up to `limit` failed jobs again, as `retry_job` does for one, of lines after `after`; returns
    their lines in order. Raises NotFound.

    Call it with the last line until there are none: all jobs in one transaction would block others for too
    long, and a job that fails once more meanwhile is not queued twice.
    """
    project = get_batch(tx, batch_id).project
    failed = (
        select(jobs.c.id)
        .where(
            jobs.c.batch_id == batch_id,
            jobs.c.batch_line > after,
            jobs.c.state == JobState.FAILED.value,
            whole(),
        )
        .order_by(jobs.c.batch_line)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    requeued = tx.execute(
        update(jobs)
        .where(jobs.c.id.in_(list(tx.scalars(failed))), jobs.c.state == JobState.FAILED.value, whole())
        .values(**retry_values())
        .returning(jobs.c.id, jobs.c.queue, jobs.c.batch_line)
    ).all()
    add_hints(tx, [(row.id, row.queue) for row in requeued])
    if requeued:
        note_batch(tx, BATCH_RETRIED, batch_id, project, {"retried": len(requeued)})
    return sorted(row.batch_line for row in requeued)


def was_retried(tx: Connection, batch: Batch, key: str | None) -> bool:
    """Whether a retry under this idempotency key was completed; an interrupted one continues when repeated.

    Raises Conflict when the key was used for another request.
    """
    return key is not None and job_of_key(tx, batch.project, key, _retry_hash(batch)) is not None


def note_retried(tx: Connection, batch: Batch, key: str | None) -> None:
    """Record that the retry under this key is complete."""
    # A key belongs to a job; any job of the batch will do.
    job_id = tx.scalar(select(jobs.c.id).where(jobs.c.batch_id == batch.id).limit(1))
    if key is not None and job_id is not None:
        keep_key(tx, batch.project, key, _retry_hash(batch), job_id)


def _retry_hash(batch: Batch) -> str:
    return hashlib.sha256(f"retry-failed {batch.id}".encode()).hexdigest()


def _change_all(tx: Connection, batch_id: str, state: JobState, values: dict[str, Any]) -> int:
    # Locked in the order of ids, as the relay does, so that the two cannot deadlock.
    wanted = (
        select(jobs.c.id)
        .where(jobs.c.batch_id == batch_id, jobs.c.state == state.value)
        .order_by(jobs.c.id)
        .with_for_update()
    )
    changed = update(jobs).where(jobs.c.id.in_(wanted), jobs.c.state == state.value)
    return tx.execute(changed.values(**values, updated_at=now_utc())).rowcount
