"""Leases that ran out, and whether the worker's process had ended with them.

A lease runs out when its owner's process has ended, but also when its machine slept or could not reach the
database. Only the first is a crash, and only crashes set a job aside as `poison`. `take_back` returns the job
to the queue in either case. If it cannot know yet what became of the owner, the owner becomes a suspect of
the job, with the time at which it was last seen. `review_suspects` decides later: a suspect that has been
seen again had not crashed; one whose process is known to have ended (`spool.store.workers.has_ended`) had.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, null, select, true, update

from spool.domain.fleet.routing import ANY_POOL
from spool.domain.jobs import Job, JobState
from spool.store.event_log import note_jobs
from spool.store.monitoring import LEASES_LOST, count_up
from spool.store.queue.fair_share import settle_jobs
from spool.store.rows import CHANGED_JOB, job_of, may_become
from spool.store.sql import now_utc, seconds_from_now
from spool.store.workers import has_ended
from spool.tables import jobs, workers

MAX_CRASHES = 3
POISON_CODE = "poison"
POISON_MESSAGE = "Set aside: {} attempts ended with a dead worker process."
FIRST_PAUSE_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 600.0

# As the index says it.
_SUSPECTED = jobs.c.suspects.is_not(None) & jobs.c.state.in_([JobState.QUEUED.value, JobState.RUNNING.value])


_LAPSED = jobs.c.lease_until < now_utc()


@dataclass(frozen=True, slots=True)
class Review:
    """What became of suspects, each as job id and worker id."""

    crashed: tuple[tuple[str, str], ...] = ()
    withdrawn: tuple[tuple[str, str], ...] = ()
    poisoned: tuple[Job, ...] = ()
    """The jobs that were set aside for it."""


def take_back(
    tx: Connection,
    which: ColumnElement[bool],
    max_crashes: int,
    *,
    most: int | None = None,
    only_ended: bool = False,
    only_lapsed: bool = True,
) -> list[Job]:
    """Take up to `most` jobs of `which` whose lease ran out from their workers, and return them.

    They go back to `queued` (the caller adds the hint), to `cancelled` if that was asked for, or to `failed`
    as poison at the `max_crashes`-th crash. only_ended: none of a worker that may still renew its lease;
    without only_lapsed also those whose lease still holds.
    With `most`, jobs that another transaction has locked are left out.
    """
    ended = has_ended(jobs.c.lease_owner)
    seen_at = select(workers.c.seen_at).where(workers.c.id == jobs.c.lease_owner).scalar_subquery()
    facts = (jobs.c.id, jobs.c.crashes, jobs.c.suspects, jobs.c.cancel_requested, jobs.c.lease_owner)
    lapsed = (
        select(*facts, jobs.c.queued_at, ended.label("owner_ended"), seen_at.label("seen_at"))
        .where(which, jobs.c.state == JobState.RUNNING.value, _LAPSED if only_lapsed else true())
        .order_by(jobs.c.lease_until)
        .limit(most)
        .with_for_update(of=jobs, skip_locked=most is not None)
    )
    if only_ended:
        lapsed = lapsed.where(ended)
    taken = [_take_back(tx, row, max_crashes) for row in tx.execute(lapsed).all()]
    settle_jobs(tx, [(job, 0.0) for job in taken])
    count_up(tx, LEASES_LOST, Counter(job.pool or ANY_POOL for job in taken))
    note_jobs(tx, *taken)
    return taken


def _take_back(tx: Connection, row: Row[Any], max_crashes: int) -> Job:
    suspects, crashes = dict(row.suspects or {}), row.crashes
    suspects.pop(row.lease_owner, None)  # of an earlier attempt, which it survived: it claimed another
    if row.owner_ended:
        crashes += 1
    else:
        suspects[row.lease_owner] = row.seen_at.isoformat()
    state = JobState.QUEUED
    if row.cancel_requested:
        state = JobState.CANCELLED
    elif crashes >= max_crashes:
        state = JobState.FAILED
    poisoned = state is JobState.FAILED
    pause = _pause(crashes + len(suspects) - max_crashes)
    ended = state is not JobState.QUEUED
    changed = tx.execute(
        CHANGED_JOB.where(jobs.c.id == row.id, may_become(state)).values(
            state=state.value,
            crashes=crashes,
            suspects=suspects or None,
            error_code=POISON_CODE if poisoned else None,
            error_message=POISON_MESSAGE.format(max_crashes) if poisoned else None,
            finished_at=now_utc() if ended else null(),
            queued_at=row.queued_at if ended else now_utc(),
            not_before=seconds_from_now(pause) if pause and not ended else null(),
            hinted_at=null(),
            lease_owner=null(),
            lease_until=null(),
            updated_at=now_utc(),
        )
    )
    return job_of(changed.one())


def release_jobs(tx: Connection, worker_id: str, max_crashes: int) -> list[Job]:
    """Take back what a worker held that has ended by itself and could not say so; returns the jobs. It is a
    suspect of them until `outlive_suspicion`. The caller adds the hints."""
    return take_back(tx, jobs.c.lease_owner == worker_id, max_crashes, only_lapsed=False)


def _pause(beyond: int) -> float:
    """Seconds before the next attempt at a job that has met more dead or silent workers than it may kill:
    if it does kill them, and nobody restarts them, it does not kill the fleet in minutes."""
    return 0.0 if beyond < 0 else min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(beyond, 10))


def review_suspects(tx: Connection, max_crashes: int, most: int) -> Review:
    """Decide on the suspects whose fate is known by now, of up to `most` jobs. A job that waits and has
    crashed too often is set aside; one that runs again may finish."""
    suspected = tx.execute(select(jobs.c.id, jobs.c.suspects).where(_SUSPECTED)).all()
    if not suspected:
        return Review()
    fates = _fates(tx, {worker_id for row in suspected for worker_id in row.suspects})
    due = [row.id for row in suspected if any(_judge(row.suspects, fates))][:most]
    if not due:
        return Review()
    held = (
        select(jobs.c.id, jobs.c.crashes, jobs.c.suspects)
        .where(jobs.c.id.in_(due), _SUSPECTED)
        .order_by(jobs.c.id)
        .with_for_update(skip_locked=True)
    )
    all_crashed, all_withdrawn, poisoned = [], [], []
    for row in tx.execute(held).all():
        crashed, withdrawn = _judge(row.suspects, fates)
        left = {name: seen for name, seen in row.suspects.items() if name not in {*crashed, *withdrawn}}
        crashes = row.crashes + len(crashed)
        tx.execute(update(jobs).where(jobs.c.id == row.id).values(crashes=crashes, suspects=left or None))
        poisoned += set_aside(tx, row.id, max_crashes)
        all_crashed += [(row.id, worker_id) for worker_id in crashed]
        all_withdrawn += [(row.id, worker_id) for worker_id in withdrawn]
    return Review(tuple(all_crashed), tuple(all_withdrawn), tuple(poisoned))


def _fates(tx: Connection, worker_ids: set[str]) -> dict[str, tuple[datetime, bool]]:
    """When each of these workers was last seen, and whether its process is known to have ended."""
    query = select(workers.c.id, workers.c.seen_at, has_ended(workers.c.id).label("ended"))
    rows = tx.execute(query.where(workers.c.id.in_(worker_ids)))
    return {row.id: (row.seen_at, bool(row.ended)) for row in rows}


def _judge(
    suspects: Mapping[str, str], fates: Mapping[str, tuple[datetime, bool]]
) -> tuple[list[str], list[str]]:
    """The suspects that have crashed, and those that have been seen again since."""
    crashed, withdrawn = [], []
    for worker_id, last_seen in suspects.items():
        seen_at, ended = fates.get(worker_id, (None, True))
        if seen_at is not None and seen_at > datetime.fromisoformat(last_seen):
            withdrawn.append(worker_id)
        elif ended:
            crashed.append(worker_id)
    return crashed, withdrawn


def is_last_chance(crashes: int, suspects: Mapping[str, str] | None, max_crashes: int) -> bool:
    """Whether one more crash may set the job aside, and there may have been one: suspects count until more is
    known, since caution costs little."""
    crashes += len(suspects or ())
    return crashes > 0 and crashes >= max_crashes - 1


def set_aside(tx: Connection, job_id: str, max_crashes: int) -> list[Job]:
    """End the job as poison if it is queued and has crashed too often; returns it then."""
    rows = tx.execute(
        CHANGED_JOB.where(
            jobs.c.id == job_id, jobs.c.state == JobState.QUEUED.value, jobs.c.crashes >= max_crashes
        ).values(
            state=JobState.FAILED.value,
            error_code=POISON_CODE,
            error_message=POISON_MESSAGE.format(max_crashes),
            finished_at=now_utc(),
            updated_at=now_utc(),
        )
    )
    ended = [job_of(row) for row in rows]
    note_jobs(tx, *ended)
    return ended
