"""Recordings that clients send straight to the object store, in parts.

An upload has the id of its future job from the beginning, and its object that job's key, so nothing is
copied. States: `open → complete → used`; one that was deleted or has expired is `removed` until its bytes are
gone (`spool.background.upload_sweeper`), then its row is deleted too. A used one stays until it expires, to
tell which job uses it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from sqlalchemy import Connection, delete, insert, select, update

from spool.domain.jobs import Job, Source
from spool.errors import Conflict
from spool.ids import new_id
from spool.store.jobs import NewJob, create_job, get_job, job_of_key
from spool.store.sql import count_rows, find_row, lock_name, now_utc, seconds_from_now
from spool.tables import jobs, uploads
from spool.tables.record import reader_of, values_of
from spool.tables.uploads import NewUpload, StoredUpload, UploadState

MOST_OPEN = 1000
"""The most unused uploads of a project."""

_WAITING = (UploadState.OPEN.value, UploadState.COMPLETE.value)


def create_upload(tx: Connection, new: NewUpload, days: float) -> StoredUpload:
    """The new upload, which expires after this many days. Raises Conflict if the project has too many."""
    lock_name(tx, f"uploads {new.project}")  # so that of several requests at once none passes the limit
    refuse_too_many(tx, new.project)
    upload_id = new_id("upl")
    fields = values_of(new, NewUpload)
    times = {"created_at": now_utc(), "expires_at": seconds_from_now(timedelta(days=days).total_seconds())}
    tx.execute(insert(uploads).values(id=upload_id, state=UploadState.OPEN.value, **fields, **times))
    return get_upload(tx, upload_id)


def get_upload(tx: Connection, upload_id: str) -> StoredUpload:
    """The upload. Raises NotFound, also for a removed one."""
    there = (uploads.c.id == upload_id, uploads.c.state != UploadState.REMOVED.value)
    query = select(*uploads.c).where(*there)
    return _upload_of(find_row(tx, query, f"There is no upload {upload_id}."))


def find_uploads(tx: Connection, ids: Iterable[str]) -> dict[str, StoredUpload]:
    """The uploads with these ids, by id, without removed ones."""
    c = uploads.c
    there = (c.id.in_(list(ids)), c.state != UploadState.REMOVED.value)
    return {row.id: _upload_of(row) for row in tx.execute(select(*c).where(*there))}


def find_same_upload(tx: Connection, project: str, name: str, size: int, sha256: str) -> StoredUpload | None:
    """The newest unused upload of the same file."""
    c = uploads.c
    same = (c.project == project, c.sha256 == sha256, c.bytes == size, c.name == name)
    waiting = (c.state.in_(_WAITING), c.expires_at > now_utc())
    row = tx.execute(select(*c).where(*same, *waiting).order_by(c.id.desc()).limit(1)).one_or_none()
    return None if row is None else _upload_of(row)


def refuse_too_many(tx: Connection, project: str) -> None:
    """Raise Conflict if the project has too many uploads to begin another."""
    if count_rows(tx, uploads.c.project == project, uploads.c.state.in_(_WAITING)) >= MOST_OPEN:
        raise Conflict(f"Project {project} has {MOST_OPEN} unused uploads; submit or delete some.")


def note_complete(tx: Connection, upload_id: str, etag: str) -> StoredUpload:
    """Record that the object is complete. Raises NotFound."""
    is_open = (uploads.c.id == upload_id, uploads.c.state == UploadState.OPEN.value)
    tx.execute(update(uploads).where(*is_open).values(state=UploadState.COMPLETE.value, etag=etag))
    return get_upload(tx, upload_id)


def create_job_of_upload(tx: Connection, upload_id: str, new: NewJob) -> tuple[Job, bool]:
    """Create `new` with the upload as its recording. The bool is True when the job is new.

    Raises NotFound, Conflict for an upload that is not complete or used by another job, and as `create_job`
    does.
    """
    query = select(*uploads.c).where(uploads.c.id == upload_id).with_for_update()
    upload = _upload_of(find_row(tx, query, f"There is no upload {upload_id}."))
    if upload.state is UploadState.USED and (key := new.idempotency_key) is not None:
        first = job_of_key(tx, new.project, key, new.request_hash or "")
        if first is not None:
            return get_job(tx, first), False
    refuse_unready(upload)
    job, created = create_job(tx, with_upload(upload, new))
    if created:
        used = update(uploads).where(uploads.c.id == upload_id)
        tx.execute(used.values(state=UploadState.USED.value))
    return job, created


def refuse_unready(upload: StoredUpload) -> None:
    """Raise Conflict for an upload that is not complete, or used by a job."""
    if upload.state is UploadState.USED:
        raise Conflict(f"Upload {upload.id} is already the recording of job {upload.job_id}; rerun that job.")
    if upload.state is not UploadState.COMPLETE:
        raise Conflict(f"Upload {upload.id} is {upload.state}; complete it first.")


def with_upload(upload: StoredUpload, new: NewJob) -> NewJob:
    """`new` with the upload as its recording."""
    source = Source("upload", upload.key, upload.bytes, upload.etag)
    return replace(new, id=upload.job_id, source=source, content_sha256=upload.sha256)


def take_uploads(tx: Connection, batch_id: str, new: Sequence[NewJob]) -> tuple[list[NewJob], list[NewJob]]:
    """Mark the uploads of a batch's jobs as used.

    Returns the jobs to be written, and those whose upload was used or removed by another request; jobs that
    the batch already has are in neither.
    """
    asked = {job.id for job in new if job.id is not None and job.source.kind == "upload"}
    if not asked:
        return list(new), []
    complete = (uploads.c.job_id.in_(asked), uploads.c.state == UploadState.COMPLETE.value)
    # Locked in the order of ids, so that two batches with the same uploads cannot deadlock.
    locked = select(uploads.c.job_id).where(*complete).order_by(uploads.c.id).with_for_update()
    free = set(tx.scalars(locked))
    tx.execute(update(uploads).where(uploads.c.job_id.in_(free)).values(state=UploadState.USED.value))
    taken = asked - free
    lost = taken - find_in_batch(tx, batch_id, taken)
    return [job for job in new if job.id not in taken], [job for job in new if job.id in lost]


def find_in_batch(tx: Connection, batch_id: str, job_ids: Iterable[str]) -> set[str]:
    """Those of these jobs that belong to the batch."""
    own = select(jobs.c.id).where(jobs.c.id.in_(list(job_ids)), jobs.c.batch_id == batch_id)
    return set(tx.scalars(own))


def give_up(tx: Connection, upload_id: str) -> StoredUpload:
    """Mark the upload as removed; its bytes are to be removed next. Raises NotFound, and Conflict if a job
    uses it."""
    waiting = (uploads.c.id == upload_id, uploads.c.state.in_(_WAITING))
    gone = update(uploads).where(*waiting).values(state=UploadState.REMOVED.value, expires_at=now_utc())
    row = tx.execute(gone.returning(*uploads.c)).one_or_none()
    if row is not None:
        return _upload_of(row)
    upload = get_upload(tx, upload_id)
    raise Conflict(f"Upload {upload_id} is the recording of job {upload.job_id}; delete that job's content.")


def expire(tx: Connection, limit: int) -> list[StoredUpload]:
    """Mark up to `limit` expired uploads as removed, and forget used ones; returns those whose bytes are to
    be removed."""
    c = uploads.c
    tx.execute(delete(uploads).where(c.state == UploadState.USED.value, c.expires_at <= now_utc()))
    due = (c.state != UploadState.USED.value, c.expires_at <= now_utc())
    old = list(tx.scalars(select(c.id).where(*due).order_by(c.expires_at).limit(limit)))
    # Checked again for each row, since a job may have named it in the meantime.
    gone = update(uploads).where(c.id.in_(old), *due).values(state=UploadState.REMOVED.value).returning(*c)
    return [_upload_of(row) for row in tx.execute(gone)]


def forget(tx: Connection, upload_id: str) -> None:
    """Delete the row of an upload whose bytes are gone."""
    removed = uploads.c.state == UploadState.REMOVED.value
    tx.execute(delete(uploads).where(uploads.c.id == upload_id, removed))


def postpone(tx: Connection, upload_id: str, seconds: float) -> None:
    """Try again later, since the object store refused."""
    tx.execute(update(uploads).where(uploads.c.id == upload_id).values(expires_at=seconds_from_now(seconds)))


def find_job_ids(tx: Connection, job_ids: Iterable[str]) -> set[str]:
    """Those of these job ids that an upload has reserved."""
    return set(tx.scalars(select(uploads.c.job_id).where(uploads.c.job_id.in_(list(job_ids)))))


def list_overdue(tx: Connection, seconds: float) -> list[StoredUpload]:
    """Uploads that expired longer ago than this and still exist."""
    late = uploads.c.expires_at < seconds_from_now(-seconds)
    return [_upload_of(row) for row in tx.execute(select(*uploads.c).where(late).order_by(uploads.c.id))]


_upload_of = reader_of(StoredUpload)
