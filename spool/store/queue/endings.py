"""The endings of several jobs in one transaction, each as `spool.store.queue.leases.finish_job` writes it.

Short recordings end many at a time, and most of what an ending costs is its statements, not its rows. Waits
for no job's row: an ending whose row another transaction holds, or whose claim no longer does, is left to the
caller, who writes it by itself and then learns why. So no frozen process holds up others, and endings never
lock rows of `jobs` in two orders.
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
    null,
    select,
    tuple_,
    update,
)

from spool.domain.archive.passages import Passage
from spool.domain.archive.review import ReviewPassage
from spool.domain.jobs import JobState
from spool.store.archive.exports import enqueue_exports
from spool.store.chunks import SavedChunk, save_last_chunks
from spool.store.event_log import note_jobs
from spool.store.ledger.charges import Charge
from spool.store.queue.fair_share import settle_jobs
from spool.store.queue.leases import Claim, Outcome
from spool.store.rows import may_become
from spool.store.sql import ROWS, json_of, now_utc, rows_in_json, types_of
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
    for job in done:
        enqueue_exports(tx, job)
    # Last: the worker's other jobs wait for its row until the commit.
    save_last_chunks(tx, [(one.claim, *one.chunk) for one in free if one.chunk is not None])
    return ended


def _end(tx: Connection, endings: Sequence[Ending], columns: dict[str, dict[str, Any]]) -> set[str]:
    """Set these columns, by job, where the claim holds and no other transaction holds the row; the ids of the
    jobs for which that is so."""
    owner = {"owner": endings[0].claim.worker_id}
    attempts = {one.claim.job.id: one.claim.attempt for one in endings}
    if tx.dialect.name == "postgresql":
        rows = [{"id": job_id, "attempt": attempts[job_id], **own} for job_id, own in columns.items()]
        given = {ROWS: json_of(rows, types_of(jobs, rows[0])), **owner}
        return set(tx.scalars(_ended(tuple(rows[0])), given))
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
def _ended(names: tuple[str, ...]) -> Executable:
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
