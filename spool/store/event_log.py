"""The log of events about jobs and batches: recorded, numbered, read by number, deleted after some days.

`note_jobs` and `note_batch` write to an inbox in the commit of the change itself. An id that is assigned
before its commit may become visible after a higher one (PostgreSQL), and a reader by id would miss it; so
`place_events` numbers only committed events, under a lock that is held until the numbers are committed. Any
process may do it. A batch's end is recorded there too, since its two last jobs may end at once, and webhooks
get their deliveries in the same commit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Exists, delete, exists, insert, literal, select, update

from spool.domain.archive.edits import Edit
from spool.domain.events import (
    BATCH_CANCELLED,
    BATCH_DONE,
    BATCH_RECEIVED,
    BATCH_RETRIED,
    JOB_ENDS,
    JOB_EVENTS,
    JOB_EXPORTED,
    TRANSCRIPT_CORRECTED,
    Event,
)
from spool.domain.jobs import TERMINAL, Job, JobState
from spool.store.archive.closed import hide_words
from spool.store.batch_progress import batch_counts
from spool.store.sql import ManyRows, now_utc, seconds_from_now, upsert
from spool.store.webhook_deliveries import add_deliveries
from spool.tables import batches, event_inbox, event_position, events, jobs
from spool.tables.record import reader_of, values_of

POSITION = "events"
_SHORT = 500
_FEW = 3


def note_jobs(tx: Connection, *changed: Job) -> None:
    """Record that each of the jobs entered its present state."""
    rows = [_job_row(JOB_EVENTS[job.state], job, _data(job)) for job in changed if job.state in JOB_EVENTS]
    if rows:
        _NOTED.execute(tx, rows)


_NOTED = ManyRows(
    event_inbox, ("type", "project", "job_id", "batch_id", "custom_id", "data"), {"at": now_utc()}
)


def note_exported(tx: Connection, job: Job, files: Mapping[str, int]) -> None:
    """Record that no file of the job's output is still to be written; `files`: how many by state."""
    data = {"state": job.state.value, "name": job.name, "files": dict(files)}
    _NOTED.execute(tx, [_job_row(JOB_EXPORTED, job, data)])


def note_corrected(tx: Connection, job: Job, edit: Edit) -> None:
    """Record that a person edited the job's transcript, or undid an edit of it."""
    data = {
        "state": job.state.value,
        "name": job.name,
        "revision": edit.revision,
        "undoes": edit.undoes,
        "author": edit.author,
    }
    _NOTED.execute(tx, [_job_row(TRANSCRIPT_CORRECTED, job, data)])


def note_batch(tx: Connection, kind: str, batch_id: str, project: str, data: Mapping[str, Any]) -> None:
    """Record an event of a type of `spool.domain.events` about a batch."""
    tx.execute(
        insert(event_inbox).values(
            at=now_utc(), type=kind, project=project, batch_id=batch_id, data=dict(data)
        )
    )


def note_cancelled(tx: Connection, batch_id: str, finished_at: datetime) -> None:
    """Record the jobs of the batch that were cancelled at exactly this time, in one statement."""
    state = JobState.CANCELLED
    data = literal({"state": state.value}, event_inbox.c.data.type)
    cancelled = select(
        now_utc(),
        literal(JOB_EVENTS[state]),
        jobs.c.project,
        jobs.c.id,
        jobs.c.batch_id,
        jobs.c.custom_id,
        data,
    ).where(jobs.c.batch_id == batch_id, jobs.c.state == state.value, jobs.c.finished_at == finished_at)
    columns = ["at", "type", "project", "job_id", "batch_id", "custom_id", "data"]
    tx.execute(insert(event_inbox).from_select(columns, cancelled.order_by(jobs.c.batch_line)))


def last_event(tx: Connection) -> int:
    """The number that the log has reached; 0 at its beginning."""
    number = tx.scalar(select(event_position.c.value).where(event_position.c.name == POSITION))
    return int(number or 0)


def any_unplaced(tx: Connection, job_id: str | None = None, batch_id: str | None = None) -> bool:
    """Whether there is an event (of the job or batch) without a number."""
    which = [
        column == value
        for column, value in ((event_inbox.c.job_id, job_id), (event_inbox.c.batch_id, batch_id))
        if value is not None
    ]
    return bool(tx.scalar(select(exists().where(*which) if which else exists(select(event_inbox.c.id)))))


def read_events(
    tx: Connection,
    after: int,
    limit: int,
    *,
    until: int | None = None,
    job_id: str | None = None,
    batch_id: str | None = None,
) -> list[Event]:
    """Up to `limit` events after a number, in order: of everything, of a job, or of a batch and its jobs."""
    which: list[ColumnElement[bool]] = [events.c.id > after]
    if until is not None:
        which.append(events.c.id <= until)
    if job_id is not None:
        which.append(events.c.job_id == job_id)
    if batch_id is not None:
        which.append(events.c.batch_id == batch_id)
    rows = tx.execute(select(*events.c).where(*which).order_by(events.c.id).limit(limit))
    return _shown(tx, list(map(_event_of, rows)))


def last_ending(tx: Connection, job_id: str | None = None, batch_id: str | None = None) -> Event | None:
    """The latest event that ended the job or batch; None if there is none, or it is no longer kept."""
    which = [events.c.type == BATCH_DONE, events.c.batch_id == batch_id]
    if job_id is not None:
        which = [events.c.type.in_(sorted(JOB_ENDS)), events.c.job_id == job_id]
    row = tx.execute(select(*events.c).where(*which).order_by(events.c.id.desc()).limit(1)).one_or_none()
    return None if row is None else _shown(tx, [_event_of(row)])[0]


