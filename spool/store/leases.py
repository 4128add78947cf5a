"""What a worker does to a job that it has claimed: keep it, and end it.

Every write after the claim is conditional on the claim's attempt and worker and on the job still running (law
3): a worker that was taken for dead finds `LeaseLost` and changes nothing. The moves of state are those of
`spool.jobs.MOVES`; a lapsed lease goes back to `queued` first, in the same transaction that claims it anew.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Update, and_, case, literal, null, select, update

from spool.clock import epoch_us, now_utc, seconds_from_now
from spool.errors import LeaseLost
from spool.jobs import JobState
from spool.store.claims import Claim, claim_job, settle_job
from spool.store.events import note_jobs
from spool.store.rows import JOB_COLUMNS, add_hints, job_of, may_become
from spool.tables import jobs

__all__ = [
    "Claim",
    "Outcome",
    "cancel_claimed",
    "claim_job",
    "fail_job",
    "fence",
    "finish_job",
    "hand_back",
    "hold",
    "renew_lease",
    "set_progress",
]


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


def renew_lease(
    tx: Connection,
    claim: Claim,
    lease_seconds: float,
    ran_seconds: float | None = None,
    done_seconds: float | None = None,
) -> bool:
    """Keep the job for `lease_seconds` from now and note how long it has run and how much is decoded (None:
    as before); True when a person has asked to cancel it. Raises LeaseLost."""
    row = tx.execute(
        _fenced(claim)
        .values(
            lease_until=seconds_from_now(lease_seconds),
            ran_seconds=jobs.c.ran_seconds if ran_seconds is None else ran_seconds,
            done_seconds=jobs.c.done_seconds if done_seconds is None else done_seconds,
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
    to_the_end: bool = False,
) -> None:
    """Put the job back in the queue without counting a death, to be taken again after `delay_seconds`, and
    note how long it has run and how many errors that may pass it has met in a row (None: as before).

    It keeps its place, ahead of what came after it; `to_the_end`: its turn is over, others go first. A job
    that a person asked to cancel is cancelled instead. Raises LeaseLost.
    """
    cancelled = jobs.c.cancel_requested
    row = tx.execute(
        _fenced(claim, JobState.QUEUED)
        .values(
            state=case((cancelled, JobState.CANCELLED.value), else_=JobState.QUEUED.value),
            finished_at=case((cancelled, now_utc()), else_=null()),
            queued_at=case((cancelled, jobs.c.queued_at), else_=now_utc()),
            hinted_at=null(),
            place=epoch_us() if to_the_end else jobs.c.place,
            not_before=seconds_from_now(delay_seconds) if delay_seconds > 0 else null(),
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
    settle_job(tx, job)
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


def _fenced(claim: Claim, becomes: JobState | None = None) -> Update:
    statement = update(jobs).where(fence(claim))
    return statement if becomes is None else statement.where(may_become(becomes))


def _change(tx: Connection, claim: Claim, values: dict[str, Any]) -> None:
    if tx.execute(_fenced(claim).values(**values)).rowcount != 1:
        raise _lost(claim)


def _end(tx: Connection, claim: Claim, state: JobState, **values: object) -> None:
    ending = {"state": literal(state.value), "finished_at": now_utc(), "updated_at": now_utc()}
    ending |= {"lease_owner": null(), "lease_until": null()}
    row = tx.execute(_fenced(claim, state).values(**ending, **values).returning(*JOB_COLUMNS)).one_or_none()
    if row is None:
        raise _lost(claim)
    job = job_of(row)
    note_jobs(tx, job)
    settle_job(tx, job, claim.job.done_seconds)


def _lost(claim: Claim) -> LeaseLost:
    return LeaseLost(f"Attempt {claim.attempt} of job {claim.job.id} no longer belongs to {claim.worker_id}.")
