"""The outbox of messages, and the sweep that makes losing them harmless (law 1).

An outbox row is a promise to put a job's id into Redis; it is deleted once that is done. `sweep` finds what
was lost: leases that ran out, and queued jobs of which no message was sent for a while.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, delete, exists, literal, or_, select, true, update

from spool.domain.fleet.routing import route_of
from spool.domain.jobs import TERMINAL, Job, JobState
from spool.store.queue.crashes import MAX_CRASHES, Review, review_suspects, take_back
from spool.store.queue.queues import QUEUED, distinct_values, in_queue, queues_waiting
from spool.store.rows import add_hints
from spool.store.sql import count_up_to, now_utc, seconds_from_now
from spool.store.workers import ready_workers
from spool.tables import idempotency, jobs, outbox

SEND_SECONDS = 30.0  # after this, hints taken by a relay that died are sent by another
LONG_AGO_SECONDS = 30 * 24 * 3600.0
IDEMPOTENCY_SECONDS = 7 * 24 * 3600.0


_QUEUES = distinct_values(outbox.c.queue)


@dataclass(frozen=True, slots=True)
class Hint:
    """A message to be sent: this job waits in this queue. `id` is its outbox row."""

    job_id: str
    queue: str
    id: int


@dataclass(frozen=True, slots=True)
class SweepLimits:
    """The limits of a sweep: how long it tolerates, and how much it does at once.

    `room` says by queue how many messages are missing, so that a long queue does not fill Redis with repeats;
    None only requires that each was sent long ago. `only_ended`: of the leases that ran out, take back only
    those of workers whose process has ended; the others get time to renew theirs.
    """

    hint_stale_seconds: float = 30.0
    max_crashes: int = MAX_CRASHES
    batch: int = 1000
    room: Mapping[str, int] | None = None
    only_ended: bool = False


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did: job ids taken back and queued, set aside as poison, cancelled, and sent again."""

    requeued: tuple[str, ...]
    poisoned: tuple[str, ...]
    cancelled: tuple[str, ...]
    rehinted: tuple[str, ...]
    taken: tuple[Job, ...] = field(default=(), compare=False)
    """The jobs that were taken back. Each is in one of the first three fields; `poisoned` also has jobs that
    were set aside while they waited."""
    review: Review = field(default_factory=Review, compare=False)
    """What became of workers that had let a lease run out before."""


def due_queues(tx: Connection) -> list[str]:
    """The queues that have hints due."""
    queues = tx.scalars(_QUEUES).all()
    due = [(outbox.c.queue == queue) & (outbox.c.due_at <= now_utc()) for queue in queues]
    return [
        queue
        for queue, condition in zip(queues, due, strict=True)
        if tx.scalar(select(literal(1)).where(condition).limit(1)) is not None
    ]


def unsent(tx: Connection, queue: str, most: int) -> int:
    """How many hints of the queue are not sent yet, counted up to `most`."""
    return count_up_to(tx, most, outbox.c.id, outbox.c.queue == queue)


