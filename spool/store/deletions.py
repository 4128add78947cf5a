"""What is deleted on purpose: jobs marked, their words in SQL gone, and a line in the log, in one commit.

From that commit on the content counts as gone: it is not served, not taken over by other jobs, and the job is
not run again. Its objects are removed after it (`spool.background.content_deleter`), and the line says until
when that is still to be done. The job's row stays with its costs; what its chunks came to stays as sums, so
that its bill is still proved.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    delete,
    exists,
    func,
    insert,
    null,
    or_,
    select,
    text,
    update,
)

from spool.domain.jobs import TERMINAL, Job
from spool.domain.retention import Content
from spool.errors import Deleted
from spool.ids import new_id
from spool.store.sql import now_utc, seconds_from_now
from spool.tables import chunk_sums, chunks, deletions, jobs, phrase_lists, source_hashes
from spool.tables.jobs import KEPT_SOURCE, KEPT_TRANSCRIPT

BY_RETENTION = "retention"
SECOND_LOOK_SECONDS = 3600.0
"""A worker that lost its lease long ago may still write a file; so the store is looked through once more."""
REFUSED_SECONDS = 300.0

_ENDED = sorted(state.value for state in TERMINAL)
_FORGOTTEN: dict[Content, dict[str, Any]] = {
    Content.SOURCE: {"source_deleted_at": now_utc()},
    # Neither the bytes' hash nor the fingerprint stays, so no job takes the transcript over.
    Content.TRANSCRIPT: {"transcript_deleted_at": now_utc()}
    | dict.fromkeys(
        ("transcript_key", "transcript_sha256", "content_sha256", "fingerprint", "phrases_sha256"), null()
    ),
}


@dataclass(frozen=True, slots=True)
class Deletion:
    """A line of the log: what of which job, who asked (a key's id, `operator`, `anybody`, `retention`), how
    many objects went, when it was asked and done, and when the store is looked through next."""

    id: str
    job_id: str
    project: str
    content: Content
    asked_by: str
    objects: int
    created_at: datetime
    done_at: datetime | None
    due_at: datetime | None


def whole() -> ColumnElement[bool]:
    """SQL: nothing of the job was deleted. Part of every UPDATE that would have it run again."""
    return jobs.c.source_deleted_at.is_(None) & jobs.c.transcript_deleted_at.is_(None)


def refuse_deleted(job: Job, *asked: Content) -> None:
    """Raise Deleted where this of the job (anything at all, unless said) was."""
    times = {Content.SOURCE: job.source_deleted_at, Content.TRANSCRIPT: job.transcript_deleted_at}
    names = {Content.SOURCE: "recording", Content.TRANSCRIPT: "transcript"}
    for content in asked or Content:
        if (moment := times[content]) is not None:
            name = names[content]
            raise Deleted(f"The {name} of job {job.id} was deleted on {moment:%Y-%m-%d %H:%M} UTC.")


def mark_deleted(tx: Connection, job_ids: Sequence[str], content: Content, asked_by: str) -> list[Deletion]:
    """Mark those of the jobs that have ended and have the content still; a line for each, to be carried out.

    A recording is content of ours only where it was uploaded.
    """
    kept = _kept(content)
    wanted = select(jobs.c.id, jobs.c.project, jobs.c.phrases_sha256).where(jobs.c.id.in_(job_ids), *kept)
    found = tx.execute(wanted.order_by(jobs.c.id).with_for_update()).all()
    if not found:
        return []
    ids = [row.id for row in found]
    tx.execute(update(jobs).where(jobs.c.id.in_(ids)).values(**_FORGOTTEN[content], updated_at=now_utc()))
    if content is Content.SOURCE:
        tx.execute(delete(source_hashes).where(source_hashes.c.job_id.in_(ids)))
    else:
        _drop_chunks(tx, ids)
        _drop_phrases(tx, {row.phrases_sha256 for row in found} - {None})
    lines = [
        {"id": new_id("del"), "job_id": row.id, "project": row.project, "content": content.value}
        for row in found
    ]
    now = {"created_at": now_utc(), "due_at": now_utc()}
    tx.execute(insert(deletions).values(asked_by=asked_by, **now), lines)
    return deletions_of(tx, ids, content)


def deletions_of(tx: Connection, job_ids: Sequence[str], content: Content | None = None) -> list[Deletion]:
    """The lines of these jobs, oldest first."""
    query = select(*deletions.c).where(deletions.c.job_id.in_(job_ids)).order_by(deletions.c.id)
    if content is not None:
        query = query.where(deletions.c.content == content.value)
    return [_deletion_of(row) for row in tx.execute(query)]


def due_deletions(tx: Connection, limit: int) -> list[Deletion]:
    """Up to `limit` lines that are still to be carried out, or looked after once more."""
    query = (
        select(*deletions.c).where(deletions.c.due_at <= now_utc()).order_by(deletions.c.due_at).limit(limit)
    )
    return [_deletion_of(row) for row in tx.execute(query)]


def note_deleted(tx: Connection, deletion: Deletion, objects: int) -> None:
    """So many of its objects were there and are gone now. The first time it is due once more, then never."""
    first = deletion.done_at is None
    tx.execute(
        update(deletions)
        .where(deletions.c.id == deletion.id)
        .values(
            objects=deletions.c.objects + objects,
            done_at=now_utc() if first else deletions.c.done_at,
            due_at=seconds_from_now(SECOND_LOOK_SECONDS) if first else null(),
        )
    )


def postpone(tx: Connection, deletion: Deletion) -> None:
    """The object store refused: try again in a while."""
    again = update(deletions).where(deletions.c.id == deletion.id)
    tx.execute(again.values(due_at=seconds_from_now(REFUSED_SECONDS)))


def expired_jobs(
    tx: Connection, project: str, content: Content, kept_for: timedelta, limit: int
) -> list[str]:
    """Up to `limit` jobs of the project that have the content and ended longer ago than that."""
    old = jobs.c.finished_at < seconds_from_now(-kept_for.total_seconds())
    query = select(jobs.c.id).where(jobs.c.project == project, old, *_kept(content))
    return list(tx.scalars(query.order_by(jobs.c.finished_at).limit(limit)))


def projects_with(tx: Connection, content: Content) -> list[str]:
    """Every project with a job that has the content, in steps over the index: one look for each project."""
    found: list[str] = []
    while True:
        after = [jobs.c.project > found[-1]] if found else []
        project = tx.scalar(select(func.min(jobs.c.project)).where(*_kept(content), *after))
        if project is None:
            return found
        found.append(project)


def _kept(content: Content) -> tuple[ColumnElement[bool], ...]:
    # In the words of the indexes, so that both databases see that they serve.
    kept = text(KEPT_SOURCE if content is Content.SOURCE else KEPT_TRANSCRIPT)
    return kept, jobs.c.state.in_(_ENDED)  # type: ignore[return-value]


def _drop_chunks(tx: Connection, job_ids: Sequence[str]) -> None:
    which = chunks.c.job_id.in_(job_ids)
    samples = func.sum(chunks.c.core_end - chunks.c.core_start)
    sums = select(chunks.c.job_id, chunks.c.attempt, func.sum(chunks.c.engine_ns), samples).where(which)
    columns = ["job_id", "attempt", "engine_ns", "audio_samples"]
    tx.execute(insert(chunk_sums).from_select(columns, sums.group_by(chunks.c.job_id, chunks.c.attempt)))
    tx.execute(delete(chunks).where(which))


def _drop_phrases(tx: Connection, digests: set[str]) -> None:
    """Those lists that no job names any more."""
    if not digests:
        return
    held = select(phrase_lists.c.sha256).where(phrase_lists.c.sha256.in_(sorted(digests)))
    # First held, then looked at: a job that is being handed in holds the list that it names.
    tx.execute(held.order_by(phrase_lists.c.sha256).with_for_update()).all()
    by_column = jobs.c.phrases_sha256 == phrase_lists.c.sha256
    # A server of the release before writes jobs without that column.
    in_options = jobs.c.options["boost"]["sha256"].as_string() == phrase_lists.c.sha256
    named = exists(select(jobs.c.id).where(or_(by_column, in_options & jobs.c.state.not_in(_ENDED))))
    tx.execute(delete(phrase_lists).where(phrase_lists.c.sha256.in_(sorted(digests)), ~named))


def _deletion_of(row: Row[Any]) -> Deletion:
    fields = dict(row._mapping)
    return Deletion(**fields | {"content": Content(fields["content"])})
