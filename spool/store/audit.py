"""The queries of an audit, in pages that fit in memory however long the tables are.

Values that are compared come from one statement, so that an audit of a live database sees no half commit. The
rules are in `spool.audit.rules`.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, exists, func, literal, or_, select, union_all

from spool.audit.rules import Bill, Core, JobFacts, Line, Stored, WorkerDay, WorkerFacts
from spool.domain.archive.passages import digest_of
from spool.domain.archive.review import REASONS
from spool.domain.retention import Content
from spool.store.deletions import OVERDUE_SECONDS, is_still_read
from spool.store.sql import now_utc, seconds_from_now
from spool.store.transcripts.passages import passage_of, recording_doubts
from spool.store.workers import ALIVE_SECONDS
from spool.tables import (
    channel_passes,
    chunk_sums,
    chunks,
    cost_lines,
    deletions,
    edits,
    exports,
    jobs,
    locks,
    outbox,
    passage_words,
    passages,
    review_passages,
    review_recordings,
    sound_blocks,
    sound_recordings,
    workers,
)
from spool.tables.record import reader_of

STREAMED = {"yield_per": 1000}


def jobs_after(tx: Connection, last_id: str, limit: int) -> list[JobFacts]:
    """The next `limit` jobs by id after `last_id` ("" to begin with)."""
    waiting = exists(select(literal(1)).where(outbox.c.job_id == jobs.c.id))
    logged = [
        exists().where(deletions.c.job_id == jobs.c.id, deletions.c.content == content.value)
        for content in Content
    ]
    flags = [flag.label(f"{content}_logged") for flag, content in zip(logged, Content, strict=True)]
    words = select(func.coalesce(func.sum(passages.c.own_words), 0)).where(passages.c.job_id == jobs.c.id)
    edited = (
        select(edits.c.words).where(edits.c.job_id == jobs.c.id).order_by(edits.c.revision.desc()).limit(1)
    )
    missing = select(func.coalesce(func.max(edits.c.revision), 0) - func.count()).where(
        edits.c.job_id == jobs.c.id
    )
    files = select(func.count()).where(exports.c.job_id == jobs.c.id)
    first = jobs.alias()
    same = (first.c.id == jobs.c.rerun_of, first.c.project == jobs.c.project)
    with_first = exists(
        select(first.c.id).where(*same, first.c.source_uri == jobs.c.source_uri, first.c.rerun_of.is_(None))
    )
    rows = tx.execute(
        select(
            jobs,
            waiting.label("in_outbox"),
            now_utc().label("now"),
            words.scalar_subquery().label("indexed"),
            edited.scalar_subquery().label("edited_words"),
            missing.scalar_subquery().label("missing_edits"),
            exists(select(literal(1)).where(passage_words.c.job_id == jobs.c.id)).label("spelled"),
            files.scalar_subquery().label("exports"),
            is_still_read().label("still_read"),
            (jobs.c.rerun_of.is_not(None) & ~with_first).label("stray"),
            *flags,
        )
        .where(jobs.c.id > last_id)
        .order_by(jobs.c.id)
        .limit(limit)
    )
    return [_facts_of(row) for row in rows]


def index_digests(tx: Connection, job_ids: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The digest of what the search has indexed of each of these jobs, if anything."""
    spelled: dict[str, list[tuple[str, str]]] = {}
    own = select(passage_words).where(passage_words.c.job_id.in_(job_ids))
    for row in tx.execute(own, execution_options=STREAMED):
        spelled.setdefault(row.job_id, []).append((row.sound, row.token))
    query = select(passages).where(passages.c.job_id.in_(job_ids)).order_by(passages.c.job_id)
    rows = tx.execute(query, execution_options=STREAMED)
    for job_id, group in groupby(rows, key=lambda row: str(row.job_id)):
        yield job_id, digest_of(map(passage_of, group), spelled.get(job_id, ()))


class PassageErrors(NamedTuple):
    """A passage to review: its words as recognised, both included, and how many are wrong."""

    number: int
    first: int
    last: int
    errors: int


def passage_errors(tx: Connection, job_ids: Iterable[str]) -> dict[str, list[PassageErrors]]:
    """The passages of each of these jobs as reviewed, by number."""
    c = review_passages.c
    query = select(c.job_id, c.number, c.first_word, c.last_word, c.errors)
    by_job: dict[str, list[PassageErrors]] = {}
    for row in tx.execute(query.where(c.job_id.in_(list(job_ids))).order_by(c.job_id, c.number)):
        by_job.setdefault(row.job_id, []).append(PassageErrors(*row[1:]))
    return by_job


