"""How a worker ends claimed jobs: done, failed, cancelled, or back in the queue.

Short recordings end many at a time, and most of what an ending costs is its statements, not its rows: hence
`finish_jobs`. It waits for no job's row: an ending whose row another transaction holds, or whose claim no
longer does, is left to the caller, who writes it by itself and then learns why. So no frozen process holds up
others, and endings never lock rows of `jobs` in two orders.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    bindparam,
    case,
    literal,
    null,
    select,
    tuple_,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate

from spool.domain.archive.passages import Passage
from spool.domain.archive.review import ReviewPassage
from spool.domain.jobs import Job, JobResult, JobState
from spool.domain.recognition import DecodedChunk
from spool.store.archive.exports import enqueue_exports
from spool.store.archive.receipts import keep_statements
from spool.store.chunks import save_last_chunks
from spool.store.event_log import note_jobs
from spool.store.ledger.charges import Charge
from spool.store.queue.fair_share import settle_job, settle_jobs
from spool.store.queue.leases import Claim, fence, lease_lost
from spool.store.rows import CHANGED_JOB, add_hints, job_of, may_become
from spool.store.sql import ROWS, epoch_us, json_of, now_utc, rows_in_json, seconds_from_now, types_of
from spool.store.transcripts.passages import JobPassages, drop_passages, write_passages
from spool.tables import jobs
from spool.tables.record import values_of


@dataclass(frozen=True)
class Outcome(JobResult):
    """The result of a finished job, and facts of its source that were not known before."""

    source_etag: str | None = None
    source_size: int | None = None

    def columns(self, job: Job) -> dict[str, Any]:
        """What it changes in the row of this job, by column."""
        columns = values_of(self, Outcome)
        stretch = job.stretch
        columns["done_seconds"] = self.audio_seconds if stretch is None else stretch.end - stretch.start
        columns["warnings"] = self.warnings or None
        columns["source_etag"] = job.source.etag if self.source_etag is None else self.source_etag
        columns["source_size"] = job.source.size if self.source_size is None else self.source_size
        return columns


def hand_back(
    tx: Connection,
    claim: Claim,
    delay_seconds: float = 0.0,
    *,
    ran_seconds: float | None = None,
    transient_failures: int | None = None,
    to_the_end: bool = False,
    refused_by: tuple[str, str] | None = None,
    error: tuple[str, str] | None = None,
) -> None:
    """Queue the job again without counting a crash, to be claimed after `delay_seconds`, and note how long it
    has run and how many transient errors it has met in a row (None: as before).

    It keeps its position unless `to_the_end`. `refused_by`: a worker to pass over for this job, and why;
    `error`: the code and message that are shown until the next attempt. A job that a person asked to cancel
    is cancelled instead. Raises LeaseLost.
    """
    cancelled = jobs.c.cancel_requested
    refusals = dict(claim.job.refusals or {}) | dict([refused_by] if refused_by else [])
    row = tx.execute(
        _move_fenced(claim, JobState.QUEUED).values(
            state=case((cancelled, JobState.CANCELLED.value), else_=JobState.QUEUED.value),
            finished_at=case((cancelled, now_utc()), else_=null()),
            queued_at=case((cancelled, jobs.c.queued_at), else_=now_utc()),
            hinted_at=null(),
            queue_position=epoch_us() if to_the_end else jobs.c.queue_position,
            not_before=seconds_from_now(delay_seconds) if delay_seconds > 0 else null(),
            lease_owner=null(),
            lease_until=null(),
            ran_seconds=jobs.c.ran_seconds if ran_seconds is None else ran_seconds,
            transient_failures=jobs.c.transient_failures
            if transient_failures is None
            else transient_failures,
            refusals=refusals or None,
            error_code=case((cancelled, null()), else_=error and error[0]),
            error_message=case((cancelled, null()), else_=error and error[1]),
            updated_at=now_utc(),
        )
    ).one_or_none()
    if row is None:
        raise lease_lost(claim)
    job = job_of(row)
    note_jobs(tx, job)
    settle_job(tx, job)
    if job.state is JobState.QUEUED:
        add_hints(tx, [(job.id, job.queue)], delay_seconds)


def finish_job(
    tx: Connection,
    claim: Claim,
    outcome: Outcome,
    passages: Sequence[Passage] = (),
    review: Sequence[ReviewPassage] = (),
    statement: str = "",
) -> None:
    """The transcript is stored: the job is done, and its words can be searched. Raises LeaseLost."""
    ended = outcome.columns(claim.job)
    job = _end_claimed(tx, claim, JobState.DONE, **ended, error_code=null(), error_message=null())
    if claim.job.transcript_key is not None:  # speakers were found in words that are indexed already
        drop_passages(tx, [claim.job.id])
        review = ()  # what is to be reviewed, and was, does not depend on speakers
    write_passages(tx, JobPassages(claim.job.id, claim.job.project, passages, review))
    keep_statements(tx, [(claim.job.id, claim.attempt, statement)])
    enqueue_exports(tx, job)


def fail_job(tx: Connection, claim: Claim, code: str, message: str) -> None:
    """The job cannot succeed; `code` is a SpoolError's, `message` is for its submitter. Raises LeaseLost."""
    _end_claimed(tx, claim, JobState.FAILED, error_code=code, error_message=message)


