"""The words of existing transcripts that jobs align: written with the job, deleted with its transcript."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, delete, insert, select

from spool.domain.archive.alignment import Typescript
from spool.errors import NotFound, ObjectDamaged
from spool.tables import jobs, typescripts


def keep_typescripts(tx: Connection, texts: Mapping[str, Typescript | None]) -> None:
    """Write these texts, by job; jobs that do not exist have none."""
    rows = {job: text for job, text in texts.items() if text is not None}
    if not rows:
        return
    known = tx.scalars(select(jobs.c.id).where(jobs.c.id.in_(sorted(rows)))).all()
    tx.execute(insert(typescripts), [{"job_id": job, "words": rows[job].pack()} for job in known])


def typescript_of(tx: Connection, job_id: str, sha256: str) -> Typescript:
    """The text that the job aligns. Raises NotFound if it was deleted, ObjectDamaged where it is not what
    was written."""
    words = tx.scalar(select(typescripts.c.words).where(typescripts.c.job_id == job_id))
    if words is None:
        raise NotFound(f"Job {job_id} has no existing transcript.")
    text = Typescript.unpack(words)
    if text.sha256 != sha256:
        raise ObjectDamaged(f"The existing transcript of job {job_id} is damaged.")
    return text


def drop_typescripts(tx: Connection, job_ids: Sequence[str]) -> None:
    """Delete the texts of these jobs."""
    tx.execute(delete(typescripts).where(typescripts.c.job_id.in_(job_ids)))
