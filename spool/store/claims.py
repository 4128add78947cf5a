"""How a job comes to a worker: claimed while queued, taken back once its lease has run out.

Exactly one of many callers gets a claim, and every later write to the job carries it (law 3,
`spool.store.leases`). Which job a worker should claim is asked in `spool.store.choosing`.
"""

from collections import Counter
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, case, null, true, update

from spool.clock import now_utc, seconds_from_now
from spool.jobs import JobState
from spool.store.counters import LEASES_LOST, count_up
from spool.store.events import note_jobs
from spool.store.rows import JOB_COLUMNS, Job, job_of, may_become
from spool.store.suiting import Passed
from spool.store.turns import settle
from spool.tables import jobs

MAX_DEATHS = 3
POISON_CODE = "poison"
POISON_MESSAGE = "Set aside: {} attempts ended with a dead worker process."


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on a job: the fence that every later write carries."""

    job: Job
    attempt: int
    worker_id: str
    passed: Passed | None = None
    """That another job stood before it, whose model the worker has not in memory."""


def claim_job(
    tx: Connection,
    job_id: str,
    worker_id: str,
    lease_seconds: float,
    *,
    max_deaths: int = MAX_DEATHS,
    alone: bool = True,
) -> Claim | None:
    """Take the job if it is queued, or running under a lease that ran out (which counts a death).

    None when there is nothing to take: unknown, ended, cancelled, owned by a live worker, or set aside as
    poison just now. Of many callers at once exactly one gets the claim. `alone`: nothing else runs in the
    worker's process; others do not get a job that the next death would set aside, since that
    death might be a neighbour's.
    """
    take_back(tx, jobs.c.id == job_id, max_deaths)
    allowed = (jobs.c.deaths < max_deaths) & (true() if alone else ~_last_chance(max_deaths))
    claim = claim_queued(tx, job_id, worker_id, lease_seconds, None, allowed)
    if claim is None:
        set_aside(tx, job_id, max_deaths)
    return claim


def claim_queued(
    tx: Connection,
    job_id: str,
    worker_id: str,
    lease_seconds: float,
    reckoned_seconds: float | None,
    allowed: ColumnElement[bool] | None = None,
) -> Claim | None:
    """Take the job if it is queued. `reckoned_seconds`: see the table; None where its project was not
    charged."""
    row = tx.execute(
        update(jobs)
        .where(jobs.c.id == job_id, may_become(JobState.RUNNING), true() if allowed is None else allowed)
        .values(
            state=JobState.RUNNING.value,
            attempt=jobs.c.attempt + 1,
            lease_owner=worker_id,
            lease_until=seconds_from_now(lease_seconds),
            started_at=case((jobs.c.started_at.is_(None), now_utc()), else_=jobs.c.started_at),
            not_before=null(),
            reckoned_seconds=reckoned_seconds,
            updated_at=now_utc(),
        )
        .returning(*JOB_COLUMNS)
    ).one_or_none()
    if row is None:
        return None
    job = job_of(row)
    note_jobs(tx, job)
    return Claim(job, job.attempt, worker_id)


def take_back(tx: Connection, which: ColumnElement[bool], max_deaths: int) -> list[Job]:
    """Take the jobs of `which` whose lease ran out from their workers, count a death, and return them.

    They go back to `queued` (the caller adds the hint), to `cancelled` if that was asked for, or to `failed`
    as poison at the `max_deaths`-th death.
    """
    poisoned = jobs.c.deaths + 1 >= max_deaths
    ended = jobs.c.cancel_requested | poisoned
    message = POISON_MESSAGE.format(max_deaths)
    rows = tx.execute(
        update(jobs)
        .where(which, jobs.c.state == JobState.RUNNING.value, jobs.c.lease_until < now_utc())
        .values(
            state=case(
                (jobs.c.cancel_requested, JobState.CANCELLED.value),
                (poisoned, JobState.FAILED.value),
                else_=JobState.QUEUED.value,
            ),
            deaths=jobs.c.deaths + 1,
            error_code=case((~jobs.c.cancel_requested & poisoned, POISON_CODE), else_=jobs.c.error_code),
            error_message=case((~jobs.c.cancel_requested & poisoned, message), else_=jobs.c.error_message),
            finished_at=case((ended, now_utc()), else_=null()),
            queued_at=case((ended, jobs.c.queued_at), else_=now_utc()),
            hinted_at=null(),
            lease_owner=null(),
            lease_until=null(),
            updated_at=now_utc(),
        )
        .returning(*JOB_COLUMNS)
    )
    taken = [job_of(row) for row in rows]
    # In one order, as several that take back at once would else wait for each other in a circle.
    for job in sorted(taken, key=lambda job: (job.pool, job.project)):
        settle_job(tx, job)
    count_up(tx, LEASES_LOST, Counter(job.pool for job in taken))
    note_jobs(tx, *taken)
    return taken


def is_last_chance(deaths: int, max_deaths: int) -> bool:
    """Whether one more death sets the job aside, and there has been one."""
    return deaths > 0 and deaths >= max_deaths - 1


def settle_job(tx: Connection, job: Job, before_seconds: float = 0.0) -> None:
    """Square what the job's project was charged at the claim with what was decoded since; nothing is charged
    for a transcript that was taken over."""
    if job.reckoned_seconds is None:
        return
    length = job.audio_seconds if job.state is JobState.DONE and job.reused_from is None else None
    done = before_seconds if job.reused_from is not None else job.done_seconds
    settle(tx, job.pool, job.project, done - job.reckoned_seconds, length)


def _last_chance(max_deaths: int) -> ColumnElement[bool]:
    """SQL: one more death sets the job aside, and there has been one."""
    return and_(jobs.c.deaths > 0, jobs.c.deaths >= max_deaths - 1)


def set_aside(tx: Connection, job_id: str, max_deaths: int) -> None:
    """End the job as poison if it is queued and has died too often."""
    rows = tx.execute(
        update(jobs)
        .where(jobs.c.id == job_id, jobs.c.state == JobState.QUEUED.value, jobs.c.deaths >= max_deaths)
        .values(
            state=JobState.FAILED.value,
            error_code=POISON_CODE,
            error_message=POISON_MESSAGE.format(max_deaths),
            finished_at=now_utc(),
            updated_at=now_utc(),
        )
        .returning(*JOB_COLUMNS)
    )
    note_jobs(tx, *map(job_of, rows))
