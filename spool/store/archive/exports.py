"""Transcripts to be written elsewhere: one row for each job and format, attempted until it is written.

The rows are written in the commit that ends the job, and set back to pending by whatever changes the
transcript (`enqueue_exports`): a revision's outcome counts only while that revision is the latest. No two
jobs write the same file: the first one has the name, unless a later job transcribes the same recording; it
replaces the file.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, func, null, select, update

from spool.domain.archive.outputs import destination_of, target_of
from spool.domain.jobs import Job
from spool.store.event_log import note_exported
from spool.store.sql import count_by, now_utc, seconds_from_now, upsert
from spool.tables import exports, jobs
from spool.tables.exports import Export, ExportState
from spool.tables.record import reader_of

_export_of = reader_of(Export)
_REPLACED = "A newer job of the same recording writes this file."


def enqueue_exports(tx: Connection, job: Job) -> int:
    """Have the job's current transcript written to its output; returns how many files that makes. Call it in
    the transaction that creates or changes the transcript."""
    if job.output is None or job.transcript_key is None:
        return 0
    values = {
        "job_id": job.id,
        "project": job.project,
        "destination": destination_of(job.output),
        "state": "pending",
        "due_at": now_utc(),
        "created_at": now_utc(),
    }
    again = {
        "state": "pending",
        "revision": exports.c.revision + 1,
        "tries": 0,
        "due_at": now_utc(),
        "error": null(),
    }
    rows = [{"format": form} for form in job.output["formats"]]
    upsert(tx, exports, values, rows, update=again)
    return len(rows)


def exports_of(tx: Connection, job_id: str) -> list[Export]:
    """The files of a job, by format."""
    query = select(*exports.c).where(exports.c.job_id == job_id).order_by(exports.c.format)
    return [_export_of(row) for row in tx.execute(query)]


def due_exports(tx: Connection, limit: int) -> list[Export]:
    """Up to `limit` due files, those of one job together."""
    due = (exports.c.state == "pending", exports.c.due_at <= now_utc())
    query = select(*exports.c).where(*due).order_by(exports.c.due_at, exports.c.job_id).limit(limit)
    return [_export_of(row) for row in tx.execute(query)]


def take_target(tx: Connection, export: Export, job: Job, uris: Sequence[str]) -> str | None:
    """The first of `uris` that no job of another recording writes, taken for this job; None if a newer job of
    the same recording writes it, which this file then records."""
    assert job.output is not None
    other = jobs.alias()
    for uri in uris:
        target = target_of(export.project, job.output, uri)
        query = (
            select(
                exports.c.job_id,
                exports.c.format,
                other.c.source_uri,
                other.c.source_connection,
                other.c.created_at,
            )
            .join(other, other.c.id == exports.c.job_id)
            .where(exports.c.target == target)
        )
        owner = tx.execute(query).one_or_none()
        if owner is not None and owner.job_id != job.id:
            if (owner.source_uri, owner.source_connection) != (job.source.uri, job.source.connection):
                continue
            if owner.created_at > job.created_at:
                _settle(tx, export, "replaced", error=_REPLACED, target=null())
                return None
            before = (exports.c.job_id == owner.job_id, exports.c.format == owner.format)
            replaced = {"state": "replaced", "error": _REPLACED, "target": null()}
            tx.execute(update(exports).where(*before).values(**replaced))
        tx.execute(update(exports).where(*_same(export)).values(uri=uri, target=target))
        return uri
    raise AssertionError(f"every name for {job.id} is taken")


def note_written(tx: Connection, export: Export, sha256: str) -> bool:
    """The file was written; False if the transcript has changed since it was read."""
    return _settle(tx, export, "written", sha256=sha256, written_at=now_utc(), error=null())


def note_failed(tx: Connection, export: Export, error: str, wait: float | None) -> bool:
    """An attempt failed: repeat it in `wait` seconds, or give up (None)."""
    state: ExportState = "failed" if wait is None else "pending"
    return _settle(tx, export, state, error=error, due_at=seconds_from_now(wait or 0.0))


def postpone_destination(tx: Connection, export: Export, error: str, wait: float) -> int:
    """Postpone every other due file at the same destination, since it does not answer."""
    same = (exports.c.project == export.project, exports.c.destination == export.destination)
    due = (exports.c.state == "pending", exports.c.due_at <= now_utc())
    query = update(exports).where(*same, *due)
    return tx.execute(query.values(due_at=seconds_from_now(wait), error=error)).rowcount


def note_if_settled(tx: Connection, job: Job) -> None:
    """Record the event of a job that has no more files to write. Call it after one was settled."""
    files = count_by(tx, exports.c.state, exports.c.job_id == job.id)
    if "pending" not in files:
        note_exported(tx, job, files)


def _same(export: Export) -> tuple[ColumnElement[bool], ...]:
    row = exports.c
    return (
        row.job_id == export.job_id,
        row.format == export.format,
        row.revision == export.revision,
        row.state == "pending",
    )


def _settle(tx: Connection, export: Export, state: ExportState, **values: object) -> bool:
    query = update(exports).where(*_same(export))
    return tx.execute(query.values(state=state, tries=exports.c.tries + 1, **values)).rowcount == 1


def export_gauges(tx: Connection) -> tuple[dict[str, int], datetime | None]:
    """Files of outputs by state, and since when the most overdue one has been due (None: none is)."""
    waiting = (exports.c.state == "pending", exports.c.due_at <= now_utc())
    return count_by(tx, exports.c.state), tx.scalar(select(func.min(exports.c.due_at)).where(*waiting))
