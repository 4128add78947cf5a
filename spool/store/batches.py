"""Batches: written block by block with their jobs, looked up and listed.

A block of jobs, their outbox lines and the batch's count commit together (law 2), so a submission that broke
off has run what it had written, and the same submission under its idempotency key goes on from there: within
a batch a `custom_id` makes one job. How far a batch is stands in `spool.store.batch_progress`;
`spool.store.batches` cancels and retries.

What a person does to a whole batch: cancel what has not ended, queue again what failed.

Knows nothing of how a batch came to be.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, literal, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from spool.domain.events import BATCH_CANCELLED, BATCH_CREATED, BATCH_RECEIVED, BATCH_RETRIED
from spool.domain.jobs import Job, JobState, queue_name
from spool.domain.priority import NORMAL
from spool.errors import Conflict, InvalidRequest, NotFound
from spool.ids import new_id
from spool.store.deletions import whole
from spool.store.event_log import note_batch, note_cancelled
from spool.store.jobs import PAGE_LIMIT, NewJob, job_of_key, keep_key, keep_phrases, retried, values_of
from spool.store.rows import JOB_COLUMNS, add_hints, job_of
from spool.store.sql import epoch_us, now_utc, read_cursor, write_cursor
from spool.tables import ID, batches, jobs, outbox
from spool.tables.base import UtcDateTime


@dataclass(frozen=True, slots=True)
class NewBatch:
    """What a submitter asks for. `request_hash` tells a repeat of an `idempotency_key` from its misuse."""

    project: str
    name: str
    source: str
    reuse: bool
    request_hash: str
    idempotency_key: str | None = None
    key_id: str | None = None
    priority: int = NORMAL
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as its row stood when it was read; its jobs are counted elsewhere."""

    id: str
    project: str
    name: str
    source: str
    """The address it was listed from, or `manifest`."""
    reuse: bool
    accepted: int
    """Jobs made."""
    lines: int | None
    """Lines, objects or files read; None until all were."""
    bad: int
    bad_lines: list[dict[str, Any]]
    """The first bad lines: `line`, `custom_id`, `code`, `message`."""
    idempotency_key: str | None
    request_hash: str
    created_at: datetime
    updated_at: datetime
    closed_at: datetime | None
    """When all was read; before that more jobs may come."""
    cancelled_at: datetime | None
    ended_at: datetime | None = None
    """When it was seen that all of its jobs had ended."""
    key_id: str | None = None
    """The API key that handed it in."""
    priority: int = NORMAL
    deadline: datetime | None = None
    late: bool = False
    """By the last reckoning, the deadline cannot be met any more."""
    expected_at: datetime | None = None
    """When it will end, by the last reckoning."""
    expected_basis: str | None = None


@dataclass(frozen=True, slots=True)
class BatchPage:
    """Batches, newest first, and the cursor of the page after them (None at the end)."""

    items: tuple[Batch, ...]
    next_cursor: str | None


def create_batch(tx: Connection, new: NewBatch) -> tuple[Batch, bool]:
    """Write the batch's row; the bool tells whether it is new.

    A repeated idempotency key (per project) with the same hash answers with the first batch, which may not be
    closed yet. Raises Conflict when the key was used for another request.
    """
    build = sqlite_insert if tx.dialect.name == "sqlite" else postgresql_insert
    row = tx.execute(
        build(batches)
        .values(
            id=new_id("bat"),
            project=new.project,
            name=new.name,
            source=new.source,
            reuse=new.reuse,
            bad_lines=[],
            idempotency_key=new.idempotency_key,
            request_hash=new.request_hash,
            key_id=new.key_id,
            priority=new.priority,
            deadline=new.deadline,
            created_at=now_utc(),
            updated_at=now_utc(),
        )
        .on_conflict_do_nothing()
        .returning(*batches.c)
    ).one_or_none()
    if row is not None:
        note_batch(tx, BATCH_CREATED, row.id, row.project, {"name": row.name})
        return _batch_of(row), True
    first = find_batch(tx, new)
    if first is None:
        raise Conflict(f"The idempotency key {new.idempotency_key!r} is in use by another request right now.")
    return first, False


