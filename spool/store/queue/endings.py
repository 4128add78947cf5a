"""The endings of several jobs in one transaction, each as `spool.store.queue.leases.finish_job` writes it.

Short recordings end many at a time, and most of what an ending costs is its statements, not its rows. Waits
for no job's row: an ending whose row another transaction holds, or whose claim no longer does, is left to the
caller, who writes it by itself and then learns why. So no frozen process holds up others, and endings never
lock rows of `jobs` in two orders.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, bindparam, null, select, tuple_, update

from spool.domain.archive.passages import Passage
from spool.domain.archive.review import ReviewPassage
from spool.domain.jobs import JobState
from spool.store.archive.exports import enqueue_exports
from spool.store.chunks import SavedChunk, save_chunks
from spool.store.event_log import note_jobs
from spool.store.ledger.charges import Charge
from spool.store.queue.leases import Claim, Outcome, settle_jobs
from spool.store.rows import JOB_COLUMNS, job_of, may_become
from spool.store.sql import now_utc
from spool.store.transcripts.passages import JobPassages, write_passages
from spool.tables import jobs


@dataclass(frozen=True, slots=True)
class Ending:
    """A job that was transcribed for the first time: what came of it, its passages, its last chunk with
    the charge for it, where that is not saved yet, and what there is to review."""

    claim: Claim
    outcome: Outcome
    passages: Sequence[Passage] = ()
    chunk: tuple[SavedChunk, Charge] | None = None
    review: Sequence[ReviewPassage] = ()


_HELD = (
    select(*JOB_COLUMNS)
    .where(
        tuple_(jobs.c.id, jobs.c.attempt).in_(bindparam("claims", expanding=True)),
        jobs.c.lease_owner == bindparam("worker"),
        may_become(JobState.DONE),
    )
    .with_for_update(skip_locked=True)
)
_DONE = (
    update(jobs)
    .where(jobs.c.id == bindparam("ended"))
    .values(
        state=JobState.DONE.value,
        finished_at=now_utc(),
        updated_at=now_utc(),
        lease_owner=null(),
        lease_until=null(),
        error_code=null(),
        error_message=null(),
    )
)


def finish_jobs(tx: Connection, endings: Sequence[Ending]) -> set[str]:
    """End these jobs of one worker; the ids of those that are done. Nothing was written of the others."""
    claims = [(ending.claim.job.id, ending.claim.attempt) for ending in endings]
    rows = tx.execute(_HELD, {"claims": claims, "worker": endings[0].claim.worker_id})
    held = {job.id: job for job in map(job_of, rows)}
    free = [ending for ending in endings if ending.claim.job.id in held]
    if not free:
        return set()
    values = {one.claim.job.id: one.outcome.columns(held[one.claim.job.id]) for one in free}
    tx.execute(_DONE, [{"ended": job_id, **columns} for job_id, columns in values.items()])
    done = []
    for job_id, columns in values.items():
        own = {name: value for name, value in columns.items() if not name.startswith("source_")}
        done.append(replace(held[job_id], state=JobState.DONE, **own))
    note_jobs(tx, *done)
    settle_jobs(tx, [(job, one.claim.job.done_seconds) for job, one in zip(done, free, strict=True)])
    write_passages(
        tx, *(JobPassages(one.claim.job.id, one.claim.job.project, one.passages, one.review) for one in free)
    )
    for job in done:
        enqueue_exports(tx, job)
    # Last: the worker's other jobs wait for its row until the commit.
    save_chunks(tx, [(one.claim, *one.chunk) for one in free if one.chunk is not None])
    return set(values)