def wrong_recordings(tx: Connection, job_ids: Sequence[str]) -> Sequence[str]:
    """Those of these jobs whose recording's doubt does not follow from their passages. One SELECT."""
    own, given = review_recordings, recording_doubts(job_ids).subquery()
    differs = [
        func.coalesce(own.c[name], 0) != func.coalesce(given.c[name], 0) for name in ("passages", "unchecked")
    ]
    differs += [
        func.abs(func.coalesce(own.c[name], 0.0) - func.coalesce(given.c[name], 0.0)) > 1e-6
        for name in ("doubt", *REASONS)
    ]
    both = jobs.outerjoin(own, own.c.job_id == jobs.c.id).outerjoin(given, given.c.job_id == jobs.c.id)
    query = select(jobs.c.id).select_from(both).where(jobs.c.id.in_(job_ids), or_(*differs))
    return tx.scalars(query.order_by(jobs.c.id)).all()


def sounds(tx: Connection, job_ids: Sequence[str]) -> Iterator[tuple[str, int, int, bytes | None]]:
    """The blocks of what was heard in these jobs, by channel and number: job, channel, number, block. A
    channel without blocks has one row, whose block is None."""
    c = sound_blocks.c
    of_channel = (c.job_id == sound_recordings.c.job_id) & (c.channel == sound_recordings.c.channel)
    own = select(
        sound_recordings.c.job_id,
        sound_recordings.c.channel,
        func.coalesce(c.number, 0).label("number"),
        c.block,
    )
    own = own.outerjoin_from(sound_recordings, sound_blocks, of_channel)
    own = own.where(sound_recordings.c.job_id.in_(job_ids)).order_by("job_id", "channel", "number")
    for row in tx.execute(own.execution_options(**STREAMED)):
        yield row.job_id, row.channel, row.number, row.block


def cores(tx: Connection, job_ids: Sequence[str]) -> Iterator[Core]:
    """The saved chunks of these jobs, by job, channel and number."""
    query = (
        select(chunks.c.job_id, chunks.c.channel, chunks.c.number, chunks.c.core_start, chunks.c.core_end)
        .where(chunks.c.job_id.in_(job_ids))
        .order_by(chunks.c.job_id, chunks.c.channel, chunks.c.number)
    )
    for row in tx.execute(query, execution_options=STREAMED):
        yield Core(*row)


def bills(tx: Connection, job_ids: Sequence[str]) -> list[Bill]:
    """The sums of billable lines and of saved chunks for each attempt at these jobs."""
    zero = literal(0)
    sums = select(
        chunk_sums.c.job_id,
        chunk_sums.c.attempt,
        zero,
        chunk_sums.c.engine_ns,
        zero,
        chunk_sums.c.audio_samples,
    ).where(chunk_sums.c.job_id.in_(job_ids))
    saved = select(
        chunks.c.job_id,
        chunks.c.attempt,
        zero.label("billed_ns"),
        chunks.c.engine_ns.label("saved_ns"),
        zero.label("billed_samples"),
        (chunks.c.core_end - chunks.c.core_start).label("saved_samples"),
    ).where(chunks.c.job_id.in_(job_ids))
    turns = select(
        channel_passes.c.job_id,
        channel_passes.c.attempt,
        zero,
        channel_passes.c.engine_ns,
        zero,
        zero,
    ).where(channel_passes.c.job_id.in_(job_ids))
    billed = select(
        cost_lines.c.job_id,
        cost_lines.c.attempt,
        cost_lines.c.engine_ns,
        zero,
        cost_lines.c.audio_samples,
        zero,
    ).where(cost_lines.c.job_id.in_(job_ids), ~cost_lines.c.wasted)
    both = union_all(saved, sums, turns, billed).subquery()
    amounts = [func.sum(both.c[name]) for name in Bill._fields[2:]]
    rows = tx.execute(
        select(both.c.job_id, both.c.attempt, *amounts)
        .group_by(both.c.job_id, both.c.attempt)
        .order_by(both.c.job_id, both.c.attempt)
    )
    # PostgreSQL sums bigints as numeric.
    return [Bill(job_id, attempt, *map(int, sums)) for job_id, attempt, *sums in rows]


