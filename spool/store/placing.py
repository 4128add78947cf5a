"""Gives events their numbers, and notices when a batch has ended.

An id that is given out before the commit may become visible after a higher one (PostgreSQL), and who reads by
id would miss it. So a number is given only to what is committed already, under a lock that is held until the
numbers are committed themselves. Any process may do it at any time. A batch's end shows in no single job's
commit, since its two last jobs may end at once; it is seen here, after both. Webhooks get their deliveries in
the same commit.
"""

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, Exists, delete, exists, insert, select, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from spool.clock import now_utc
from spool.events import BATCH_CANCELLED, BATCH_DONE, BATCH_RECEIVED, BATCH_RETRIED, JOB_ENDS, JOB_EVENTS
from spool.jobs import TERMINAL, JobState
from spool.store.deliveries import add_deliveries
from spool.store.events import POSITION, Event
from spool.store.standing import batch_counts
from spool.tables import batches, event_inbox, event_position, events, jobs

_MAY_END = JOB_ENDS | {BATCH_RECEIVED, BATCH_CANCELLED}
_REOPEN = frozenset({JOB_EVENTS[JobState.QUEUED], JOB_EVENTS[JobState.RUNNING], BATCH_RETRIED})
PLACED_AT_ONCE = 500


def place_events(tx: Connection, limit: int = PLACED_AT_ONCE) -> list[Event]:
    """Move up to `limit` committed events into the log; they, and the ends of batches that they led to."""
    position = _locked_position(tx)
    first = select(event_inbox.c.id).order_by(event_inbox.c.id).limit(limit)
    taken = tx.execute(delete(event_inbox).where(event_inbox.c.id.in_(first)).returning(*event_inbox.c)).all()
    if not taken:
        return []
    placed = [
        Event(**{**row._mapping, "id": position + number})
        for number, row in enumerate(sorted(taken, key=lambda row: row.id), 1)
    ]
    _reopen(tx, {event.batch_id for event in placed if event.type in _REOPEN})
    for batch_id in dict.fromkeys(event.batch_id for event in placed if event.type in _MAY_END):
        if batch_id is not None:
            placed.extend(_end(tx, batch_id, position + len(placed) + 1))
    tx.execute(insert(events), [_row(event) for event in placed])
    add_deliveries(tx, placed)
    tx.execute(
        update(event_position).where(event_position.c.name == POSITION).values(value=position + len(placed))
    )
    return placed


def batch_is_open(tx: Connection, batch_id: str) -> bool:
    """Whether jobs of it may still come, or have not ended."""
    closed = batches.c.closed_at.is_not(None) | batches.c.cancelled_at.is_not(None)
    ended = select(batches.c.id).where(batches.c.id == batch_id, closed, ~_open_job(batch_id))
    return tx.execute(ended).one_or_none() is None


def _locked_position(tx: Connection) -> int:
    build = sqlite_insert if tx.dialect.name == "sqlite" else postgresql_insert
    taken = update(event_position).where(event_position.c.name == POSITION)
    taken = taken.values(value=event_position.c.value)
    position = tx.scalar(taken.returning(event_position.c.value))
    if position is None:
        tx.execute(build(event_position).values(name=POSITION, value=0).on_conflict_do_nothing())
        position = tx.scalar(taken.returning(event_position.c.value))
    return int(position or 0)


def _reopen(tx: Connection, batch_ids: Iterable[str | None]) -> None:
    ids = sorted(batch_id for batch_id in batch_ids if batch_id is not None)
    if ids:
        which = (batches.c.id.in_(ids), batches.c.ended_at.is_not(None))
        tx.execute(update(batches).where(*which).values(ended_at=None))


def _end(tx: Connection, batch_id: str, number: int) -> Sequence[Event]:
    """Note that the batch has ended, if it has and that is news."""
    # Whoever holds the row (a block of jobs, a cancellation) ends with an event that leads here again.
    found = tx.execute(
        select(batches.c.id, batches.c.project, now_utc())
        .where(
            batches.c.id == batch_id,
            batches.c.ended_at.is_(None),
            batches.c.closed_at.is_not(None) | batches.c.cancelled_at.is_not(None),
            ~_open_job(batch_id),
        )
        .with_for_update(skip_locked=True)
    ).one_or_none()
    if found is None:
        return ()
    tx.execute(update(batches).where(batches.c.id == batch_id).values(ended_at=found[2]))
    counts = batch_counts(tx, [batch_id])[batch_id]
    told = {"jobs": {state.value: number for state, number in counts.items()}}
    return (Event(number, found[2], BATCH_DONE, found.project, None, batch_id, None, told),)


def _open_job(batch_id: str) -> Exists:
    ended = [state.value for state in JobState if state in TERMINAL]
    return exists(select(jobs.c.id).where(jobs.c.batch_id == batch_id, jobs.c.state.not_in(ended)))


def _row(event: Event) -> dict[str, object]:
    return {name: getattr(event, name) for name in Event.__slots__}
