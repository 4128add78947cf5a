"""Which finished transcript a job may reuse: same project, same bytes, same options and weights.

The bytes are identified by their SHA-256, which a worker recorded when it read them, or for S3 by address,
ETag and size together, which are known before anything is fetched. Reads rows; copies nothing.
"""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, func, or_, select

from spool.domain.jobs import Job, JobState, Source
from spool.tables import jobs


@dataclass(frozen=True, slots=True)
class KnownTranscript:
    """A done job's transcript. `job_id` is the job that decoded it, however often it was reused since."""

    job_id: str
    key: str
    sha256: str
    content_sha256: str | None


def find_by_content(
    tx: Connection, project: str, content_sha256: str, fingerprint: str
) -> KnownTranscript | None:
    """The latest transcript of these bytes."""
    return _find(tx, project, fingerprint, jobs.c.content_sha256 == content_sha256)


def find_by_etag(tx: Connection, project: str, source: Source, fingerprint: str) -> KnownTranscript | None:
    """The latest transcript of this version of an S3 object; None if the source has no version."""
    if source.kind != "s3" or source.etag is None or source.size is None:
        return None
    return _find(
        tx,
        project,
        fingerprint,
        jobs.c.fingerprint.is_not(None),  # as the index has it
        jobs.c.source_kind == "s3",
        jobs.c.source_etag == source.etag,
        jobs.c.source_size == source.size,
        jobs.c.source_uri == source.uri,
        jobs.c.source_connection.is_not_distinct_from(source.connection),
    )


def copies_of(tx: Connection, job: Job, limit: int = 1000) -> list[str]:
    """Other jobs of the project, by id, that still hold the transcript of this one: those that reused it, the
    one that it was reused from, and that one's other copies."""
    origin = job.reused_from or job.id
    query = select(jobs.c.id).where(
        or_(jobs.c.reused_from == origin, jobs.c.id == origin),
        jobs.c.id != job.id,
        jobs.c.project == job.project,
        jobs.c.transcript_key.is_not(None),
    )
    return list(tx.scalars(query.order_by(jobs.c.id).limit(limit)))


def _find(
    tx: Connection, project: str, fingerprint: str, *same: ColumnElement[bool]
) -> KnownTranscript | None:
    row = tx.execute(
        select(
            func.coalesce(jobs.c.reused_from, jobs.c.id).label("job_id"),
            jobs.c.transcript_key,
            jobs.c.transcript_sha256,
            jobs.c.content_sha256,
        )
        .where(
            jobs.c.state == JobState.DONE.value,
            jobs.c.project == project,
            jobs.c.fingerprint == fingerprint,
            jobs.c.transcript_key.is_not(None),
            *same,
        )
        .order_by(jobs.c.finished_at.desc())
        .limit(1)
    ).one_or_none()
    if row is None:
        return None
    return KnownTranscript(row.job_id, row.transcript_key, row.transcript_sha256, row.content_sha256)
