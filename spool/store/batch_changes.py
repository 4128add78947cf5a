"""What a person does to a whole batch: cancel what has not ended, queue again what failed.

Knows nothing of how a batch came to be.
"""

import hashlib
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select, update

from spool.clock import now_utc
from spool.errors import Conflict
from spool.events import BATCH_CANCELLED, BATCH_RETRIED
from spool.jobs import JobState
from spool.store.batches import Batch, get_batch
from spool.store.deletions import whole
from spool.store.events import note_batch, note_cancelled
from spool.store.idempotency import job_of_key, keep_key
from spool.store.jobs import retried
from spool.store.rows import add_hints
from spool.tables import batches, jobs


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
