"""What a worker does to a job: claim it, keep it, and end it.

Every write after the claim is conditional on the claim's attempt and worker and on the job still running (law
3): a worker that was taken for dead finds `LeaseLost` and changes nothing. The moves of state are those of
`spool.jobs.MOVES`; a lapsed lease goes back to `queued` first, in the same transaction that claims it anew.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Update, and_, case, literal, null, select, true, update

from spool.clock import now_utc, seconds_from_now
from spool.errors import LeaseLost
from spool.jobs import JobState
from spool.store.counters import LEASES_LOST, count_up
from spool.store.events import note_jobs
from spool.store.rows import JOB_COLUMNS, Job, add_hints, job_of, may_become
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a finished job came to. `coverage` is a share 0 to 1, `words` a count."""

    audio_seconds: float
    transcript_key: str
    transcript_sha256: str
    coverage: float
    words: int
    content_sha256: str | None = None
    fingerprint: str | None = None
    source_etag: str | None = None
    source_size: int | None = None
    reused_from: str | None = None
    """The job that decoded the transcript, where this one took it over."""


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
    worker's process; others do not get a job that the next death would set aside (`needs_alone`), since that
    death might be a neighbour's.
    """
    take_back(tx, jobs.c.id == job_id, max_deaths)
    row = tx.execute(
        update(jobs)
        .where(
            jobs.c.id == job_id,
            may_become(JobState.RUNNING),
            jobs.c.deaths < max_deaths,
            true() if alone else ~_last_chance(max_deaths),
        )
        .values(
            state=JobState.RUNNING.value,
            attempt=jobs.c.attempt + 1,
            lease_owner=worker_id,
            lease_until=seconds_from_now(lease_seconds),
            started_at=case((jobs.c.started_at.is_(None), now_utc()), else_=jobs.c.started_at),
            updated_at=now_utc(),
        )
        .returning(*JOB_COLUMNS)
    ).one_or_none()
    if row is None:
        _set_aside(tx, job_id, max_deaths)
        return None
    job = job_of(row)
    note_jobs(tx, job)
    return Claim(job, job.attempt, worker_id)


def needs_alone(tx: Connection, job_id: str, max_deaths: int = MAX_DEATHS) -> bool:
    """Whether the job waits for a worker that runs nothing else."""
    waiting = (jobs.c.id == job_id, jobs.c.state == JobState.QUEUED.value)
    found = select(jobs.c.id).where(*waiting, jobs.c.deaths < max_deaths, _last_chance(max_deaths))
    return tx.execute(found).one_or_none() is not None


def renew_lease(tx: Connection, claim: Claim, lease_seconds: float, ran_seconds: float | None = None) -> bool:
    """Keep the job for `lease_seconds` from now and note how long it has run; True when a person has asked to
    cancel it. Raises LeaseLost."""
    row = tx.execute(
        _fenced(claim)
        .values(
            lease_until=seconds_from_now(lease_seconds),
            ran_seconds=jobs.c.ran_seconds if ran_seconds is None else ran_seconds,
            updated_at=now_utc(),
        )
        .returning(jobs.c.cancel_requested)
    ).one_or_none()
    if row is None:
        raise _lost(claim)
    return bool(row.cancel_requested)


def set_progress(
    tx: Connection, claim: Claim, done_seconds: float, audio_seconds: float | None = None
) -> None:
    """Say how much is decoded and, once known, how long the recording is. Raises LeaseLost."""
    values: dict[str, Any] = {"done_seconds": done_seconds, "updated_at": now_utc()}
    if audio_seconds is not None:
        values["audio_seconds"] = audio_seconds
    if tx.execute(_fenced(claim).values(**values)).rowcount != 1:
        raise _lost(claim)


def hand_back(
    tx: Connection,
    claim: Claim,
    delay_seconds: float = 0.0,
    *,
    ran_seconds: float | None = None,
    troubles: int | None = None,
) -> None:
    """Put the job back in the queue without counting a death, to be sent again after `delay_seconds`, and
    note how long it has run and how many errors that may pass it has met in a row (None: as before).

    A job that a person asked to cancel is cancelled instead. Raises LeaseLost.
    """
    cancelled = jobs.c.cancel_requested
    row = tx.execute(
        _fenced(claim, JobState.QUEUED)
        .values(
            state=case((cancelled, JobState.CANCELLED.value), else_=JobState.QUEUED.value),
            finished_at=case((cancelled, now_utc()), else_=null()),
            queued_at=case((cancelled, jobs.c.queued_at), else_=now_utc()),
            hinted_at=null(),
            lease_owner=null(),
            lease_until=null(),
            ran_seconds=jobs.c.ran_seconds if ran_seconds is None else ran_seconds,
            troubles=jobs.c.troubles if troubles is None else troubles,
            updated_at=now_utc(),
        )
        .returning(*JOB_COLUMNS)
    ).one_or_none()
    if row is None:
        raise _lost(claim)
    job = job_of(row)
    note_jobs(tx, job)
    if job.state is JobState.QUEUED:
        add_hints(tx, [(job.id, job.pool, job.worker)], delay_seconds)


def finish_job(tx: Connection, claim: Claim, outcome: Outcome) -> None:
    """The transcript is stored: the job is done. Raises LeaseLost."""
    seen = {"source_etag": outcome.source_etag, "source_size": outcome.source_size}
    _end(
        tx,
        claim,
        JobState.DONE,
        audio_seconds=outcome.audio_seconds,
        done_seconds=outcome.audio_seconds,
        transcript_key=outcome.transcript_key,
        transcript_sha256=outcome.transcript_sha256,
        coverage=outcome.coverage,
        words=outcome.words,
        content_sha256=outcome.content_sha256,
        fingerprint=outcome.fingerprint,
        reused_from=outcome.reused_from,
        **{name: value for name, value in seen.items() if value is not None},
        error_code=null(),
        error_message=null(),
    )


def fail_job(tx: Connection, claim: Claim, code: str, message: str) -> None:
    """The job cannot succeed; `code` is a SpoolError's, `message` is for its submitter. Raises LeaseLost."""
    _end(tx, claim, JobState.FAILED, error_code=code, error_message=message)


