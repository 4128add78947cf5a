"""Jobs as people see them: created, looked up, listed, cancelled, retried.

A job's row and its outbox line are written by the same call, so they commit together (law 2). What workers
write is in `spool.store.queue.leases`.

Idempotency keys: the first request under a key is kept, and a repeat of it is known as one.

A key belongs to a project, and stands beside the SHA-256 of what was asked under it. Knows no request.

Lists of phrases, each kept once under its digest, however many jobs have the same.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, insert, literal, null, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from spool.domain.jobs import Job, JobState, Source, SourceKind
from spool.domain.options import JobOptions, PhraseList
from spool.domain.priority import NORMAL, deadline_rank_of
from spool.errors import Conflict, InvalidRequest, NotFound
from spool.ids import new_id
from spool.store.deletions import refuse_deleted, whole
from spool.store.event_log import note_jobs
from spool.store.rows import JOB_COLUMNS, add_hints, job_of, may_become
from spool.store.sql import epoch_us, now_utc, read_cursor, write_cursor
from spool.tables import ID, idempotency, jobs, phrase_lists
from spool.tables.base import UtcDateTime

__all__ = [
    "Job",
    "JobFilter",
    "NewJob",
    "Page",
    "Source",
    "SourceKind",
    "cancel_job",
    "create_job",
    "get_job",
    "job_counts",
    "list_jobs",
    "retried",
    "retry_job",
    "retry_job_once",
    "values_of",
]

PAGE_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class NewJob:
    """What a submitter asks for. `id` may be chosen beforehand with `new_id("job")`, as an upload's key needs
    it.

    `request_hash` (hex SHA-256 of what was asked) tells a repeat of an `idempotency_key` from its misuse.
    """

    source: Source
    options: JobOptions
    name: str
    project: str = "default"
    pool: str = "cpu"
    worker: str | None = None
    idempotency_key: str | None = None
    request_hash: str | None = None
    id: str | None = None
    reuse: bool = False
    batch_id: str | None = None
    batch_line: int | None = None
    custom_id: str | None = None
    tags: dict[str, str] | None = None
    key_id: str | None = None
    traceparent: str | None = None
    phrases: PhraseList | None = None
    """Those whose digest `options` name."""
    priority: int = NORMAL
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs a list holds; None means any. Created from (inclusive) and to (exclusive) are aware
    datetimes."""

    state: JobState | None = None
    project: str | None = None
    pool: str | None = None
    worker: str | None = None
    batch: str | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Jobs, newest first, and the cursor of the page after them (None at the end)."""

    items: tuple[Job, ...]
    next_cursor: str | None


def create_job(tx: Connection, new: NewJob) -> tuple[Job, bool]:
    """Write the job and its outbox line; the bool tells whether it is new.

    A repeated idempotency key (per project) with the same request hash answers with the first job. Raises
    Conflict when the key was used for another request.
    """
    if new.idempotency_key is None:
        return _insert_job(tx, new), True
    asked = (new.project, new.idempotency_key, new.request_hash or "")
    first = job_of_key(tx, *asked)
    if first is not None:
        return get_job(tx, first), False
    with tx.begin_nested() as savepoint:
        job = _insert_job(tx, new)
        if keep_key(tx, *asked, job.id):
            return job, True
        savepoint.rollback()  # a transaction beside us was first
    first = job_of_key(tx, *asked)
    if first is None:
        raise Conflict(f"The idempotency key {new.idempotency_key!r} is in use by another request right now.")
    return get_job(tx, first), False


def get_job(tx: Connection, job_id: str) -> Job:
    """The job. Raises NotFound."""
    row = tx.execute(select(*JOB_COLUMNS).where(jobs.c.id == job_id)).one_or_none()
    if row is None:
        raise NotFound(f"There is no job {job_id}.")
    return job_of(row)


def list_jobs(tx: Connection, wanted: JobFilter, cursor: str | None = None, limit: int = 50) -> Page:
    """Up to `limit` (1 to 1000) jobs, newest first, after `cursor`.

    Raises InvalidRequest for a limit out of range or a cursor that belongs to another filter.
    """
    if not 1 <= limit <= PAGE_LIMIT:
        raise InvalidRequest(f"A page holds 1 to {PAGE_LIMIT} jobs.")
    query = select(*JOB_COLUMNS).where(*_conditions(wanted))
    if cursor is not None:
        created_at, job_id = read_cursor(cursor, wanted)
        # A row comparison, since both databases search the index by it; said with OR they would scan.
        place = tuple_(literal(created_at, UtcDateTime()), literal(job_id, ID))
        query = query.where(tuple_(jobs.c.created_at, jobs.c.id) < place)
    query = query.order_by(jobs.c.created_at.desc(), jobs.c.id.desc()).limit(limit + 1)
    found = [job_of(row) for row in tx.execute(query)]
    more = len(found) > limit
    items = tuple(found[:limit])
    last = items[-1] if more else None
    return Page(items, write_cursor(last.created_at, last.id, wanted) if last else None)


def cancel_job(tx: Connection, job_id: str) -> Job:
    """Cancel: at once when queued; a running job's worker is asked, and stops at its next renewal or chunk.

    Raises NotFound, and Conflict when the job has ended already.
    """
    queued = jobs.c.state == JobState.QUEUED.value
    row = tx.execute(
        update(jobs)
        .where(jobs.c.id == job_id, may_become(JobState.CANCELLED))
        .values(
            state=case((queued, JobState.CANCELLED.value), else_=jobs.c.state),
            finished_at=case((queued, now_utc()), else_=null()),
            cancel_requested=~queued,
            updated_at=now_utc(),
        )
        .returning(*JOB_COLUMNS)
    ).one_or_none()
    if row is None:
        job = get_job(tx, job_id)
        raise Conflict(f"Job {job_id} is {job.state} and cannot be cancelled.")
    job = job_of(row)
    if job.state is JobState.CANCELLED:
        note_jobs(tx, job)
    return job


def retry_job(tx: Connection, job_id: str) -> Job:
    """Queue a failed or cancelled job again. Its saved chunks stay; crashes, transient_failures and time are
    forgotten.

    Raises NotFound, Deleted, and Conflict in any other state.
    """
    row = tx.execute(
        update(jobs)
        .where(
            jobs.c.id == job_id,
            may_become(JobState.QUEUED),
            jobs.c.state.in_([JobState.FAILED.value, JobState.CANCELLED.value]),
            whole(),
        )
        .values(**retried())
        .returning(*JOB_COLUMNS)
    ).one_or_none()
    if row is None:
        job = get_job(tx, job_id)
        refuse_deleted(job)
        raise Conflict(f"Job {job_id} is {job.state}; only a failed or cancelled job can be retried.")
    job = job_of(row)
    add_hints(tx, [(job.id, job.pool, job.worker)])
    note_jobs(tx, job)
    return job


def retry_job_once(tx: Connection, job_id: str, key: str) -> tuple[Job, bool]:
    """Retry under an idempotency key of the job's project: a repeat changes nothing, the bool tells.

    Raises NotFound; Conflict as `retry_job` does, which leaves the key free, and for another request's key.
    """
    job = get_job(tx, job_id)
    asked = (job.project, key, hashlib.sha256(f"retry {job_id}".encode()).hexdigest())
    if keep_key(tx, *asked, job_id):
        return retry_job(tx, job_id), True
    if job_of_key(tx, *asked) is None:
        raise Conflict(f"The idempotency key {key!r} is in use by another request right now.")
    return get_job(tx, job_id), False


def retried() -> dict[str, Any]:
    """What a retry sets: queued as if new, with nothing left of how it ended."""
    emptied = (
        "not_before",
        "refusals",
        "hinted_at",
        "started_at",
        "finished_at",
        "error_code",
        "error_message",
    )
    return {
        "state": JobState.QUEUED.value,
        "crashes": 0,
        "transient_failures": 0,
        "ran_seconds": 0.0,
        "cancel_requested": False,
        "queued_at": now_utc(),
        "queue_position": epoch_us(),
        "updated_at": now_utc(),
    } | dict.fromkeys(emptied, null())


def job_counts(tx: Connection, project: str | None = None) -> dict[JobState, int]:
    """How many jobs are in each state (all five, zeros too)."""
    query = select(jobs.c.state, func.count()).group_by(jobs.c.state)
    if project is not None:
        query = query.where(jobs.c.project == project)
    counted = {JobState(state): int(number) for state, number in tx.execute(query)}
    return {state: counted.get(state, 0) for state in JobState}


def values_of(new: NewJob) -> dict[str, Any]:
    """The columns of a new job's row but its times, which are the database's."""
    return {
        "id": new.id or new_id("job"),
        "project": new.project,
        "state": JobState.QUEUED.value,
        "name": new.name,
        "source_kind": new.source.kind,
        "source_uri": new.source.uri,
        "source_size": new.source.size,
        "source_etag": new.source.etag,
        "options": new.options.model_dump(mode="json"),
        "pool": new.pool,
        "worker": new.worker,
        "reuse": new.reuse,
        "batch_id": new.batch_id,
        "batch_line": new.batch_line,
        "custom_id": new.custom_id,
        "tags": new.tags,
        "key_id": new.key_id,
        "traceparent": new.traceparent,
        "priority": new.priority,
        "deadline": new.deadline,
        "deadline_rank": deadline_rank_of(new.deadline),
        "phrases_sha256": new.phrases and new.phrases.sha256,
    }


def _insert_job(tx: Connection, new: NewJob) -> Job:
    times = {
        "created_at": now_utc(),
        "queued_at": now_utc(),
        "updated_at": now_utc(),
        "queue_position": epoch_us(),
    }
    keep_phrases(tx, [new.phrases])
    row = tx.execute(insert(jobs).values(**values_of(new), **times).returning(*JOB_COLUMNS)).one()
    job = job_of(row)
    add_hints(tx, [(job.id, job.pool, job.worker)])
    note_jobs(tx, job)
    return job


def _conditions(wanted: JobFilter) -> list[ColumnElement[bool]]:
    equal = {
        jobs.c.state: wanted.state.value if wanted.state else None,
        jobs.c.project: wanted.project,
        jobs.c.pool: wanted.pool,
        jobs.c.worker: wanted.worker,
        jobs.c.batch_id: wanted.batch,
    }
    conditions: list[ColumnElement[bool]] = [c == value for c, value in equal.items() if value is not None]
    if wanted.created_from is not None:
        conditions.append(jobs.c.created_at >= wanted.created_from)
    if wanted.created_to is not None:
        conditions.append(jobs.c.created_at < wanted.created_to)
    return conditions


def job_of_key(tx: Connection, project: str, key: str, request_hash: str) -> str | None:
    """The id of the job that the key's first request was about. Raises Conflict for another request's key."""
    found = tx.execute(
        select(idempotency.c.job_id, idempotency.c.request_hash).where(
            idempotency.c.project == project, idempotency.c.key == key
        )
    ).one_or_none()
    if found is None:
        return None
    if found.request_hash != request_hash:
        raise Conflict(f"The idempotency key {key!r} was used for another request.")
    return str(found.job_id)


def keep_key(tx: Connection, project: str, key: str, request_hash: str, job_id: str) -> bool:
    """Keep the key; False when there is one already. Waits for a transaction that is writing the same."""
    build = sqlite_insert if tx.dialect.name == "sqlite" else postgresql_insert
    kept = tx.execute(
        build(idempotency)
        .values(project=project, key=key, request_hash=request_hash, job_id=job_id, created_at=now_utc())
        .on_conflict_do_nothing()
        .returning(idempotency.c.job_id)
    )
    return kept.one_or_none() is not None


def keep_phrases(tx: Connection, lists: Iterable[PhraseList | None]) -> None:
    """Keep the lists that are not there yet; None is no list."""
    asked = {told.sha256: told for told in lists if told is not None}
    if not asked:
        return
    held = select(phrase_lists.c.sha256).where(phrase_lists.c.sha256.in_(list(asked)))
    # Held until the jobs that name them are committed, so that no deletion takes them for unused meanwhile.
    there = set(tx.scalars(held.order_by(phrase_lists.c.sha256).with_for_update(read=True)))
    build = sqlite_insert if tx.dialect.name == "sqlite" else postgresql_insert
    # In the order of their digests, so that two transactions never wait for each other in a circle.
    rows = [
        {"sha256": digest, "phrases": list(asked[digest].phrases)} for digest in sorted(set(asked) - there)
    ]
    if rows:
        tx.execute(build(phrase_lists).values(created_at=now_utc()).on_conflict_do_nothing(), rows)


def phrases_of(tx: Connection, sha256: str) -> tuple[str, ...]:
    """The phrases of a list. Raises NotFound."""
    found = tx.scalar(select(phrase_lists.c.phrases).where(phrase_lists.c.sha256 == sha256))
    if found is None:
        raise NotFound(f"There is no list of phrases {sha256}.")
    return tuple(found)