def find_batch(tx: Connection, new: NewBatch) -> Batch | None:
    """The batch that was made under this idempotency key, if any. Raises Conflict for another request's."""
    if new.idempotency_key is None:
        return None
    row = tx.execute(
        select(*batches.c).where(
            batches.c.project == new.project, batches.c.idempotency_key == new.idempotency_key
        )
    ).one_or_none()
    if row is not None and row.request_hash != new.request_hash:
        raise Conflict(f"The idempotency key {new.idempotency_key!r} was used for another request.")
    return None if row is None else _batch_of(row)


def add_jobs(tx: Connection, batch_id: str, new: Sequence[NewJob]) -> int:
    """Write a block of jobs with their outbox lines; how many were new to the batch.

    Raises Conflict when the batch was cancelled: no job comes after its cancellation.
    """
    # This row's lock makes a cancellation wait for the block, or the block see the cancellation.
    if not _touch(tx, batch_id):
        raise Conflict(f"Batch {batch_id} was cancelled while it was handed in.")
    build = sqlite_insert if tx.dialect.name == "sqlite" else postgresql_insert
    times = {"created_at": now_utc(), "queued_at": now_utc(), "updated_at": now_utc()}
    written = 0
    if new:
        # The database's clock, with a step from line to line, so that the order of the manifest is kept.
        place = tx.scalar(select(epoch_us())) or 0
        rows = [values_of(job) | {"queue_position": place + step} for step, job in enumerate(new)]
        keep_phrases(tx, [job.phrases for job in new])
        # One prepared statement row by row: lists of ten thousand parameters take far longer to read.
        tx.execute(build(jobs).values(**times).on_conflict_do_nothing(), rows)
        for pool, worker in {(job.pool, job.worker) for job in new}:
            ids = [row["id"] for row in rows if (row["pool"], row["worker"]) == (pool, worker)]
            written += _add_hints(tx, ids, queue_name(pool, worker))
    tx.execute(
        update(batches)
        .where(batches.c.id == batch_id)
        .values(accepted=batches.c.accepted + written, updated_at=now_utc())
    )
    return written


def close_batch(
    tx: Connection, batch_id: str, lines: int, bad: int, bad_lines: Sequence[dict[str, Any]]
) -> Batch:
    """All of it was read. Closing again changes nothing."""
    closed = tx.execute(
        update(batches)
        .where(batches.c.id == batch_id, batches.c.closed_at.is_(None))
        .values(lines=lines, bad=bad, bad_lines=list(bad_lines), closed_at=now_utc(), updated_at=now_utc())
    )
    batch = get_batch(tx, batch_id)
    if closed.rowcount:
        told = {"accepted": batch.accepted, "lines": lines, "bad": bad}
        note_batch(tx, BATCH_RECEIVED, batch_id, batch.project, told)
    return batch


def get_batch(tx: Connection, batch_id: str) -> Batch:
    """The batch. Raises NotFound."""
    row = tx.execute(select(*batches.c).where(batches.c.id == batch_id)).one_or_none()
    if row is None:
        raise NotFound(f"There is no batch {batch_id}.")
    return _batch_of(row)


def list_batches(
    tx: Connection, project: str | None = None, cursor: str | None = None, limit: int = 50
) -> BatchPage:
    """Up to `limit` (1 to 1000) batches, newest first, after `cursor`. Raises InvalidRequest."""
    if not 1 <= limit <= PAGE_LIMIT:
        raise InvalidRequest(f"A page holds 1 to {PAGE_LIMIT} batches.")
    asked = ("batches", project)
    query = select(*batches.c)
    if project is not None:
        query = query.where(batches.c.project == project)
    if cursor is not None:
        created_at, batch_id = read_cursor(cursor, asked)
        place = tuple_(literal(created_at, UtcDateTime()), literal(batch_id, ID))
        query = query.where(tuple_(batches.c.created_at, batches.c.id) < place)
    query = query.order_by(batches.c.created_at.desc(), batches.c.id.desc()).limit(limit + 1)
    found = [_batch_of(row) for row in tx.execute(query)]
    items = tuple(found[:limit])
    last = items[-1] if len(found) > limit else None
    return BatchPage(items, write_cursor(last.created_at, last.id, asked) if last else None)