def _shown(tx: Connection, read: list[Event]) -> list[Event]:
    """The events without what they tell of the words of closed recordings."""
    documents = [{**each.data, "job": each.job_id} for each in read]
    hide_words(tx, documents)
    return [
        replace(each, data={name: value for name, value in each.data.items() if name in shown})
        for each, shown in zip(read, documents, strict=True)
    ]


def prune_events(tx: Connection, days: float, limit: int = 5000) -> int:
    """Delete up to `limit` events older than `days`; return how many. Call it until it returns fewer."""
    # The oldest come first by number; a condition on time alone would scan all of them to find none.
    first = select(events.c.id, events.c.at).order_by(events.c.id).limit(limit).subquery()
    old = select(first.c.id).where(first.c.at < seconds_from_now(-days * 86_400))
    return tx.execute(delete(events).where(events.c.id.in_(old))).rowcount


def _job_row(kind: str, job: Job, data: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": kind,
        "project": job.project,
        "job_id": job.id,
        "batch_id": job.batch_id,
        "custom_id": job.custom_id,
        "data": data,
    }


def _data(job: Job) -> dict[str, Any]:
    """The event's data beside the ids: small, since every move of every job has an event."""
    data: dict[str, Any] = {"state": job.state.value, "name": job.name, "attempt": job.attempt}
    if job.state is JobState.DONE:
        data |= {
            "audio_seconds": job.audio_seconds,
            "words": job.words,
            "coverage": job.coverage,
            "complete": job.complete,
            "reused_from": job.reused_from,
        }
        if job.speakers is not None:
            data["speakers"] = len(job.speakers)
        if job.warnings:
            data["warnings"] = [each[:_SHORT] for each in job.warnings[:_FEW]]
    if job.state is JobState.FAILED:
        data["error"] = {"code": job.error_code, "message": (job.error_message or "")[:_SHORT]}
    return data


_event_of = reader_of(Event)

_MAY_END = JOB_ENDS | {BATCH_RECEIVED, BATCH_CANCELLED}
_REOPEN = frozenset({JOB_EVENTS[JobState.QUEUED], JOB_EVENTS[JobState.RUNNING], BATCH_RETRIED})
PLACED_AT_ONCE = 500


def place_events(tx: Connection, limit: int = PLACED_AT_ONCE) -> list[Event]:
    """Move up to `limit` committed events into the log; return them and the ends of batches they caused."""
    position = _lock_position(tx)
    first = select(event_inbox.c.id).order_by(event_inbox.c.id).limit(limit)
    taken = tx.execute(delete(event_inbox).where(event_inbox.c.id.in_(first)).returning(*event_inbox.c)).all()
    if not taken:
        return []
    placed = [
        _event_of({**row._mapping, "id": position + number})
        for number, row in enumerate(sorted(taken, key=lambda row: row.id), 1)
    ]
    _reopen(tx, {event.batch_id for event in placed if event.type in _REOPEN})
    for batch_id in dict.fromkeys(event.batch_id for event in placed if event.type in _MAY_END):
        if batch_id is not None:
            placed.extend(_end(tx, batch_id, position + len(placed) + 1))
    tx.execute(insert(events), [values_of(event, Event) for event in placed])
    add_deliveries(tx, placed)
    tx.execute(
        update(event_position).where(event_position.c.name == POSITION).values(value=position + len(placed))
    )
    return placed


def batch_is_open(tx: Connection, batch_id: str) -> bool:
    """Whether more jobs may come, or some have not ended."""
    closed = batches.c.closed_at.is_not(None) | batches.c.cancelled_at.is_not(None)
    ended = select(batches.c.id).where(batches.c.id == batch_id, closed, ~_open_job(batch_id))
    return tx.execute(ended).one_or_none() is None


def _lock_position(tx: Connection) -> int:
    taken = update(event_position).where(event_position.c.name == POSITION)
    taken = taken.values(value=event_position.c.value)
    position = tx.scalar(taken.returning(event_position.c.value))
    if position is None:
        upsert(tx, event_position, {"name": POSITION, "value": 0})
        position = tx.scalar(taken.returning(event_position.c.value))
    return int(position or 0)


def _reopen(tx: Connection, batch_ids: Iterable[str | None]) -> None:
    ids = sorted(batch_id for batch_id in batch_ids if batch_id is not None)
    if ids:
        which = (batches.c.id.in_(ids), batches.c.ended_at.is_not(None))
        tx.execute(update(batches).where(*which).values(ended_at=None))


def _end(tx: Connection, batch_id: str, number: int) -> Sequence[Event]:
    """Record that the batch has ended, if it has and that is not recorded yet."""
    # Whoever locks the row (a block of jobs, a cancellation) ends with an event that leads here again.
    row = tx.execute(
        select(batches.c.id, batches.c.project, now_utc())
        .where(
            batches.c.id == batch_id,
            batches.c.ended_at.is_(None),
            batches.c.closed_at.is_not(None) | batches.c.cancelled_at.is_not(None),
            ~_open_job(batch_id),
        )
        .with_for_update(skip_locked=True)
    ).one_or_none()
    if row is None:
        return ()
    tx.execute(update(batches).where(batches.c.id == batch_id).values(ended_at=row[2]))
    counts = batch_counts(tx, [batch_id])[batch_id]
    data = {"jobs": {state.value: number for state, number in counts.items()}}
    return (Event(row[2], BATCH_DONE, row.project, None, batch_id, None, data, id=number),)


def _open_job(batch_id: str) -> Exists:
    ended = [state.value for state in JobState if state in TERMINAL]
    return exists(select(jobs.c.id).where(jobs.c.batch_id == batch_id, jobs.c.state.not_in(ended)))