def cancel_claimed(tx: Connection, claim: Claim) -> None:
    """The worker has stopped at a person's request. Raises LeaseLost."""
    _end(tx, claim, JobState.CANCELLED)


def hold(tx: Connection, claim: Claim) -> None:
    """Lock the claimed row for the rest of the transaction, so that nobody takes the job over before it
    commits.

    Raises LeaseLost when somebody already has.
    """
    held = tx.execute(select(jobs.c.id).where(fence(claim)).with_for_update()).one_or_none()
    if held is None:
        raise _lost(claim)


def fence(claim: Claim) -> ColumnElement[bool]:
    """SQL: the claim still holds."""
    return and_(
        jobs.c.id == claim.job.id,
        jobs.c.attempt == claim.attempt,
        jobs.c.lease_owner == claim.worker_id,
        jobs.c.state == JobState.RUNNING.value,
    )


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
    count_up(tx, LEASES_LOST, Counter(job.pool for job in taken))
    note_jobs(tx, *taken)
    return taken


def _last_chance(max_deaths: int) -> ColumnElement[bool]:
    """SQL: one more death sets the job aside, and there has been one."""
    return and_(jobs.c.deaths > 0, jobs.c.deaths >= max_deaths - 1)


def _set_aside(tx: Connection, job_id: str, max_deaths: int) -> None:
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


def _fenced(claim: Claim, becomes: JobState | None = None) -> Update:
    statement = update(jobs).where(fence(claim))
    return statement if becomes is None else statement.where(may_become(becomes))


def _end(tx: Connection, claim: Claim, state: JobState, **values: object) -> None:
    ending = {"state": literal(state.value), "finished_at": now_utc(), "updated_at": now_utc()}
    written = _fenced(claim, state).values(**ending, lease_owner=null(), lease_until=null(), **values)
    row = tx.execute(written.returning(*JOB_COLUMNS)).one_or_none()
    if row is None:
        raise _lost(claim)
    note_jobs(tx, job_of(row))


def _lost(claim: Claim) -> LeaseLost:
    return LeaseLost(f"Attempt {claim.attempt} of job {claim.job.id} no longer belongs to {claim.worker_id}.")