def batch_jobs(
    tx: Connection, batch_id: str, after: tuple[int, str] | None, limit: int, state: JobState | None = None
) -> list[Job]:
    """Up to `limit` jobs in the order of the manifest, after the place (line, id)."""
    query = select(*JOB_COLUMNS).where(jobs.c.batch_id == batch_id)
    if state is not None:
        query = query.where(jobs.c.state == state.value)
    if after is not None:
        query = query.where(tuple_(jobs.c.batch_line, jobs.c.id) > tuple_(*map(literal, after)))
    query = query.order_by(jobs.c.batch_line, jobs.c.id).limit(limit)
    return [job_of(row) for row in tx.execute(query)]


def _add_hints(tx: Connection, ids: Sequence[str], queue: str) -> int:
    """One outbox line for each of the jobs that were written, in the order of the manifest; how many."""
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


def _batch_of(row: Row[Any]) -> Batch:
    return Batch(**row._mapping)


def cancel_batch(tx: Connection, batch_id: str) -> int:
    """Cancel every job that waits, ask the running ones to stop, and take no more; how many that concerned.

    Raises NotFound, and Conflict when all has ended already.
    """
    project = get_batch(tx, batch_id).project
    tx.execute(
        update(batches)
        .where(batches.c.id == batch_id, batches.c.cancelled_at.is_(None))
        .values(cancelled_at=now_utc(), updated_at=now_utc())
    )
    now: datetime = tx.execute(select(now_utc())).scalar_one()
    ended = {"state": JobState.CANCELLED.value, "finished_at": now}
    waiting = _change_all(tx, batch_id, JobState.QUEUED, ended)
    running = _change_all(tx, batch_id, JobState.RUNNING, {"cancel_requested": True})
    if waiting + running == 0 and get_batch(tx, batch_id).closed_at is not None:
        raise Conflict(f"Batch {batch_id} has ended; there is nothing to cancel.")
    note_cancelled(tx, batch_id, now)
    note_batch(tx, BATCH_CANCELLED, batch_id, project, {"cancelled": waiting, "asked_to_stop": running})
    return waiting + running


def retry_failed(tx: Connection, batch_id: str, limit: int = 1000) -> int:
    """Queue up to `limit` failed jobs again, as `retry_job` does one; how many. Raises NotFound.

    Call it until it says 0: so many jobs in one transaction would hold the others up.
    """
    project = get_batch(tx, batch_id).project
    failed = (
        select(jobs.c.id)
        .where(jobs.c.batch_id == batch_id, jobs.c.state == JobState.FAILED.value, whole())
        .order_by(jobs.c.batch_line)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    again = tx.execute(
        update(jobs)
        .where(jobs.c.id.in_(list(tx.scalars(failed))), jobs.c.state == JobState.FAILED.value, whole())
        .values(**retried())
        .returning(jobs.c.id, jobs.c.pool, jobs.c.worker)
    ).all()
    add_hints(tx, [(row.id, row.pool, row.worker) for row in again])
    if again:
        note_batch(tx, BATCH_RETRIED, batch_id, project, {"retried": len(again)})
    return len(again)


def was_retried(tx: Connection, batch: Batch, key: str | None) -> bool:
    """Whether a retry under this idempotency key came to its end; one that broke off goes on when repeated.

    Raises Conflict when the key was used for another request.
    """
    return key is not None and job_of_key(tx, batch.project, key, _asked(batch)) is not None


def note_retried(tx: Connection, batch: Batch, key: str | None) -> None:
    """The retry under this key has come to its end."""
    # Keys are kept beside a job; any of the batch will do.
    job_id = tx.scalar(select(jobs.c.id).where(jobs.c.batch_id == batch.id).limit(1))
    if key is not None and job_id is not None:
        keep_key(tx, batch.project, key, _asked(batch), job_id)


def _asked(batch: Batch) -> str:
    return hashlib.sha256(f"retry-failed {batch.id}".encode()).hexdigest()


def _change_all(tx: Connection, batch_id: str, state: JobState, values: dict[str, Any]) -> int:
    # Locked in the order of ids, as in the relay's own update, so that the two never wait in a circle.
    wanted = (
        select(jobs.c.id)
        .where(jobs.c.batch_id == batch_id, jobs.c.state == state.value)
        .order_by(jobs.c.id)
        .with_for_update()
    )
    changed = update(jobs).where(jobs.c.id.in_(wanted), jobs.c.state == state.value)
    return tx.execute(changed.values(**values, updated_at=now_utc())).rowcount