def due_hints(tx: Connection, limit: int, queue: str | None = None) -> list[Hint]:
    """Take up to `limit` due hints, oldest first, for the caller to send after this transaction has
    committed.

    They are not due again for `SEND_SECONDS`, so of several relays only one sends each, and one that dies
    loses none. Call `mark_sent` once they are in Redis, `give_back_hints` if they could not be sent.
    """
    wanted = (
        select(outbox.c.id)
        .where(outbox.c.due_at <= now_utc(), true() if queue is None else outbox.c.queue == queue)
        .order_by(outbox.c.due_at, outbox.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    ids = list(tx.scalars(wanted))
    if not ids:
        return []
    taken = tx.execute(
        update(outbox)
        .where(outbox.c.id.in_(ids))
        .values(due_at=seconds_from_now(SEND_SECONDS))
        .returning(outbox.c.job_id, outbox.c.queue, outbox.c.id)
    )
    return sorted((Hint(row.job_id, row.queue, row.id) for row in taken), key=lambda hint: hint.id)


def mark_sent(tx: Connection, hints: Sequence[Hint]) -> None:
    """Forget hints that are in Redis, and record the time."""
    tx.execute(delete(outbox).where(outbox.c.id.in_([hint.id for hint in hints])))
    tx.execute(
        update(jobs)
        .where(jobs.c.id.in_([hint.job_id for hint in hints]), jobs.c.state == JobState.QUEUED.value)
        .values(hinted_at=now_utc())
    )


def give_back_hints(tx: Connection, hints: Sequence[Hint]) -> None:
    """Make hints that could not be sent due again at once."""
    tx.execute(update(outbox).where(outbox.c.id.in_([hint.id for hint in hints])).values(due_at=now_utc()))


def hint_again(tx: Connection, job_id: str, delay: float) -> None:
    """The job's message reached a worker that takes none: send it again after `delay` seconds, if the job
    still waits and no message is due."""
    waiting = select(jobs.c.id, jobs.c.queue).where(
        jobs.c.id == job_id,
        jobs.c.state == JobState.QUEUED.value,
        ~exists(select(literal(1)).where(outbox.c.job_id == jobs.c.id)),
    )
    add_hints(tx, [(row.id, row.queue) for row in tx.execute(waiting)], delay)


def hint_used_up(tx: Connection, job_id: str) -> None:
    """The job's message reached a worker that found nothing to run: the next sweep may send another."""
    tx.execute(
        update(jobs)
        .where(jobs.c.id == job_id, jobs.c.state == JobState.QUEUED.value)
        .values(hinted_at=seconds_from_now(-LONG_AGO_SECONDS))
    )


def sweep(tx: Connection, limits: SweepLimits) -> SweepReport:
    """Take back jobs whose lease ran out, and write outbox rows for queued jobs whose message may be lost."""
    taken = take_back(tx, true(), limits.max_crashes, most=limits.batch, only_ended=limits.only_ended)
    review = review_suspects(tx, limits.max_crashes, limits.batch)
    requeued = [job for job in taken if job.state is JobState.QUEUED]
    add_hints(tx, [(job.id, job.queue) for job in requeued])
    _forget_refusals(tx, limits.batch)
    _drop_ended(tx, limits.batch)
    rehinted = _hint_again(tx, limits)
    oldest = seconds_from_now(-IDEMPOTENCY_SECONDS)
    tx.execute(delete(idempotency).where(idempotency.c.created_at < oldest))
    return SweepReport(
        requeued=tuple(job.id for job in requeued),
        poisoned=tuple(job.id for job in (*taken, *review.poisoned) if job.state is JobState.FAILED),
        cancelled=tuple(job.id for job in taken if job.state is JobState.CANCELLED),
        rehinted=tuple(rehinted),
        taken=tuple(taken),
        review=review,
    )


def _drop_ended(tx: Connection, limit: int) -> None:
    """Delete hints of jobs that have ended. Workers take jobs without a message while there are any, so such
    hints collect at the front of each queue; later ones get there as earlier ones are sent."""
    for queue in tx.scalars(_QUEUES).all():
        while True:
            front = (
                select(outbox.c.id, outbox.c.job_id)
                .where(outbox.c.queue == queue)
                .order_by(outbox.c.due_at, outbox.c.id)
                .limit(limit)
                .subquery()
            )
            ended = select(front.c.id).join(jobs, jobs.c.id == front.c.job_id)
            ended = ended.where(jobs.c.state.in_([state.value for state in TERMINAL]))
            ids = tx.scalars(ended).all()
            tx.execute(delete(outbox).where(outbox.c.id.in_(ids)))
            if len(ids) < limit:
                break


def _forget_refusals(tx: Connection, limit: int) -> None:
    """Allow another attempt at jobs that every available worker has returned: the first worker finds that no
    other is left, and a self-test then decides between the job and the worker."""
    refused = tx.execute(
        select(jobs.c.id, jobs.c.queue, jobs.c.refusals, jobs.c.options["model"].as_string().label("model"))
        .where(QUEUED, jobs.c.refusals.is_not(None))
        .limit(limit)
    ).all()
    if not refused:
        return
    offers = ready_workers(tx)
    forgotten = [
        row.id
        for row in refused
        for names in ({each.name for each in offers if each.takes(route_of(row.queue), row.model)},)
        if names and names <= row.refusals.keys()
    ]
    if forgotten:
        tx.execute(
            update(jobs)
            .where(jobs.c.id.in_(forgotten), jobs.c.state == JobState.QUEUED.value)
            .values(refusals=None)
        )


def _hint_again(tx: Connection, limits: SweepLimits) -> list[str]:
    stale = seconds_from_now(-limits.hint_stale_seconds)
    chosen: list[tuple[str, str]] = []
    for queue in queues_waiting(tx):
        if route_of(queue).live:
            continue
        room = limits.batch - len(chosen)
        if limits.room is not None:
            room = min(room, limits.room.get(queue, 0))
        if room <= 0:
            continue
        forgotten = (
            select(jobs.c.id)
            .where(
                *in_queue(queue),
                or_(jobs.c.hinted_at < stale, jobs.c.hinted_at.is_(None) & (jobs.c.queued_at < stale)),
                ~exists(select(literal(1)).where(outbox.c.job_id == jobs.c.id)),
            )
            .order_by(jobs.c.hinted_at)
            .limit(room)
        )
        chosen.extend((job_id, queue) for job_id in tx.scalars(forgotten))
    add_hints(tx, chosen)
    return [job_id for job_id, _ in chosen]