def lines(tx: Connection) -> Iterator[Line]:
    """Every cost line, read as a stream."""
    query = select(*(cost_lines.c[name] for name in Line._fields))
    for row in tx.execute(query, execution_options=STREAMED):
        yield Line(*row)


def worker_sums(tx: Connection) -> Iterator[WorkerFacts]:
    """Every worker that ever registered, with the sum of its lines."""
    gone = workers.c.stopped_at.is_(None) & (workers.c.seen_at < seconds_from_now(-ALIVE_SECONDS))
    billed = _sum_bills(cost_lines.c.worker_id).subquery()
    query = (
        select(
            workers.c.id,
            workers.c.state,
            workers.c.busy_ns,
            workers.c.engine_busy_ns,
            func.coalesce(billed.c.engine_ns, 0),
            workers.c.unbilled_ns,
            gone,
        )
        .join_from(workers, billed, billed.c.worker_id == workers.c.id, isouter=True)
        .order_by(workers.c.id)
    )
    for worker_id, state, *sums, died in tx.execute(query, execution_options=STREAMED):
        busy_ns, engine_busy_ns, billed_ns, unbilled_ns = map(int, sums)
        yield WorkerFacts(worker_id, state, busy_ns, engine_busy_ns, billed_ns, unbilled_ns, bool(died))


def worker_days(tx: Connection) -> Iterator[WorkerDay]:
    """The billed time of each worker on each day, by worker and day. A bill is a sign of life, too: who has
    slept may write one and die before its next heartbeat."""
    billed = _sum_bills(cost_lines.c.worker_id, cost_lines.c.day).subquery()
    last = func.max(cost_lines.c.updated_at).label("at")
    last_bills = select(cost_lines.c.worker_id, last).group_by(cost_lines.c.worker_id).subquery()
    query = (
        select(
            billed.c.worker_id,
            billed.c.day,
            billed.c.engine_ns,
            workers.c.started_at,
            func.coalesce(workers.c.stopped_at, workers.c.seen_at),
            last_bills.c.at,
        )
        .join_from(billed, workers, billed.c.worker_id == workers.c.id)
        .join(last_bills, last_bills.c.worker_id == workers.c.id)
        .order_by(billed.c.worker_id, billed.c.day)
    )
    for worker_id, day, engine_ns, began, *signs in tx.execute(query, execution_options=STREAMED):
        yield WorkerDay(worker_id, day, int(engine_ns), began, max(signs))


def find_jobs(tx: Connection, job_ids: Iterable[str], grace_seconds: float) -> dict[str, Stored]:
    """Those of the ids that are jobs. Objects of an unfinished deletion may exist until it is overdue, and
    `grace_seconds` longer."""
    ids = list(job_ids)
    rows = tx.execute(select(jobs.c.id, jobs.c.transcript_key).where(jobs.c.id.in_(ids)))
    known = {row.id: Stored(row.transcript_key, frozenset()) for row in rows}
    old = (
        deletions.c.done_at.is_not(None),
        deletions.c.created_at < seconds_from_now(-grace_seconds - OVERDUE_SECONDS),
    )
    gone = select(deletions.c.job_id, deletions.c.content).where(deletions.c.job_id.in_(ids), or_(*old))
    for job_id, content in tx.execute(gone):
        known[job_id] = Stored(known[job_id].transcript_key, known[job_id].gone | {Content(content)})
    return known


def is_swept(tx: Connection, lock: str, grace_seconds: float) -> bool:
    """Whether a process held this lock within the last `grace_seconds`."""
    row = tx.execute(
        select(locks.c.held_until, now_utc().label("now")).where(locks.c.name == lock)
    ).one_or_none()
    return row is not None and row.now - row.held_until <= timedelta(seconds=grace_seconds)


def has_live_worker(tx: Connection, grace_seconds: float) -> bool:
    """Whether a worker that has not stopped wrote a heartbeat within the last `grace_seconds`."""
    alive = workers.c.stopped_at.is_(None), workers.c.seen_at >= seconds_from_now(-grace_seconds)
    return tx.execute(select(workers.c.id).where(*alive).limit(1)).one_or_none() is not None


def _sum_bills(*keys: Any) -> Select[Any]:  # noqa: ANN401 - columns of any type
    return select(*keys, func.sum(cost_lines.c.engine_ns).label("engine_ns")).group_by(*keys)


_facts_of = reader_of(JobFacts)
