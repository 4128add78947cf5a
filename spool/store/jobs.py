"""Jobs as submitters use them: create, get, list, cancel, retry; with idempotency keys and phrase lists.

A job's row and its outbox line are written by the same call, so they commit together (law 2). An idempotency
key belongs to a project and is stored with the hash of its first request; a phrase list is stored once under
its digest, however many jobs use it. `spool.store.queue.leases` has what workers write.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, insert, null, or_, select, update

from spool.domain.archive.alignment import Typescript
from spool.domain.fleet.routing import ANY_MACHINE, Requirement, Route
from spool.domain.jobs import Job, JobState, SubmittedJob
from spool.domain.priority import deadline_rank_of
from spool.domain.search.phrases import PhraseList
from spool.errors import AudioEmpty, AudioNotFinite, AudioUnreadable, Conflict, NotFound
from spool.ids import new_id
from spool.store.archive.typescripts import keep_typescripts
from spool.store.deletions import refuse_deleted, whole
from spool.store.event_log import note_jobs
from spool.store.rows import JOB_COLUMNS, add_hints, job_of, may_become
from spool.store.sql import Page, count_by, epoch_us, fetch_page, find_row, now_utc, upsert
from spool.tables import idempotency, jobs, phrase_lists, source_hashes
from spool.tables.record import values_of

_FAULTS_OF_BYTES = (AudioEmpty.code, AudioUnreadable.code, AudioNotFinite.code)
"""Why a job fails again for as long as its recording has the same bytes."""


@dataclass(frozen=True)
class NewJob(SubmittedJob):
    """A job to be created. `id` may be chosen beforehand with `new_id("job")`: an upload's key needs it.

    `request_hash` (hex SHA-256 of the request) tells a repeated `idempotency_key` from a misused one.
    """

    id: str | None = None
    requires: Requirement = ANY_MACHINE
    idempotency_key: str | None = None
    request_hash: str | None = None
    phrases: PhraseList | None = None
    """The list whose digest `options` names."""
    typescript: Typescript | None = None
    """The text to align, whose digest `options` names."""
    source_hashes: bytes | None = None
    """Of an upload's blocks, as `spool.objects.integrity.hash_file` gives them."""
    content_sha256: str | None = None
    """The announced content hash of its recording; a worker that reads other content fails the job."""
    received_sha256: str | None = None
    """The content hash of a recording that the API received."""
    deduplicate: bool = False
    """Whether an earlier job of the same submission is returned instead of creating this one."""

    @property
    def route(self) -> Route:
        """Which workers may take the job."""
        model = self.options.model if self.pool is None else None
        reader = None if self.options.rescore is None else self.options.rescore.second_model
        return Route(self.pool, self.worker, model, self.requires, reader, live=self.options.live is not None)

    @property
    def submission_sha256(self) -> str | None:
        """What makes two submissions of a project the same: the version of the recording, and the options.
        For an upload also its name. None if the version is unknown, or if an earlier job is run again."""
        source, content = self.source, self.received_sha256 or self.content_sha256
        if source.kind == "upload" and content is not None:
            recording: list[str | None] = [content, self.name]
        elif source.kind != "upload" and source.etag is not None:
            recording = [source.uri, source.connection, source.etag]
        else:
            return None
        if self.rerun_of is not None:
            return None
        identity = json.dumps([recording, self.options.model_dump(mode="json")], sort_keys=True)
        return hashlib.sha256(identity.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list; None means any. `name` is a part of the recording's name in any case, `tag` a tag's
    key and its value (None: any), `language` the one spoken for most of the recording, `content` the SHA-256
    of a recording that was transcribed. `created_from` (inclusive) and `created_to` (exclusive) are aware
    datetimes."""

    state: JobState | None = None
    project: str | None = None
    pool: str | None = None
    worker: str | None = None
    batch: str | None = None
    name: str | None = None
    tag: tuple[str, str | None] | None = None
    language: str | None = None
    content: str | None = None
    created_from: datetime | None = None
    created_to: datetime | None = None


def create_job(tx: Connection, new: NewJob) -> tuple[Job, bool]:
    """Write the job and its outbox line. The bool is True when the job is new.

    A repeated idempotency key (per project) with the same request hash returns the first job; so does the
    same submission if `new` says to deduplicate. Raises Conflict when the key was used for another request.
    """
    request = (new.project, new.idempotency_key or "", new.request_hash or "")
    first = None if new.idempotency_key is None else job_of_key(tx, *request)
    if first is None and new.deduplicate:
        first = find_submitted(tx, [new]).get(new.submission_sha256)
    if first is not None:
        return get_job(tx, first), False
    if new.idempotency_key is None:
        return _insert_job(tx, new), True
    with tx.begin_nested() as savepoint:
        job = _insert_job(tx, new)
        if keep_key(tx, *request, job.id):
            return job, True
        savepoint.rollback()  # a concurrent transaction was first
    first = job_of_key(tx, *request)
    if first is None:
        raise key_in_use(new.idempotency_key)
    return get_job(tx, first), False


def find_submitted(
    tx: Connection, new: Sequence[NewJob], batch_id: str | None = None
) -> dict[str | None, str]:
    """The latest job, by `submission_sha256`, of each of these submissions to one project that was made
    before; with `batch_id` only jobs of other batches, so that a batch of recordings that were tried alone is
    whole. Jobs that failed, were cancelled or lost their transcript do not count, but those that failed for
    their recording's own bytes do: they would fail again."""
    digests = {job.submission_sha256 for job in new} - {None}
    if not digests:
        return {}
    query = select(jobs.c.submission_sha256, jobs.c.id).where(
        jobs.c.submission_sha256.in_(digests),
        jobs.c.project == new[0].project,
        or_(
            jobs.c.state.not_in([JobState.FAILED.value, JobState.CANCELLED.value]),
            and_(jobs.c.state == JobState.FAILED.value, jobs.c.error_code.in_(_FAULTS_OF_BYTES)),
        ),
        jobs.c.transcript_deleted_at.is_(None),
        *(() if batch_id is None else (jobs.c.batch_id.is_not(None), jobs.c.batch_id != batch_id)),
    )
    return {row.submission_sha256: row.id for row in tx.execute(query.order_by(jobs.c.created_at, jobs.c.id))}


def get_job(tx: Connection, job_id: str) -> Job:
    """The job. Raises NotFound."""
    query = select(*JOB_COLUMNS).where(jobs.c.id == job_id)
    return job_of(find_row(tx, query, f"There is no job {job_id}."))


def list_jobs(tx: Connection, wanted: JobFilter, cursor: str | None = None, limit: int = 50) -> Page[Job]:
    """Up to `limit` (1 to 1000) jobs, newest first, after `cursor`.

    Raises InvalidRequest for a limit out of range or a cursor that belongs to another filter.
    """
    query = select(*JOB_COLUMNS).where(*filter_conditions(wanted))
    return fetch_page(tx, jobs, query, job_of, wanted, cursor=cursor, limit=limit)


def cancel_job(tx: Connection, job_id: str) -> Job:
    """Cancel a queued job at once; ask a running job's worker to stop, at its next lease renewal or chunk.

    Raises NotFound, and Conflict when the job has already ended.
    """
    queued = jobs.c.state == JobState.QUEUED.value
    row = tx.execute(
        update(jobs)
        .where(jobs.c.id == job_id, may_become(JobState.CANCELLED))
        .values(
            state=case((queued, JobState.CANCELLED.value), else_=jobs.c.state),
            finished_at=case((queued, now_utc()), else_=null()),
            cancel_requested=~queued,
            error_code=case((queued, null()), else_=jobs.c.error_code),
            error_message=case((queued, null()), else_=jobs.c.error_message),
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
    """Queue a failed or cancelled job again. Keep its saved chunks; reset its counts of crashes and transient
    failures and its running time.

    Raises NotFound, Deleted, and Conflict in any other state.
    """
    ended_early = jobs.c.state.in_([JobState.FAILED.value, JobState.CANCELLED.value])
    job = queue_again(tx, job_id, ended_early)
    if job is None:
        job = get_job(tx, job_id)
        refuse_deleted(job)
        raise Conflict(f"Job {job_id} is {job.state}; only a failed or cancelled job can be retried.")
    return job


def queue_again(
    tx: Connection, job_id: str, *conditions: ColumnElement[bool], **changes: object
) -> Job | None:
    """Queue a job that has ended and meets the conditions, with these changes; None if it does not."""
    row = tx.execute(
        update(jobs)
        .where(jobs.c.id == job_id, may_become(JobState.QUEUED), whole(), *conditions)
        .values(**retry_values() | changes)
        .returning(*JOB_COLUMNS)
    ).one_or_none()
    if row is None:
        return None
    job = job_of(row)
    add_hints(tx, [(job.id, job.queue)])
    note_jobs(tx, job)
    return job


def retry_job_once(tx: Connection, job_id: str, key: str) -> tuple[Job, bool]:
    """Retry under an idempotency key of the job's project. The bool is False for a repeat, which changes
    nothing.

    Raises NotFound; Conflict as `retry_job` does, which leaves the key free, and for another request's key.
    """
    return do_once(tx, job_id, key, f"retry {job_id}", lambda: retry_job(tx, job_id))


def do_once(
    tx: Connection, job_id: str, key: str, request: str, change: Callable[[], Job]
) -> tuple[Job, bool]:
    """Make the change under an idempotency key of the job's project; `request` describes it. The bool is
    False for a repeat, which changes nothing. Raises Conflict for another request's key."""
    known = (get_job(tx, job_id).project, key, hashlib.sha256(request.encode()).hexdigest())
    if keep_key(tx, *known, job_id):
        return change(), True
    if job_of_key(tx, *known) is None:
        raise key_in_use(key)
    return get_job(tx, job_id), False


def retry_values() -> dict[str, Any]:
    """The column values that a retry sets: queued as if new, without a trace of its previous end."""
    cleared = ["hinted_at", "started_at", "finished_at", "error_code", "error_message", "not_before"]
    cleared += ["refusals", "suspects"]
    return {
        "state": JobState.QUEUED.value,
        "crashes": 0,
        "retries": jobs.c.retries + 1,
        "transient_failures": 0,
        "ran_seconds": 0.0,
        "cancel_requested": False,
        "queued_at": now_utc(),
        "queue_position": epoch_us(),
        "updated_at": now_utc(),
    } | dict.fromkeys(cleared, null())


def find_queued(tx: Connection, job_ids: Collection[str]) -> frozenset[str]:
    """Those of these jobs that are queued."""
    query = select(jobs.c.id).where(jobs.c.id.in_(job_ids), jobs.c.state == JobState.QUEUED.value)
    return frozenset(tx.scalars(query))


def job_counts(tx: Connection, project: str | None = None) -> dict[JobState, int]:
    """How many jobs are in each state (all five, zeros too)."""
    of_project = () if project is None else (jobs.c.project == project,)
    counts = count_by(tx, jobs.c.state, *of_project)
    return {state: counts.get(state.value, 0) for state in JobState}


def columns_of_new(new: NewJob) -> dict[str, Any]:
    """The column values of a new job, except the times, which come from the database."""
    return {
        "id": new.id or new_id("job"),
        "state": JobState.QUEUED.value,
        "queue": new.route.queue,
        "content_sha256": new.content_sha256,
        "submission_sha256": new.submission_sha256,
        "deadline_rank": deadline_rank_of(new.deadline),
        "phrases_sha256": new.phrases and new.phrases.sha256,
    } | values_of(new, SubmittedJob)


def _insert_job(tx: Connection, new: NewJob) -> Job:
    times = {
        "created_at": now_utc(),
        "queued_at": now_utc(),
        "updated_at": now_utc(),
        "queue_position": epoch_us(),
    }
    keep_phrases(tx, [new.phrases])
    row = tx.execute(insert(jobs).values(**columns_of_new(new), **times).returning(*JOB_COLUMNS)).one()
    job = job_of(row)
    if new.source_hashes is not None:
        tx.execute(insert(source_hashes).values(job_id=job.id, hashes=new.source_hashes))
    keep_typescripts(tx, {job.id: new.typescript})
    add_hints(tx, [(job.id, job.queue)])
    note_jobs(tx, job)
    return job


def hashes_of_source(tx: Connection, job_id: str) -> bytes | None:
    """The hashes of an upload's blocks; None for a source that was not uploaded."""
    hashes: bytes | None = tx.scalar(select(source_hashes.c.hashes).where(source_hashes.c.job_id == job_id))
    return hashes


def keep_source_hashes(tx: Connection, job: Job, hashes: bytes) -> None:
    """Record the hashes of a direct upload's blocks, which its first reader computed, if there are none and
    the claim that read this job still holds."""
    claim = (jobs.c.attempt == job.attempt, jobs.c.lease_owner == job.lease_owner)
    runs = (jobs.c.id == job.id, *claim, jobs.c.state == JobState.RUNNING.value)
    if tx.execute(select(jobs.c.id).where(*runs).with_for_update()).one_or_none() is not None:
        upsert(tx, source_hashes, {"job_id": job.id, "hashes": hashes})


def tag_of(text: str) -> tuple[str, str | None]:
    """The tag that `key` or `key=value` asks for."""
    key, equals, value = text.partition("=")
    return key, value if equals else None


def filter_conditions(wanted: JobFilter) -> list[ColumnElement[bool]]:
    """SQL: the job matches the filter."""
    equal = {
        jobs.c.state: wanted.state.value if wanted.state else None,
        jobs.c.project: wanted.project,
        jobs.c.pool: wanted.pool,
        jobs.c.worker: wanted.worker,
        jobs.c.batch_id: wanted.batch,
        jobs.c.language: wanted.language,
    }
    conditions: list[ColumnElement[bool]] = [c == value for c, value in equal.items() if value is not None]
    if wanted.content is not None:
        # Where only done jobs have it, which the index holds.
        conditions += [jobs.c.content_sha256 == wanted.content, jobs.c.state == JobState.DONE.value]
    if wanted.name is not None:
        conditions.append(jobs.c.name.icontains(wanted.name, autoescape=True))
    if wanted.tag is not None:
        key, value = wanted.tag
        tag = jobs.c.tags[key].as_string()
        conditions.append(tag.is_not(None) if value is None else tag == value)
    if wanted.created_from is not None:
        conditions.append(jobs.c.created_at >= wanted.created_from)
    if wanted.created_to is not None:
        conditions.append(jobs.c.created_at < wanted.created_to)
    return conditions


def job_of_key(tx: Connection, project: str, key: str, request_hash: str) -> str | None:
    """The id of the job that the key's first request created. Raises Conflict for another request's key."""
    row = tx.execute(
        select(idempotency.c.job_id, idempotency.c.request_hash).where(
            idempotency.c.project == project, idempotency.c.key == key
        )
    ).one_or_none()
    if row is None:
        return None
    if row.request_hash != request_hash:
        raise key_reused(key)
    return str(row.job_id)


def key_reused(key: str | None) -> Conflict:
    """The error for a key that came with another request before."""
    return Conflict(f"The idempotency key {key!r} was used for another request; use a new key.")


def key_in_use(key: str | None) -> Conflict:
    """The error for a key whose first request has not been committed yet."""
    return Conflict(f"Another request with the idempotency key {key!r} is in progress; retry in a moment.")


def keep_key(tx: Connection, project: str, key: str, request_hash: str, job_id: str) -> bool:
    """Store the key; False if it exists already. Waits for a transaction that is writing the same key."""
    row = {"project": project, "key": key, "request_hash": request_hash, "job_id": job_id}
    kept = upsert(tx, idempotency, row | {"created_at": now_utc()}, returning=[idempotency.c.job_id])
    return kept.one_or_none() is not None


def keep_phrases(tx: Connection, lists: Iterable[PhraseList | None]) -> None:
    """Store the lists that are not stored yet; None is no list."""
    by_digest = {phrases.sha256: phrases for phrases in lists if phrases is not None}
    if not by_digest:
        return
    stored = select(phrase_lists.c.sha256).where(phrase_lists.c.sha256.in_(list(by_digest)))
    # Locked until the jobs that name them are committed, so that no deletion removes them as unused
    # meanwhile.
    known = set(tx.scalars(stored.order_by(phrase_lists.c.sha256).with_for_update(read=True)))
    # In the order of their digests, so that two transactions cannot deadlock.
    rows = [
        {"sha256": digest, "phrases": list(by_digest[digest].phrases)}
        for digest in sorted(set(by_digest) - known)
    ]
    if rows:
        upsert(tx, phrase_lists, {"created_at": now_utc()}, rows)


def phrases_of(tx: Connection, sha256: str) -> tuple[str, ...]:
    """The phrases of a list. Raises NotFound."""
    phrases = tx.scalar(select(phrase_lists.c.phrases).where(phrase_lists.c.sha256 == sha256))
    if phrases is None:
        raise NotFound(f"There is no phrase list {sha256}.")
    return tuple(phrases)
