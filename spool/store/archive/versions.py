"""The versions of a recording: the jobs of a project that transcribe the same bytes.

A job transcribes another's recording again (`rerun_of`), or was submitted with content of the same SHA-256.
No version changes another. An uploaded recording belongs to its first job; whoever adds a version locks that
job's row, so that no deletion removes the recording meanwhile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Select,
    bindparam,
    exists,
    func,
    literal_column,
    or_,
    select,
    true,
)

from spool.domain.jobs import Job, JobState
from spool.domain.retention import Content
from spool.errors import Conflict
from spool.store.deletions import refuse_deleted
from spool.store.jobs import NewJob, create_job, get_job, hashes_of_source
from spool.store.rows import JOB_COLUMNS, find_jobs, job_of
from spool.store.sql import ROWS, Page, cursor_of, json_of, position_of, rows_in_json
from spool.tables import jobs

MOST_VERSIONS = 100


def versions_of(tx: Connection, job: Job, limit: int = MOST_VERSIONS) -> list[Job]:
    """The jobs of the project on the recording of `job`, itself among them, oldest first."""
    same = [jobs.c.id == job.recording, jobs.c.rerun_of == job.recording]
    if job.content_sha256 is not None:
        same.append((jobs.c.content_sha256 == job.content_sha256) & (jobs.c.state == JobState.DONE.value))
    query = select(*JOB_COLUMNS).where(or_(*same), jobs.c.project == job.project)
    return [job_of(row) for row in tx.execute(query.order_by(jobs.c.created_at, jobs.c.id).limit(limit))]


def last_done_versions(tx: Connection, of_jobs: Sequence[Job]) -> dict[str, str]:
    """By the id of each of these jobs the id of the newest version of its recording that is done, the job
    itself left out; without those that have none. On PostgreSQL one SELECT."""
    asked = [
        {"own": job.id, "recording": job.recording, "content": job.content_sha256, "of_project": job.project}
        for job in of_jobs
    ]
    if tx.dialect.name == "postgresql":
        rows = tx.execute(_LAST_DONE_OF_ALL, {ROWS: json_of(asked, _ASKED)})
        return {row.own: row.id for row in rows}
    newest = {each["own"]: tx.execute(_LAST_DONE, each).scalar() for each in asked}
    return {own: version for own, version in newest.items() if own is not None and version is not None}


_DONE = jobs.c.state == literal_column("'done'")  # spelt out, as the condition of the index
_ASKED = {
    "own": jobs.c.id.type,
    "recording": jobs.c.id.type,
    "content": jobs.c.content_sha256.type,
    "of_project": jobs.c.project.type,
}


def _last_done(asked: Mapping[str, ColumnElement[Any]]) -> Select[Any]:
    same = or_(
        jobs.c.id == asked["recording"],
        jobs.c.rerun_of == asked["recording"],
        jobs.c.content_sha256 == asked["content"],
    )
    return (
        select(jobs.c.id)
        .where(_DONE, same, jobs.c.project == asked["of_project"], jobs.c.id != asked["own"])
        .order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
        .limit(1)
    )


def _last_done_of_all() -> Select[Any]:
    given = rows_in_json(_ASKED)
    newest = _last_done({name: given.c[name] for name in _ASKED}).lateral("newest")
    return select(given.c.own, newest.c.id).select_from(given.join(newest, true()))


# Built once: every job's end asks.
_LAST_DONE = _last_done({name: bindparam(name, type_=kind) for name, kind in _ASKED.items()})
_LAST_DONE_OF_ALL = _last_done_of_all()


def has_later_transcript(model: str | None = None) -> ColumnElement[bool]:
    """SQL: a job that transcribed the recording of `jobs` again later has a transcript, of this model if one
    is named."""
    later = jobs.alias("later")
    return exists(select(later.c.id).where(*_is_later(later, jobs, model)).correlate(jobs))


def _is_later(later: FromClause, base: FromClause, model: str | None) -> list[ColumnElement[bool]]:
    """SQL: the job transcribed the recording of `base` again later and has a transcript."""
    conditions = [
        later.c.rerun_of == func.coalesce(base.c.rerun_of, base.c.id),
        later.c.project == base.c.project,
        later.c.id > base.c.id,
        later.c.state == JobState.DONE.value,
        later.c.transcript_deleted_at.is_(None),
    ]
    return conditions if model is None else [*conditions, later.c.options["model"].as_string() == model]


def reruns_of_batch(
    tx: Connection, batch_id: str, model: str | None, cursor: str | None, limit: int
) -> Page[tuple[Job, Job]]:
    """The done jobs of a batch that have a later done version, oldest first, each with the newest of them, of
    this model if one is named. Deleted transcripts are skipped. Raises InvalidRequest for another query's
    cursor."""
    scope = ("reruns", batch_id, model)
    base, other = jobs.alias("base"), jobs.alias("other")
    newest = select(other.c.id).where(*_is_later(other, base, model))
    newest = newest.order_by(other.c.id.desc()).limit(1)
    pairs = select(base.c.id.label("base"), newest.scalar_subquery().label("other")).where(
        base.c.batch_id == batch_id,
        base.c.state == JobState.DONE.value,
        base.c.transcript_deleted_at.is_(None),
    )
    if cursor is not None:
        pairs = pairs.where(base.c.id > position_of(cursor, scope, 1)[0])
    pair = pairs.subquery()
    query = select(pair).where(pair.c.other.is_not(None)).order_by(pair.c.base).limit(limit + 1)
    rows = tx.execute(query).all()
    known = find_jobs(tx, {job_id for row in rows for job_id in row})
    items = tuple((known[row.base], known[row.other]) for row in rows[:limit])
    return Page(items, cursor_of(scope, items[-1][0].id) if len(rows) > limit else None)


def rerun_job(tx: Connection, job: Job, new: NewJob) -> tuple[Job, bool]:
    """Create `new` as a version of the recording of `job`. The bool is True when the job is new.

    Raises Deleted if the uploaded recording was deleted, Conflict while a live session has none yet, and
    as `create_job` does.
    """
    if job.source.kind == "live":
        raise Conflict(f"The recording of job {job.id} is not stored yet.")
    tx.execute(select(jobs.c.id).where(jobs.c.id == job.recording).with_for_update())
    refuse_deleted(get_job(tx, job.id), Content.SOURCE)
    hashes = hashes_of_source(tx, job.id)
    # What lies in our store does not change: whoever reads it again has to find the same. So has whoever
    # replaces a stretch of a transcript.
    is_pinned = job.source.kind == "upload" or new.stretch is not None
    content = job.content_sha256 if is_pinned else None
    own = replace(new, rerun_of=job.recording, source=job.source, source_hashes=hashes)
    return create_job(tx, replace(own, content_sha256=content))
