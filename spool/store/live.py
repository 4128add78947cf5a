"""What SQL has to know of live sessions beside other jobs: their recording, once it is stored, and what a
client that listens is still to be sent."""

from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, update

from spool.domain.jobs import Job
from spool.store.chunks import SavedChunk, saved_chunks
from spool.store.jobs import get_job
from spool.store.queue.leases import Claim, lock_claim
from spool.store.sql import now_utc
from spool.tables import jobs, source_hashes


@dataclass(frozen=True, slots=True)
class Said:
    """The session's job, and its chunks from the one that was asked for on."""

    job: Job
    chunks: list[SavedChunk]


def what_was_said(tx: Connection, job_id: str, first: int) -> Said:
    """The session's job and what was saved of it, from chunk `first` on. Raises NotFound."""
    return Said(get_job(tx, job_id), saved_chunks(tx, job_id, first))


def keep_recording(tx: Connection, claim: Claim, size: int, hashes: bytes) -> None:
    """The recording is stored: from now on the session's source is an upload like others. In the commit that
    ends the job, before it does. Raises LeaseLost."""
    lock_claim(tx, claim)
    tx.execute(
        update(jobs)
        .where(jobs.c.id == claim.job.id)
        .values(source_kind="upload", source_size=size, updated_at=now_utc())
    )
    known = select(source_hashes.c.job_id).where(source_hashes.c.job_id == claim.job.id)
    if tx.execute(known).one_or_none() is None:
        tx.execute(insert(source_hashes).values(job_id=claim.job.id, hashes=hashes))