def cancel_claimed(tx: Connection, claim: Claim) -> None:
    """The worker has stopped at a person's request. Raises LeaseLost."""
    _end_claimed(tx, claim, JobState.CANCELLED, error_code=null(), error_message=null())


def _end_claimed(tx: Connection, claim: Claim, state: JobState, **values: object) -> Job:
    ending = {"state": literal(state.value), "finished_at": now_utc(), "updated_at": now_utc()}
    ending |= {"lease_owner": null(), "lease_until": null()}
    row = tx.execute(_move_fenced(claim, state).values(**ending, **values)).one_or_none()
    if row is None:
        raise lease_lost(claim)
    job = job_of(row)
    note_jobs(tx, job)
    settle_job(tx, job, claim.job.done_seconds)
    return job


def _move_fenced(claim: Claim, becomes: JobState) -> ReturningUpdate[Any]:
    return CHANGED_JOB.where(fence(claim), may_become(becomes))


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a job that was transcribed for the first time: its result, its passages, its last chunk with
    the charge (if it is not saved yet), its passages to review, and what its receipt states."""

    claim: Claim
    outcome: Outcome
    passages: Sequence[Passage] = ()
    chunk: tuple[DecodedChunk, Charge] | None = None
    review: Sequence[ReviewPassage] = ()
    statement: str = ""


def finish_jobs(tx: Connection, endings: Sequence[Ending]) -> set[str]:
    """End these jobs of one worker; the ids of those that are done. Nothing was written of the others."""
    columns = {one.claim.job.id: one.outcome.columns(one.claim.job) for one in endings}
    ended = _end(tx, endings, columns)
    if not ended:
        return ended
    free = [one for one in endings if one.claim.job.id in ended]
    done = []
    for one in free:
        own = {n: v for n, v in columns[one.claim.job.id].items() if not n.startswith("source_")}
        done.append(replace(one.claim.job, state=JobState.DONE, **own))
    note_jobs(tx, *done)
    settle_jobs(tx, [(job, one.claim.job.done_seconds) for job, one in zip(done, free, strict=True)])
    write_passages(
        tx, *(JobPassages(one.claim.job.id, one.claim.job.project, one.passages, one.review) for one in free)
    )
    keep_statements(tx, ((one.claim.job.id, one.claim.attempt, one.statement) for one in free))
    for job in done:
        enqueue_exports(tx, job)
    # Last: the worker's other jobs wait for its row until the commit.
    save_last_chunks(tx, [(one.claim, *one.chunk) for one in free if one.chunk is not None])
    return ended


def _end(tx: Connection, endings: Sequence[Ending], columns: dict[str, dict[str, Any]]) -> set[str]:
    """Set these columns, by job, for each job whose claim holds and whose row no other transaction has
    locked; returns their ids."""
    owner = {"owner": endings[0].claim.worker_id}
    attempts = {one.claim.job.id: one.claim.attempt for one in endings}
    if tx.dialect.name == "postgresql":
        rows = [{"id": job_id, "attempt": attempts[job_id], **own} for job_id, own in columns.items()]
        given = {ROWS: json_of(rows, types_of(jobs, rows[0])), **owner}
        return set(tx.scalars(_build_ending(tuple(rows[0])), given))
    held = set(tx.scalars(_HELD, {"claims": list(attempts.items()), **owner}))
    if held:
        tx.execute(_DONE, [{"ended": job_id, **columns[job_id]} for job_id in columns if job_id in held])
    return held


_FENCED = (jobs.c.lease_owner == bindparam("owner"), may_become(JobState.DONE))
_CHANGED: dict[str, ColumnElement[Any] | str] = {
    "state": JobState.DONE.value,
    "finished_at": now_utc(),
    "updated_at": now_utc(),
    "lease_owner": null(),
    "lease_until": null(),
    "error_code": null(),
    "error_message": null(),
}
_HELD = select(jobs.c.id).where(
    tuple_(jobs.c.id, jobs.c.attempt).in_(bindparam("claims", expanding=True)), *_FENCED
)
_DONE = update(jobs).where(jobs.c.id == bindparam("ended")).values(**_CHANGED)


@cache
def _build_ending(names: tuple[str, ...]) -> Executable:
    """On PostgreSQL the whole change, whose rows have these columns: `id` and `attempt`, and what is set."""
    given = rows_in_json(types_of(jobs, names))
    held = (
        select(*given.c)
        .join(jobs, (jobs.c.id == given.c.id) & (jobs.c.attempt == given.c.attempt))
        .where(*_FENCED)
        .with_for_update(of=jobs, skip_locked=True)
        .cte("held")
    )
    own = {name: held.c[name] for name in names[2:]}
    return update(jobs).where(jobs.c.id == held.c.id).values(**_CHANGED, **own).returning(jobs.c.id)
