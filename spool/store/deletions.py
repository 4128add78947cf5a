"""Deletions in SQL: jobs marked, their words removed, and the deletion recorded, in one commit.

From that commit on the content is treated as deleted: it is not served, not reused by other jobs, and the job
does not run again. `spool.background.content_deleter` deletes the objects afterwards. The job's row and its
costs stay; the sums of its chunks are kept, so that its bill can still be verified.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    delete,
    exists,
    func,
    insert,
    literal,
    null,
    select,
    text,
    union_all,
    update,
)

from spool.domain.jobs import TERMINAL, Job
from spool.domain.retention import Content
from spool.errors import Deleted
from spool.ids import new_id
from spool.store.archive.receipts import drop_receipts
from spool.store.archive.typescripts import drop_typescripts
from spool.store.sql import now_utc, seconds_from_now
from spool.store.transcripts.passages import drop_passages, drop_review
from spool.store.transcripts.sounds import drop_sounds
from spool.store.transcripts.voices import drop_prints
from spool.tables import (
    channel_passes,
    chunk_sums,
    chunks,
    closures,
    deletions,
    edits,
    former_names,
    glossaries,
    jobs,
    not_private,
    phrase_lists,
    source_hashes,
)
from spool.tables.deletions import Deletion
from spool.tables.jobs import KEPT_SOURCE, KEPT_TRANSCRIPT
from spool.tables.record import reader_of

BY_RETENTION = "retention"
SECOND_LOOK_SECONDS = 3600.0
"""When objects are deleted a second time, since a worker that lost its lease long ago may still write a
file."""
REFUSED_SECONDS = 300.0
LOCK_SECONDS = 300.0
"""How long the process that deletes may hold the lock; if it dies, the others wait for this long."""
OVERDUE_SECONDS = LOCK_SECONDS + 2 * REFUSED_SECONDS
"""By then a deletion should have been carried out, even after one crash and one refusal."""

_RECORDING = func.coalesce(jobs.c.rerun_of, jobs.c.id)
_ENDED = sorted(state.value for state in TERMINAL)
_FORGOTTEN: dict[Content, dict[str, Any]] = {
    Content.SOURCE: {"source_deleted_at": now_utc()},
    # Without the content's hash and the fingerprint no other job can reuse the transcript.
    Content.TRANSCRIPT: {"transcript_deleted_at": now_utc()}
    | dict.fromkeys(
        (
            "transcript_key",
            "transcript_sha256",
            "content_sha256",
            "fingerprint",
            "phrases_sha256",
            "speakers",
        ),
        null(),
    ),
}


def whole() -> ColumnElement[bool]:
    """SQL: nothing of the job was deleted. Part of every UPDATE that queues a job again."""
    return jobs.c.source_deleted_at.is_(None) & jobs.c.transcript_deleted_at.is_(None)


def refuse_deleted(job: Job, *asked: Content) -> None:
    """Raise Deleted if any of these contents of the job was deleted, by default any content."""
    times = {Content.SOURCE: job.source_deleted_at, Content.TRANSCRIPT: job.transcript_deleted_at}
    names = {Content.SOURCE: "recording", Content.TRANSCRIPT: "transcript"}
    for content in asked or Content:
        if (moment := times[content]) is not None:
            name = names[content]
            raise Deleted(f"The {name} of job {job.id} was deleted on {moment:%Y-%m-%d %H:%M} UTC.")


def mark_deleted(tx: Connection, job_ids: Sequence[str], content: Content, asked_by: str) -> list[Deletion]:
    """Mark the content of those jobs that have ended and still have it; returns the deletions, now due.

    A recording belongs to Spool only if it was uploaded. It is deleted for every version that was made from
    it, and stays while a version has yet to be made.
    """
    kept = _still_has(content)
    if content is Content.SOURCE:
        job_ids = _find_unused(tx, job_ids)
    wanted = select(jobs.c.id, jobs.c.project, jobs.c.phrases_sha256).where(jobs.c.id.in_(job_ids), *kept)
    rows = tx.execute(wanted.order_by(jobs.c.id).with_for_update()).all()
    if not rows:
        return []
    ids = [row.id for row in rows]
    if content is Content.TRANSCRIPT:
        _keep_closed(tx, ids)
    tx.execute(update(jobs).where(jobs.c.id.in_(ids)).values(**_FORGOTTEN[content], updated_at=now_utc()))
    if content is Content.SOURCE:
        tx.execute(delete(source_hashes).where(source_hashes.c.job_id.in_(ids)))
    else:
        _drop_chunks(tx, ids)
        drop_passages(tx, ids)
        drop_review(tx, ids)
        drop_prints(tx, ids)
        drop_sounds(tx, ids)
        tx.execute(delete(edits).where(edits.c.job_id.in_(ids)))
        tx.execute(delete(former_names).where(former_names.c.job_id.in_(ids)))
        tx.execute(delete(not_private).where(not_private.c.job_id.in_(ids)))
        drop_typescripts(tx, ids)
        drop_receipts(tx, ids)
        drop_phrases(tx, {row.phrases_sha256 for row in rows} - {None})
    lines = [
        {"id": new_id("del"), "job_id": row.id, "project": row.project, "content": content.value}
        for row in rows
    ]
    now = {"created_at": now_utc(), "due_at": now_utc()}
    tx.execute(insert(deletions).values(asked_by=asked_by, **now), lines)
    return deletions_of(tx, ids, content)


def _keep_closed(tx: Connection, job_ids: Sequence[str]) -> None:
    """Keep in their closures what the recordings contain, before these jobs forget it: other jobs with the
    same bytes stay closed."""
    content = select(jobs.c.content_sha256).where(jobs.c.id == closures.c.job_id).scalar_subquery()
    unknown = (closures.c.job_id.in_(job_ids), closures.c.content_sha256.is_(None))
    tx.execute(update(closures).where(*unknown).values(content_sha256=content))


def open_versions(tx: Connection, job_ids: Sequence[str]) -> dict[str, str]:
    """By recording (its first job's id): a job that has yet to read it, for the recordings of these jobs."""
    query = select(_RECORDING, func.min(jobs.c.id)).where(
        _same_recordings(job_ids), jobs.c.state.notin_(_ENDED)
    )
    return {str(recording): str(job_id) for recording, job_id in tx.execute(query.group_by(_RECORDING))}


def is_still_read() -> ColumnElement[bool]:
    """SQL: a version of the job's recording has yet to be made."""
    other = jobs.alias()
    same = (other.c.id == _RECORDING) | (other.c.rerun_of == _RECORDING)
    return exists(select(other.c.id).where(same, other.c.state.notin_(_ENDED)))


def deletions_of(tx: Connection, job_ids: Sequence[str], content: Content | None = None) -> list[Deletion]:
    """The deletions of these jobs, oldest first."""
    query = select(*deletions.c).where(deletions.c.job_id.in_(job_ids)).order_by(deletions.c.id)
    if content is not None:
        query = query.where(deletions.c.content == content.value)
    return [_deletion_of(row) for row in tx.execute(query)]


def due_deletions(tx: Connection, limit: int) -> list[Deletion]:
    """Up to `limit` deletions that are due, for the first time or again."""
    query = (
        select(*deletions.c).where(deletions.c.due_at <= now_utc()).order_by(deletions.c.due_at).limit(limit)
    )
    return [_deletion_of(row) for row in tx.execute(query)]


def note_deleted(tx: Connection, deletion: Deletion, objects: int) -> None:
    """Record that `objects` of its objects were deleted now. After the first time it is due once more."""
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
    """Postpone the deletion, since the object store refused it."""
    again = update(deletions).where(deletions.c.id == deletion.id)
    tx.execute(again.values(due_at=seconds_from_now(REFUSED_SECONDS)))


def find_expired_jobs(
    tx: Connection, project: str, content: Content, kept_for: timedelta, limit: int
) -> list[str]:
    """Up to `limit` jobs of the project that still have the content and ended longer ago than `kept_for`."""
    old = jobs.c.finished_at < seconds_from_now(-kept_for.total_seconds())
    query = select(jobs.c.id).where(jobs.c.project == project, old, *_still_has(content))
    if content is Content.SOURCE:
        query = query.where(~is_still_read())
    return list(tx.scalars(query.order_by(jobs.c.finished_at).limit(limit)))


def projects_with(tx: Connection, content: Content) -> list[str]:
    """Every project with a job that has the content; one index lookup per project."""
    projects: list[str] = []
    while True:
        after = [jobs.c.project > projects[-1]] if projects else []
        project = tx.scalar(select(func.min(jobs.c.project)).where(*_still_has(content), *after))
        if project is None:
            return projects
        projects.append(project)


def _still_has(content: Content) -> tuple[ColumnElement[bool], ...]:
    # The text of the partial indexes, so that both databases use them.
    kept = text(KEPT_SOURCE if content is Content.SOURCE else KEPT_TRANSCRIPT)
    return kept, jobs.c.state.in_(_ENDED)  # type: ignore[return-value]


def _same_recordings(job_ids: Sequence[str]) -> ColumnElement[bool]:
    """SQL: the job is a version of the recording of one of these."""
    named = jobs.alias()
    first = select(func.coalesce(named.c.rerun_of, named.c.id)).where(named.c.id.in_(job_ids))
    return jobs.c.id.in_(first) | jobs.c.rerun_of.in_(first)


def _find_unused(tx: Connection, job_ids: Sequence[str]) -> list[str]:
    """Every version of the recordings of these jobs, except recordings that have yet to be read."""
    family = select(jobs.c.id, _RECORDING.label("recording")).where(_same_recordings(job_ids))
    # Locked before the check: whoever adds a version locks its recording's first job.
    rows = tx.execute(family.order_by(jobs.c.id).with_for_update()).all()
    needed = open_versions(tx, job_ids)
    return [row.id for row in rows if row.recording not in needed]


def _drop_chunks(tx: Connection, job_ids: Sequence[str]) -> None:
    """Delete the words and their speakers; their sums stay, so that the bill can be verified."""
    saved = union_all(
        select(
            chunks.c.job_id,
            chunks.c.attempt,
            chunks.c.engine_ns,
            (chunks.c.core_end - chunks.c.core_start).label("samples"),
        ).where(chunks.c.job_id.in_(job_ids)),
        select(
            channel_passes.c.job_id, channel_passes.c.attempt, channel_passes.c.engine_ns, literal(0)
        ).where(channel_passes.c.job_id.in_(job_ids)),
    ).subquery()
    sums = select(saved.c.job_id, saved.c.attempt, func.sum(saved.c.engine_ns), func.sum(saved.c.samples))
    columns = ["job_id", "attempt", "engine_ns", "audio_samples"]
    grouped = sums.group_by(saved.c.job_id, saved.c.attempt)
    tx.execute(insert(chunk_sums).from_select(columns, grouped))
    tx.execute(delete(chunks).where(chunks.c.job_id.in_(job_ids)))
    tx.execute(delete(channel_passes).where(channel_passes.c.job_id.in_(job_ids)))


def drop_phrases(tx: Connection, digests: set[str]) -> None:
    """Delete those of these lists that no job and no glossary uses any more."""
    if not digests:
        return
    lists = select(phrase_lists.c.sha256).where(phrase_lists.c.sha256.in_(sorted(digests)))
    # Locked before the check: a job that is being submitted locks the list that it names.
    tx.execute(lists.order_by(phrase_lists.c.sha256).with_for_update()).all()
    named = exists(select(jobs.c.id).where(jobs.c.phrases_sha256 == phrase_lists.c.sha256))
    listed = exists(select(glossaries.c.sha256).where(glossaries.c.sha256 == phrase_lists.c.sha256))
    unused = (phrase_lists.c.sha256.in_(sorted(digests)), ~named, ~listed)
    tx.execute(delete(phrase_lists).where(*unused))


_deletion_of = reader_of(Deletion)
