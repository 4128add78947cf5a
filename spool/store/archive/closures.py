"""Closures in SQL: made, listed, lifted, and the log of openings. `closed` says what they close.

Whatever changes what is closed has the files of the recording's outputs written again in the same commit:
they are made for nobody in particular, and so without what is closed.
"""

from collections.abc import Callable, Iterable

from sqlalchemy import Connection, delete, insert, select, update

from spool.domain.archive.closures import BY_DATE, Closure, NewClosure, speaker_spans
from spool.domain.jobs import Job
from spool.domain.transcript import Transcript
from spool.errors import NotFound
from spool.ids import is_id, new_id
from spool.store.archive.closed import STANDS, closure_of, find_closures, of_job
from spool.store.archive.exports import enqueue_exports
from spool.store.archive.versions import versions_of
from spool.store.database import READING_SECONDS, allow_idle
from spool.store.jobs import get_job
from spool.store.sql import find_row, now_utc, upsert
from spool.tables import closures, not_private, openings
from spool.tables.closures import Opening
from spool.tables.record import reader_of, values_of

_opening_of = reader_of(Opening)
_MOST_VERSIONS = 10_000


def add_closure(tx: Connection, job: Job, new: NewClosure, spans: list[list[float]]) -> Closure:
    """Close something of the job's recording."""
    names = job.speaker_names
    closure_id = new_id("clo")
    values = values_of(new, NewClosure) | {
        "id": closure_id,
        "project": job.project,
        "job_id": job.id,
        "recording": job.recording,
        "content_sha256": job.content_sha256,
        "transcript_sha256": job.transcript_sha256,
        "speaker_name": names.get(new.speaker) if new.speaker else None,
        "spans": spans,
        "created_at": now_utc(),
    }
    tx.execute(insert(closures).values(**values))
    _write_again(tx, job)
    return get_closure(tx, closure_id)


def get_closure(tx: Connection, closure_id: str) -> Closure:
    """One closure. Raises NotFound."""
    missing = f"There is no closure {closure_id}."
    if not is_id(closure_id, "clo"):
        raise NotFound(missing)
    return closure_of(find_row(tx, select(*closures.c).where(closures.c.id == closure_id), missing))


def lift_closure(tx: Connection, closure_id: str, by: str) -> Closure:
    """Open it again. Lifting it twice changes nothing. Raises NotFound."""
    standing = (closures.c.id == closure_id, closures.c.lifted_at.is_(None))
    lifted = tx.execute(update(closures).where(*standing).values(lifted_at=now_utc(), lifted_by=by)).rowcount
    closure = get_closure(tx, closure_id)
    if lifted:
        _write_again(tx, get_job(tx, closure.job_id))
    return closure


def lift_due(tx: Connection, limit: int = 100) -> int:
    """Open up to `limit` closures whose date has come; returns how many. Readers see them from that date on
    whatever happens here, which is about the files that were written."""
    due = (
        select(closures.c.id)
        .where(closures.c.lifted_at.is_(None), closures.c.until <= now_utc())
        .limit(limit)
    )
    found = tx.scalars(due).all()
    for closure_id in found:
        lift_closure(tx, closure_id, BY_DATE)
    return len(found)


def closures_of_recording(tx: Connection, job: Job) -> list[Closure]:
    """Every closure of the job's recording, lifted ones too, oldest first."""
    own = of_job(job, find_closures(tx, [job], standing=False))
    return sorted(own, key=lambda each: (each.created_at, each.id))


def follow_speakers(tx: Connection, job: Job, read: Callable[[], Transcript]) -> None:
    """Have the closed speakers of a transcript stay closed after corrections of who spoke. read: its words,
    as they are now."""
    own = (closures.c.job_id == job.id, closures.c.kind == "speaker", *STANDS)
    found = tx.execute(
        select(closures.c.id, closures.c.speaker, closures.c.transcript_sha256).where(*own)
    ).all()
    closed = [row for row in found if row.transcript_sha256 == job.transcript_sha256]
    if not closed:
        return
    allow_idle(tx, READING_SECONDS)
    transcript = read()
    for row in closed:
        spans = speaker_spans(transcript, row.speaker)
        tx.execute(update(closures).where(closures.c.id == row.id).values(spans=spans))


def note_openings(tx: Connection, of_jobs: Iterable[Job], by: str, way: str) -> None:
    """Log that somebody is about to be given what is closed of these jobs."""
    rows = [{"id": new_id("opn"), "job_id": job.id, "project": job.project} for job in of_jobs]
    if rows:
        tx.execute(insert(openings).values(by=by, way=way, at=now_utc()), rows)


def openings_of(tx: Connection, job_id: str, limit: int = 1000) -> list[Opening]:
    """The last openings of a job, newest first."""
    own = select(*openings.c).where(openings.c.job_id == job_id)
    return [_opening_of(row) for row in tx.execute(own.order_by(openings.c.id.desc()).limit(limit))]


def decide_not_private(tx: Connection, job: Job, digest: str, by: str, *, private: bool) -> None:
    """Suggest these words of the job's recording no more; private: again."""
    row = {"recording": job.recording, "text_sha256": digest}
    if private:
        own = (not_private.c.recording == job.recording, not_private.c.text_sha256 == digest)
        tx.execute(delete(not_private).where(*own))
    else:
        decision = {"job_id": job.id, "decided_by": by, "decided_at": now_utc()}
        upsert(tx, not_private, decision, [row], update=decision)


def decided_not_private(tx: Connection, job: Job) -> set[str]:
    """The digests of what people decided about the job's recording."""
    return set(tx.scalars(select(not_private.c.text_sha256).where(not_private.c.recording == job.recording)))


def _write_again(tx: Connection, job: Job) -> None:
    for version in versions_of(tx, job, _MOST_VERSIONS):
        enqueue_exports(tx, version)
