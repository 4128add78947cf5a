"""The passages that people review: listed by doubt, individually or by recording, and marked as checked.

`spool.store.transcripts.passages` writes them with a job's end; a correction marks those whose words it
touches, in its own commit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Integer,
    Row,
    exists,
    literal,
    literal_column,
    select,
    tuple_,
    update,
)

from spool.domain.archive.passages import Spoken
from spool.domain.archive.review import ReviewPassage, review_passages
from spool.domain.jobs import Job
from spool.domain.retention import Content
from spool.domain.transcript import Transcript
from spool.errors import InvalidRequest
from spool.store.archive.versions import has_later_transcript, last_done_versions
from spool.store.database import Database
from spool.store.deletions import refuse_deleted
from spool.store.jobs import JobFilter, filter_conditions, get_job
from spool.store.rows import find_jobs
from spool.store.sql import Page, cursor_of, find_row, now_utc, position_of
from spool.store.transcripts.passages import passage_of, update_recording
from spool.tables import ID, jobs, passages
from spool.tables import review_passages as table
from spool.tables import review_recordings as recordings
from spool.tables import review_sample_passages as sample_passages
from spool.tables.record import reader_of
from spool.tables.review import RecordingSums

_KEY = (table.c.doubt, table.c.job_id, table.c.number)
_RECORDING_KEY = (recordings.c.doubt, recordings.c.job_id)


@dataclass(frozen=True, slots=True)
class ReviewFilter:
    """Which passages to list. model: of jobs of this model; reason: doubtful for this reason, one of
    `REASONS`; checked: the checked passages instead of the unchecked ones; sample: those of a sample; job:
    those of one job. newest: only each recording's newest transcript, or its newest of `model`."""

    jobs: JobFilter
    model: str | None = None
    reason: str | None = None
    checked: bool = False
    sample: str | None = None
    job: str | None = None
    newest: bool = False


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A passage with its job; who checked it and when, if it was checked."""

    job: Job
    passage: ReviewPassage
    checked_by: str | None
    checked_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class DoubtfulRecording(RecordingSums):
    """A job whose recording has unchecked passages, and their sums."""

    job: Job


class FinishedJob(NamedTuple):
    """A finished transcript of a job; content_sha256: of the recording, where it is not in the job's row
    yet."""

    job: Job
    content_sha256: str | None
    transcript: Transcript


def doubts_in(database: Database, finished: Sequence[FinishedJob]) -> list[list[ReviewPassage]]:
    """What each of these has to be reviewed, beside the words of the version before."""
    asked = [
        replace(one.job, content_sha256=one.content_sha256 or one.job.content_sha256) for one in finished
    ]
    with database.look() as tx:
        before = last_done_versions(tx, asked)
    words: dict[str, list[Spoken]] = {}
    if before:
        with database.read() as tx:
            words = {job_id: _words_of(tx, version) for job_id, version in before.items()}
    return [review_passages(one.transcript, words.get(one.job.id, ())) for one in finished]


def list_review(
    tx: Connection, wanted: ReviewFilter, cursor: str | None = None, limit: int = 50
) -> Page[Reviewed]:
    """Up to `limit` (1 to 200) passages after `cursor`, the most doubtful first.

    Raises InvalidRequest for a limit out of range or a cursor that belongs to another list.
    """
    if not 1 <= limit <= 200:
        raise InvalidRequest(f"A page holds 1 to 200 passages, not {limit}.")
    query = select(table).where(
        table.c.checked_at.is_not(None) if wanted.checked else table.c.checked_at.is_(None)
    )
    if wanted.jobs.project is not None:
        query = query.where(table.c.project == wanted.jobs.project)
    if wanted.job is not None:
        query = query.where(table.c.job_id == wanted.job)
    narrowed = wanted.model is not None or wanted.jobs != JobFilter(project=wanted.jobs.project)
    if narrowed or wanted.newest:
        of_jobs = [jobs.c.id == table.c.job_id, *_of_jobs(wanted.jobs, wanted.model)]
        if wanted.newest:
            of_jobs.append(~has_later_transcript(wanted.model))
        query = query.where(exists(select(jobs.c.id).where(*of_jobs).correlate(table)))
    if wanted.reason is not None:
        query = query.where(table.c[wanted.reason] > 0)
    if wanted.sample is not None:
        drawn = select(sample_passages.c.number).where(
            sample_passages.c.sample_id == wanted.sample,
            sample_passages.c.job_id == table.c.job_id,
            sample_passages.c.number == table.c.number,
        )
        query = query.where(exists(drawn.correlate(table)))
    if cursor is not None:
        query = query.where(tuple_(*_KEY) < _position(cursor, wanted))
    rows = tx.execute(query.order_by(*(column.desc() for column in _KEY)).limit(limit + 1)).all()
    last = rows[limit - 1] if len(rows) > limit else None
    after = None if last is None else cursor_of(wanted, repr(last.doubt), last.job_id, str(last.number))
    owners = find_jobs(tx, {row.job_id for row in rows[:limit]})
    return Page(tuple(_read_review(owners[row.job_id], row) for row in rows[:limit]), after)


def list_recordings(
    tx: Connection,
    matching: JobFilter,
    model: str | None = None,
    reason: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[DoubtfulRecording]:
    """Up to `limit` (1 to 200) recordings with passages that nobody checked after `cursor`, the most doubtful
    first: each with its newest transcript, of `model` where one is named.

    Raises InvalidRequest for a limit out of range or a cursor that belongs to another list.
    """
    if not 1 <= limit <= 200:
        raise InvalidRequest(f"A page holds 1 to 200 recordings, not {limit}.")
    scope = ("recordings", matching, model, reason)
    of_jobs = recordings.join(jobs, jobs.c.id == recordings.c.job_id)
    query = select(recordings).select_from(of_jobs).where(recordings.c.unchecked > literal_column("0"))
    query = query.where(*_of_jobs(matching, model), ~has_later_transcript(model))
    if matching.project is not None:
        query = query.where(recordings.c.project == matching.project)
    if reason is not None:
        query = query.where(recordings.c[reason] > 0)
    if cursor is not None:
        doubt, job_id = position_of(cursor, scope, 2)
        query = query.where(
            tuple_(*_RECORDING_KEY) < tuple_(literal(float(doubt), Double()), literal(job_id, ID))
        )
    rows = tx.execute(query.order_by(*(column.desc() for column in _RECORDING_KEY)).limit(limit + 1)).all()
    last = rows[limit - 1] if len(rows) > limit else None
    after = None if last is None else cursor_of(scope, repr(last.doubt), last.job_id)
    owners = find_jobs(tx, {row.job_id for row in rows[:limit]})
    return Page(tuple(_recording(owners[row.job_id], row) for row in rows[:limit]), after)


def mark_checked(tx: Connection, job_id: str, number: int, author: str, *, checked: bool = True) -> Reviewed:
    """Mark a passage as checked with its words right, or undo that.

    Raises NotFound if there is no such passage, Deleted if the transcript was deleted.
    """
    job = get_job(tx, job_id)
    refuse_deleted(job, Content.TRANSCRIPT)
    marked = (
        update(table)
        .where(table.c.job_id == job_id, table.c.number == number)
        .values(checked_at=now_utc() if checked else None, checked_by=author if checked else None)
        .returning(*table.c)
    )
    row = find_row(tx, marked, f"Job {job_id} has no passage {number} to review.")
    update_recording(tx, job_id)
    return _read_review(job, row)


def _position(cursor: str, wanted: ReviewFilter) -> Any:  # noqa: ANN401 (SQL)
    doubt, job_id, number = position_of(cursor, wanted, 3)
    return tuple_(literal(float(doubt), Double()), literal(job_id, ID), literal(int(number), Integer()))


def _of_jobs(matching: JobFilter, model: str | None) -> list[ColumnElement[bool]]:
    conditions = filter_conditions(matching)
    return conditions if model is None else [*conditions, jobs.c.options["model"].as_string() == model]


def _words_of(tx: Connection, job_id: str) -> list[Spoken]:
    """A job's words, with corrections."""
    of_job = map(passage_of, tx.execute(select(passages).where(passages.c.job_id == job_id)))
    return [word for passage in of_job for word in passage.words[: passage.own]]


def _recording(job: Job, row: Row[Any]) -> DoubtfulRecording:
    return DoubtfulRecording(**vars(_sums_of(row)), job=job)


def _read_review(job: Job, row: Row[Any]) -> Reviewed:
    return Reviewed(job, _passage_of(row), row.checked_by, row.checked_at)


_passage_of = reader_of(ReviewPassage)
_sums_of = reader_of(RecordingSums)
