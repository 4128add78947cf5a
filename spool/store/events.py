"""The log of what happened to jobs and batches: written with it, read by number, forgotten after some days.

`note_jobs` and `note_batch` write to an inbox in the commit of the change itself. From there
`spool.store.placing` moves events into the log under numbers that grow with visibility, so that who has read
up to a number has missed nothing below it. Knows no reader.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, exists, insert, literal, select

from spool.clock import now_utc, seconds_from_now
from spool.events import JOB_EVENTS
from spool.jobs import JobState
from spool.store.rows import Job
from spool.tables import event_inbox, event_position, events, jobs

POSITION = "events"
_SHORT = 500


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `id` is its number in the log."""

    id: int
    at: datetime
    type: str
    project: str
    job_id: str | None
    batch_id: str | None
    custom_id: str | None
    data: dict[str, Any]

    def told(self) -> dict[str, Any]:
        """As streams and webhooks tell it."""
        return {
            "project": self.project,
            "job": self.job_id,
            "batch": self.batch_id,
            "custom_id": self.custom_id,
            "at": self.at.isoformat(),
            **self.data,
        }


def note_jobs(tx: Connection, *changed: Job) -> None:
    """Each of the jobs came into the state that it is in."""
    rows = [
        {
            "type": JOB_EVENTS[job.state],
            "project": job.project,
            "job_id": job.id,
            "batch_id": job.batch_id,
            "custom_id": job.custom_id,
            "data": _told(job),
        }
        for job in changed
        if job.state in JOB_EVENTS
    ]
    if rows:
        tx.execute(insert(event_inbox).values(at=now_utc()), rows)


def note_batch(tx: Connection, kind: str, batch_id: str, project: str, data: Mapping[str, Any]) -> None:
    """Something of a type of `spool.events` happened to a batch."""
    tx.execute(
        insert(event_inbox).values(
            at=now_utc(), type=kind, project=project, batch_id=batch_id, data=dict(data)
        )
    )


def note_cancelled(tx: Connection, batch_id: str, finished_at: datetime) -> None:
    """Those jobs of the batch that were cancelled with this very time, however many, in one statement."""
    state = JobState.CANCELLED
    told = literal({"state": state.value}, event_inbox.c.data.type)
    cancelled = select(
        now_utc(),
        literal(JOB_EVENTS[state]),
        jobs.c.project,
        jobs.c.id,
        jobs.c.batch_id,
        jobs.c.custom_id,
        told,
    ).where(jobs.c.batch_id == batch_id, jobs.c.state == state.value, jobs.c.finished_at == finished_at)
    columns = ["at", "type", "project", "job_id", "batch_id", "custom_id", "data"]
    tx.execute(insert(event_inbox).from_select(columns, cancelled.order_by(jobs.c.batch_line)))


def last_event(tx: Connection) -> int:
    """The number that the log has reached; 0 at its beginning."""
    found = tx.scalar(select(event_position.c.value).where(event_position.c.name == POSITION))
    return int(found or 0)


def any_unplaced(tx: Connection, job_id: str | None = None, batch_id: str | None = None) -> bool:
    """Whether something happened (to the job or batch) that has no number yet."""
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
    """Up to `limit` events after a number, in order: all, or those of a job, or of a batch and its jobs."""
    which: list[ColumnElement[bool]] = [events.c.id > after]
    if until is not None:
        which.append(events.c.id <= until)
    if job_id is not None:
        which.append(events.c.job_id == job_id)
    if batch_id is not None:
        which.append(events.c.batch_id == batch_id)
    return [
        _event_of(row)
        for row in tx.execute(select(*events.c).where(*which).order_by(events.c.id).limit(limit))
    ]


def prune_events(tx: Connection, days: float, limit: int = 5000) -> int:
    """Forget up to `limit` events older than so many days; how many. Call it until it says fewer."""
    # The oldest come first by number; a condition on time alone would look at all of them to find none.
    first = select(events.c.id, events.c.at).order_by(events.c.id).limit(limit).subquery()
    old = select(first.c.id).where(first.c.at < seconds_from_now(-days * 86_400))
    return tx.execute(delete(events).where(events.c.id.in_(old))).rowcount


def forget_events(tx: Connection, job_ids: Sequence[str]) -> int:
    """Forget everything told of these jobs, as their deletion asks; how many events."""
    gone = 0
    for table in (event_inbox, events):
        gone += tx.execute(delete(table).where(table.c.job_id.in_(job_ids))).rowcount
    return gone


def _told(job: Job) -> dict[str, Any]:
    """What the event says beside the ids: small, since there is one for each move of each job."""
    told: dict[str, Any] = {"state": job.state.value, "name": job.name, "attempt": job.attempt}
    if job.state is JobState.DONE:
        told |= {
            "audio_seconds": job.audio_seconds,
            "words": job.words,
            "coverage": job.coverage,
            "reused_from": job.reused_from,
        }
    if job.state is JobState.FAILED:
        told["error"] = {"code": job.error_code, "message": (job.error_message or "")[:_SHORT]}
    return told


def _event_of(row: Row[Any]) -> Event:
    return Event(**row._mapping)
