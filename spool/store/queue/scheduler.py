"""Which of the jobs at the front suits a worker best: one whose model it has in memory.

Looks no further than the jobs that stand side by side in class and deadline, of the project whose turn it is
and among the first of them, so it changes no order but that in which jobs came. How often the first one may
be passed over is the worker's to count (`worker.service.affinity`).

Which job a free worker gets: the best of its queues, chosen in SQL when it asks (law 1).

A message that a worker receives says that there is work, and not which. So the order holds whatever lies in
Redis: first the project whose turn it is (`spool.store.queue.fair_share`), passed over while it is held by
its quota, then its job of the highest class, the earliest deadline that can be met, the earliest place. One
claim in `AGED_EACH` of a project goes to the job that has waited longest, if that is longer than the rules'
patience, so that no class starves. Each question reads the front of an index, however many jobs wait.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    func,
    or_,
    select,
    union_all,
    update,
)

from spool.domain.jobs import queue_name
from spool.domain.priority import NEVER, PRIORITY_NAMES, Rules
from spool.store.queue.fair_share import Turn, fair_order, take_turn
from spool.store.queue.leases import MAX_CRASHES, Claim, Passed, claim_queued, is_last_chance, set_aside
from spool.store.queue.queues import IN_ORDER, QUEUED, Lane, in_lane, lanes_waiting, projects_in
from spool.store.queue.quotas import holds, still_free
from spool.store.sql import epoch_us, now_utc, seconds_from_now
from spool.tables import jobs

LOOK_AHEAD = 64


def suiting(
    tx: Connection, first: Row[Any], waiting: Sequence[ColumnElement[bool]], models: Collection[str]
) -> tuple[str, Passed] | None:
    """The id of the job that goes before `first` since its model is among `models`; None where the first one
    suits, or none does better. `waiting` says which jobs wait beside it."""
    model = jobs.c.options["model"].as_string()
    beside = (jobs.c.priority == first.priority, jobs.c.deadline_rank == first.deadline_rank)
    rows = tx.execute(
        select(jobs.c.id, model.label("model"))
        .where(*waiting, *beside)
        .order_by(jobs.c.queue_position, jobs.c.id)
        .limit(LOOK_AHEAD)
    ).all()
    wanted = next((row.model for row in rows if row.id == first.id), None)
    own = [row.id for row in rows if row.model in models]
    if wanted is None or wanted in models or not own:
        return None
    return own[0], Passed(len(own), sum(row.model == wanted for row in rows))


AGED_EACH = 10
MICROS = 1_000_000

_RANK = (jobs.c.priority, jobs.c.deadline_rank, jobs.c.queue_position, jobs.c.id)


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """The worker that asks: its id, pool and name, and whether nothing else runs in its process."""

    worker_id: str
    pool: str
    name: str
    lease_seconds: float
    max_crashes: int = MAX_CRASHES
    alone: bool = True
    models: frozenset[str] = frozenset()
    """Models in its memory, whose jobs go before those of others for now."""
    without: frozenset[str] = frozenset()
    """Models that it does not have: their jobs are left to others."""
    without_language_models: frozenset[str] = frozenset()

    @property
    def suitable(self) -> tuple[ColumnElement[bool], ...]:
        """SQL: the worker has not given the job back before, and may have its models."""
        return _suitable(self.name, self.without, self.without_language_models)


@dataclass(frozen=True, slots=True)
class NeedsAlone:
    """The job whose turn it is wants a worker that runs nothing else. Nobody else is told so for the length
    of a lease."""

    job_id: str


# Building these takes longer than running them, and each claim asks.


@lru_cache(maxsize=256)
def _suitable(
    name: str, without: frozenset[str] = frozenset(), without_language_models: frozenset[str] = frozenset()
) -> tuple[ColumnElement[bool], ...]:
    suitable = [or_(jobs.c.refusals.is_(None), jobs.c.refusals[name].as_string().is_(None))]
    if without:
        suitable.append(jobs.c.options["model"].as_string().not_in(sorted(without)))
    if without_language_models:
        language_model = jobs.c.options["language_model"].as_string()
        suitable.append(or_(language_model.is_(None), language_model.not_in(sorted(without_language_models))))
    return tuple(suitable)


@lru_cache(maxsize=2048)
def _front(
    lane: Lane, project: str, suitable: tuple[ColumnElement[bool], ...], *, locked: bool = False
) -> Select[Any]:
    front = _facts(*_of(lane, project), *suitable).order_by(*IN_ORDER, *_RANK).limit(1)
    return front.with_for_update(skip_locked=True) if locked else front


def claim_next(tx: Connection, asker: ClaimRequest, rules: Rules) -> Claim | NeedsAlone | None:
    """Take the best job that waits for this worker; None when there is none that may run now."""
    waiting = _waiting_in(tx, [(asker.pool, None), (asker.pool, asker.name)])
    if not waiting:
        return None
    held = holds(tx, rules.quotas, waiting)
    free = {project: lanes for project, lanes in waiting.items() if project not in held}
    for turn in fair_order(tx, asker.pool, free, rules.shares):
        if not still_free(tx, rules.quotas, turn.project):
            continue
        while (best := _best(tx, turn, free[turn.project], rules, asker)) is not None:
            row, passed = best
            if row.crashes >= asker.max_crashes:
                set_aside(tx, row.id, asker.max_crashes)
                continue
            if not asker.alone and is_last_chance(row.crashes, asker.max_crashes):
                pause = seconds_from_now(asker.lease_seconds)
                tx.execute(update(jobs).where(jobs.c.id == row.id).values(not_before=pause))
                return NeedsAlone(row.id)
            claim = _claimed(tx, asker, turn, row)
            return claim and replace(claim, passed=passed)
    return None


def goes_before(tx: Connection, pool: str, name: str, project: str, priority: int, rules: Rules) -> bool:
    """Whether a job waits that should have its turn before one of this project and class goes on and on."""
    waiting = _waiting_in(tx, [(pool, None), (pool, name)])
    held = holds(tx, rules.quotas, waiting)
    for other, lanes in waiting.items():
        if other in held:
            continue
        for lane in lanes:
            row = tx.execute(_front(lane, other, _suitable(name))).one_or_none()
            if row is not None and (other != project or row.priority <= priority):
                return True
    return False


def waiting_by_queue(tx: Connection, rules: Rules, most: int) -> dict[str, int]:
    """How many jobs of each queue may run now, counted up to `most`."""
    counts = {}
    for lane in lanes_waiting(tx):
        projects = list(tx.scalars(projects_in(lane)))
        held = holds(tx, rules.quotas, projects)
        number = 0
        for project in projects:
            if project not in held and number < most:
                some = select(jobs.c.id).where(*_of(lane, project)).limit(most - number).subquery()
                number += tx.scalar(select(func.count()).select_from(some)) or 0
        if number:
            counts[queue_name(*lane)] = number
    return counts


def _claimed(tx: Connection, asker: ClaimRequest, turn: Turn, row: Row[Any]) -> Claim | None:
    left = None if row.audio_seconds is None else row.audio_seconds - row.done_seconds
    price = turn.price(left)
    claim = claim_queued(tx, row.id, asker.worker_id, asker.lease_seconds, row.done_seconds + price)
    if claim is not None:
        take_turn(tx, asker.pool, turn, price)
    return claim


def _best(
    tx: Connection, turn: Turn, lanes: list[Lane], rules: Rules, asker: ClaimRequest
) -> tuple[Row[Any], Passed | None] | None:
    """The project's next job, locked, and whether it passed over another; None when all of them pause or are
    being taken by others."""
    if turn.claims % AGED_EACH == AGED_EACH - 1:
        for lane in lanes:
            row = _oldest(tx, lane, turn.project, rules.aging_seconds, asker.suitable)
            if row is not None:
                return row, None
    if len(lanes) > 1:
        fronts = [
            (tx.execute(_front(lane, turn.project, asker.suitable)).one_or_none(), lane) for lane in lanes
        ]
        lanes = [
            lane for row, lane in sorted(((r, each) for r, each in fronts if r), key=lambda one: one[0][:4])
        ]
    for lane in lanes:
        row = tx.execute(_front(lane, turn.project, asker.suitable, locked=True)).one_or_none()
        if row is not None:
            return _suiting_job(tx, lane, turn.project, row, asker) or (row, None)
    return None


def _suiting_job(
    tx: Connection, lane: Lane, project: str, first: Row[Any], asker: ClaimRequest
) -> tuple[Row[Any], Passed] | None:
    """The job that suits the worker better than the first one, locked; None where there is none, or another
    worker is just taking it."""
    match = suiting(tx, first, [*_of(lane, project), *asker.suitable], asker.models) if asker.models else None
    if match is None:
        return None
    row = tx.execute(_facts(jobs.c.id == match[0], QUEUED).with_for_update(skip_locked=True)).one_or_none()
    return None if row is None else (row, match[1])


def _oldest(
    tx: Connection, lane: Lane, project: str, seconds: float, suitable: Sequence[ColumnElement[bool]]
) -> Row[Any] | None:
    """The job that has waited longest, if longer than so many seconds."""
    patience = epoch_us() - round(seconds * MICROS)
    each = [
        select(jobs.c.id, jobs.c.queue_position)
        .where(
            *_of(lane, project),
            *suitable,
            jobs.c.priority == priority,
            jobs.c.deadline_rank == NEVER,
            jobs.c.queue_position < patience,
        )
        .order_by(*IN_ORDER, jobs.c.queue_position, jobs.c.id)
        .limit(1)
        .subquery()
        for priority in PRIORITY_NAMES
    ]
    oldest = union_all(*(select(one) for one in each)).subquery()
    job_id = tx.scalar(select(oldest.c.id).order_by(oldest.c.queue_position, oldest.c.id).limit(1))
    if job_id is None:
        return None
    return tx.execute(_facts(jobs.c.id == job_id, QUEUED).with_for_update(skip_locked=True)).one_or_none()


def _facts(*conditions: ColumnElement[bool]) -> Select[Any]:
    return select(*_RANK, jobs.c.crashes, jobs.c.audio_seconds, jobs.c.done_seconds).where(*conditions)


def _waiting_in(tx: Connection, lanes: list[Lane]) -> dict[str, list[Lane]]:
    """The projects that have jobs in these lanes, each with those of them."""
    by_project: dict[str, list[Lane]] = {}
    for lane in lanes:
        for project in tx.scalars(projects_in(lane)):
            by_project.setdefault(project, []).append(lane)
    return by_project


def _of(lane: Lane, project: str) -> Iterator[ColumnElement[bool]]:
    yield from in_lane(lane)
    yield jobs.c.project == project
    yield or_(jobs.c.not_before.is_(None), jobs.c.not_before <= now_utc())
