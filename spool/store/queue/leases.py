"""How a worker comes to a job and keeps it.

A job is claimed while queued, and taken back once its lease has run out. Exactly one of many callers gets a
claim, and every later write is conditional on the claim's attempt and worker and on the job still running
(law 3): a worker that was taken for dead finds `LeaseLost` and changes nothing. The moves of state are those
of `spool.domain.jobs.MOVES`; a lapsed lease goes back to `queued` first, in the same transaction that claims
it anew. Which job a worker should claim is asked in `spool.store.queue.scheduler`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    Update,
    and_,
    bindparam,
    case,
    func,
    null,
    select,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate

from spool.domain.jobs import Job, JobState
from spool.errors import LeaseLost
from spool.store.event_log import note_jobs
from spool.store.queue.crashes import MAX_CRASHES, is_last_chance, set_aside, take_back
from spool.store.rows import CHANGED_JOB, job_of, may_become
from spool.store.sql import now_utc, seconds_from_now
from spool.tables import jobs


class Passed(NamedTuple):
    """A job was passed over for one whose model is loaded. Of the jobs examined, `own` need a loaded model,
    `other` the model of the job that was passed over."""

    own: int
    other: int


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on a job: the fence that every later write carries."""

    job: Job
    attempt: int
    worker_id: str
    passed: Passed | None = None
    """The job that was skipped because its model is not loaded."""
    others: "tuple[Claim, ...]" = ()
    """Claims to the short jobs behind it that were made in the same transaction."""


def claim_job(
    tx: Connection,
    job_id: str,
    worker_id: str,
    lease_seconds: float,
    *,
    max_crashes: int = MAX_CRASHES,
    alone: bool = True,
    pool: str | None = None,
) -> Claim | None:
    """Take the job if it is queued, or running under a lease that ran out (`take_back`).

    None when there is nothing to take: unknown, ended, cancelled, owned by a live worker, or set aside as
    poison just now. Of many callers at once exactly one gets the claim. `alone`: nothing else runs in the
    worker's process; others do not get a job that the next crash would set aside, since a neighbour might
    cause that crash. `pool`: as `claim_queued` has it.
    """
    take_back(tx, jobs.c.id == job_id, max_crashes)
    if set_aside(tx, job_id, max_crashes):
        return None
    if not alone:
        facts = select(jobs.c.crashes, jobs.c.suspects).where(jobs.c.id == job_id).with_for_update()
        row = tx.execute(facts).one_or_none()
        if row is None or is_last_chance(*row, max_crashes):
            return None
    return next(iter(claim_queued(tx, [job_id], worker_id, lease_seconds, None, pool)), None)


def claim_queued(
    tx: Connection,
    job_ids: Sequence[str],
    worker_id: str,
    lease_seconds: float,
    forecast_seconds: float | None,
    pool: str | None = None,
) -> list[Claim]:
    """Take those of the jobs that are queued, in this order. `forecast_seconds`: as in the job's row, the
    same for each; None if its project was not charged. `pool`: the worker's; None leaves the job's as it
    is."""
    rows = tx.execute(
        _CLAIMED,
        {
            "wanted": list(job_ids),
            "claimer": worker_id,
            "lease": round(lease_seconds, 3),
            "forecast": forecast_seconds,
            "own_pool": pool,
        },
    )
    taken = sorted(map(job_of, rows), key=lambda job: job_ids.index(job.id))
    note_jobs(tx, *taken)
    return [Claim(job, job.attempt, worker_id) for job in taken]


def _build_claim() -> ReturningUpdate[Any]:
    """The change of a claim: of the jobs `wanted` that are queued."""
    return CHANGED_JOB.where(
        jobs.c.id.in_(bindparam("wanted", expanding=True)), may_become(JobState.RUNNING)
    ).values(
        state=JobState.RUNNING.value,
        attempt=jobs.c.attempt + 1,
        lease_owner=bindparam("claimer", type_=jobs.c.lease_owner.type),
        lease_until=seconds_from_now(bindparam("lease", type_=Float())),
        started_at=case((jobs.c.started_at.is_(None), now_utc()), else_=jobs.c.started_at),
        not_before=null(),
        forecast_seconds=bindparam("forecast", type_=jobs.c.forecast_seconds.type),
        pool=func.coalesce(bindparam("own_pool", type_=jobs.c.pool.type), jobs.c.pool),
        updated_at=now_utc(),
    )


_CLAIMED = _build_claim()


def renew_lease(
    tx: Connection,
    claim: Claim,
    lease_seconds: float,
    ran_seconds: float | None = None,
    done_seconds: float | None = None,
    audio_seconds: float | None = None,
    content_sha256: str | None = None,
) -> bool:
    """Keep the job for `lease_seconds` from now and note how long it has run, how much is decoded and, as
    `set_progress` does, of what (None: as before); True when a person has asked to cancel it. The row is
    locked for the rest of the transaction. Raises LeaseLost."""
    facts = {
        "ran_seconds": ran_seconds,
        "done_seconds": done_seconds,
        "audio_seconds": audio_seconds,
        "content_sha256": content_sha256,
    }
    values: dict[str, Any] = {name: value for name, value in facts.items() if value is not None}
    values |= {"lease_until": seconds_from_now(lease_seconds), "updated_at": now_utc()}
    row = tx.execute(_update_fenced(claim).values(**values).returning(jobs.c.cancel_requested)).one_or_none()
    if row is None:
        raise lease_lost(claim)
    return bool(row.cancel_requested)


def set_progress(
    tx: Connection,
    claim: Claim,
    done_seconds: float,
    audio_seconds: float | None = None,
    content_sha256: str | None = None,
) -> None:
    """Say how much is decoded and, once known, how long the recording is and the SHA-256 of its bytes, to
    which later attempts are held. Raises LeaseLost."""
    values: dict[str, Any] = {"done_seconds": done_seconds, "updated_at": now_utc()}
    if audio_seconds is not None:
        values["audio_seconds"] = audio_seconds
    if content_sha256 is not None:
        values["content_sha256"] = content_sha256
    if tx.execute(_update_fenced(claim).values(**values)).rowcount != 1:
        raise lease_lost(claim)


def lock_claim(tx: Connection, claim: Claim) -> None:
    """Lock the claimed row for the rest of the transaction, so that nobody takes the job over before it
    commits.

    Raises LeaseLost when somebody already has.
    """
    held = tx.execute(select(jobs.c.id).where(fence(claim)).with_for_update()).one_or_none()
    if held is None:
        raise lease_lost(claim)


def fence(claim: Claim) -> ColumnElement[bool]:
    """SQL: the claim still holds."""
    return and_(
        jobs.c.id == claim.job.id,
        jobs.c.attempt == claim.attempt,
        jobs.c.lease_owner == claim.worker_id,
        jobs.c.state == JobState.RUNNING.value,
    )


def _update_fenced(claim: Claim) -> Update:
    return update(jobs).where(fence(claim))


def lease_lost(claim: Claim) -> LeaseLost:
    """The error for a write by a claim that no longer holds."""
    return LeaseLost(f"Attempt {claim.attempt} of job {claim.job.id} no longer belongs to {claim.worker_id}.")
