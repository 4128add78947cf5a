"""SQL for live sessions: the parts of their log, their stored recording, and what a client is still to be
sent."""

from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, update

from spool.domain.jobs import Job, JobState
from spool.domain.live.log import MOST_PARTS, LogParts
from spool.domain.recognition import DecodedChunk
from spool.errors import Conflict
from spool.store.chunks import load_chunks
from spool.store.jobs import get_job
from spool.store.queue.leases import Claim, lock_claim
from spool.store.sql import now_utc
from spool.tables import jobs, source_hashes

_OPEN = (JobState.QUEUED.value, JobState.RUNNING.value)


@dataclass(frozen=True, slots=True)
class Said:
    """The session's job, its chunks from the requested one on, and the parts of its log."""

    job: Job
    chunks: list[DecodedChunk]
    parts: LogParts


def get_said(tx: Connection, job_id: str, first: int) -> Said:
    """The session's job and what was saved of it, from chunk `first` on. Raises NotFound."""
    return Said(get_job(tx, job_id), load_chunks(tx, job_id, first), get_parts(tx, job_id))


def get_parts(tx: Connection, job_id: str) -> LogParts:
    """The parts of the session's log."""
    stored = tx.scalar(select(jobs.c.live_parts).where(jobs.c.id == job_id))
    return LogParts() if stored is None else LogParts(tuple(stored["starts"]), stored["closed"])


def open_part(tx: Connection, job_id: str, known: LogParts, start: int) -> bool:
    """Begin another part of the log of an open session after `start` bytes of its audio, where the part
    before it ends. False if the parts have changed from `known`. Raises Conflict for a session that has
    ended."""
    parts, is_open = _lock(tx, job_id)
    if parts.is_closed or not is_open:
        raise Conflict(f"The session has ended; its words are in job {job_id}.")
    if parts != known:
        return False
    if parts.last + 1 >= MOST_PARTS:
        raise Conflict(f"The session was resumed {parts.last} times, which is the limit; open another one.")
    _write(tx, job_id, LogParts((*parts.starts, start)))
    return True


def close_log(tx: Connection, claim: Claim, known: LogParts) -> bool:
    """End the session, so that no part can follow. False if one already followed `known`. Raises
    LeaseLost."""
    lock_claim(tx, claim)
    parts, _ = _lock(tx, claim.job.id)
    if parts.starts != known.starts:
        return False
    if not parts.is_closed:
        _write(tx, claim.job.id, LogParts(parts.starts, is_closed=True))
    return True


def _lock(tx: Connection, job_id: str) -> tuple[LogParts, bool]:
    """The parts, locked for this transaction, and whether the job is an open session."""
    columns = jobs.c.live_parts, jobs.c.state, jobs.c.source_kind, jobs.c.cancel_requested
    row = tx.execute(select(*columns).where(jobs.c.id == job_id).with_for_update()).one_or_none()
    if row is None:
        return LogParts(), False
    parts = LogParts() if row[0] is None else LogParts(tuple(row[0]["starts"]), row[0]["closed"])
    return parts, row.state in _OPEN and row.source_kind == "live" and not row.cancel_requested


def _write(tx: Connection, job_id: str, parts: LogParts) -> None:
    document = {"starts": list(parts.starts), "closed": parts.is_closed}
    tx.execute(update(jobs).where(jobs.c.id == job_id).values(live_parts=document))


def keep_recording(tx: Connection, claim: Claim, size: int, hashes: bytes) -> None:
    """The recording is stored: the session's source becomes an ordinary upload. Call it in the commit that
    ends the job, before its end. Raises LeaseLost."""
    lock_claim(tx, claim)
    tx.execute(
        update(jobs)
        .where(jobs.c.id == claim.job.id)
        .values(source_kind="upload", source_size=size, updated_at=now_utc())
    )
    known = select(source_hashes.c.job_id).where(source_hashes.c.job_id == claim.job.id)
    if tx.execute(known).one_or_none() is None:
        tx.execute(insert(source_hashes).values(job_id=claim.job.id, hashes=hashes))
