"""Which job a free worker gets: the best of the queues it serves, chosen in SQL when it asks (law 1).

A message tells a worker that there is work, but not which. So the order holds whatever is in Redis: first the
project whose turn it is (`spool.store.queue.fair_share`), skipped while its quota holds it, then its job of
the highest class, the earliest deadline that can be met, the earliest position. One claim in `AGED_EACH` of a
project goes to the job that has waited longest, if that is longer than the rules allow, so that no class
starves. Each query reads the front of an index, however many jobs wait.

One rule decides which queues a worker serves (`spool.domain.fleet.routing.Offer`): its pool, its name, the
models that it has and its machine. A worker may ask for several short jobs at once (`ClaimRequest.most`):
they are one turn of their project, charged in full. Among jobs of equal class and deadline, one whose model
it has in memory goes first; the worker limits how often another is passed over (`worker.service.affinity`).
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    bindparam,
    func,
    or_,
    select,
    union_all,
    update,
)

from spool.domain.fleet.routing import Machine, Offer, route_of
from spool.domain.priority import NEVER, PRIORITY_NAMES, Rules
from spool.domain.quotas import quota_of
from spool.store.queue.crashes import MAX_CRASHES, is_last_chance, set_aside
from spool.store.queue.fair_share import Turn, fair_order, take_turn
from spool.store.queue.leases import Claim, Passed, claim_queued
from spool.store.queue.queues import QUEUED, in_queue, projects_in, queues_waiting
from spool.store.queue.quotas import find_holds, still_free
from spool.store.sql import epoch_us, now_utc, seconds_from_now
from spool.tables import jobs

LOOK_AHEAD = 64
_MODEL = jobs.c.options["model"].as_string()


def better_match(
    tx: Connection, first: Row[Any], waiting: Sequence[Sequence[ColumnElement[bool]]], models: Collection[str]
) -> tuple[str, Passed] | None:
    """The id of the job that goes before `first` since its model is among `models`; None if the first one is
    suitable, or none is better. `waiting` says for each queue which jobs wait beside it."""
    beside = (jobs.c.priority == first.priority, jobs.c.deadline_rank == first.deadline_rank)
    fronts = [
        select(jobs.c.id, _MODEL.label("model"), jobs.c.queue_position)
        .where(*conditions, *beside)
        .order_by(jobs.c.queue_position, jobs.c.id)
        .limit(LOOK_AHEAD)
        .subquery()
        for conditions in waiting
    ]
    front = union_all(*(select(each) for each in fronts)).subquery()
    rows = tx.execute(
        select(front.c.id, front.c.model).order_by(front.c.queue_position, front.c.id).limit(LOOK_AHEAD)
    ).all()
    wanted = next((row.model for row in rows if row.id == first.id), None)
    own = [row.id for row in rows if row.model in models]
    if wanted is None or wanted in models or not own:
        return None
    return own[0], Passed(len(own), sum(row.model == wanted for row in rows))


AGED_EACH = 10
SHORT_BYTES = 1 << 20
"""The size up to which a recording is short: half a minute of 16-bit speech at 16 kHz."""
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
    """Models in its memory, whose jobs go first for now."""
    offered: frozenset[str] | None = None
    """Models that it has; None: any."""
    without_language_models: frozenset[str] = frozenset()
    """Language models that it lacks: jobs that require them are left to other workers."""
    machine: Machine = field(default_factory=Machine)
    live: bool = False
    """For live sessions only."""
    most: int = 1
    """How many jobs it takes at once if they are short."""

    @property
    def offer(self) -> Offer:
        """What it can take."""
        return Offer(self.pool, self.name, self.offered, self.machine)

    def suitable(self, queue: str) -> tuple[ColumnElement[bool], ...]:
        """SQL: the job waits in the queue, the worker may have its models and has not refused it."""
        return _suitable(queue, self.name, self.offered, self.without_language_models)


@dataclass(frozen=True, slots=True)
class NeedsAlone:
    """The job whose turn it is needs a worker that runs nothing else. No other worker is told so for the
    length of a lease."""

    job_id: str


# Building these takes longer than running them, and each claim uses them.


@lru_cache(maxsize=2048)
def _suitable(
    queue: str, name: str, offered: frozenset[str] | None, without_language_models: frozenset[str]
) -> tuple[ColumnElement[bool], ...]:
    suitable = [*in_queue(queue), or_(jobs.c.refusals.is_(None), jobs.c.refusals[name].as_string().is_(None))]
    if offered is not None and route_of(queue).model is None:
        suitable.append(_MODEL.in_(sorted(offered)))
    if without_language_models:
        language_model = jobs.c.options["language_model"].as_string()
        suitable.append(or_(language_model.is_(None), language_model.not_in(sorted(without_language_models))))
    return tuple(suitable)


@lru_cache(maxsize=2048)
def _front(project: str, suitable: tuple[ColumnElement[bool], ...], locked: int = 0) -> Select[Any]:
    """The project's first job, or as many as are to be `locked`."""
    front = _facts(*suitable, *_of(project)).order_by(*_RANK).limit(locked or 1)
    return front.with_for_update(skip_locked=True) if locked else front


def claim_next(tx: Connection, request: ClaimRequest, rules: Rules) -> Claim | NeedsAlone | None:
    """Take the best job that waits for this worker; None if there is none that may run now."""
    waiting = _waiting_for(tx, request.offer, live=request.live)
    if not waiting:
        return None
    held = find_holds(tx, rules.quotas, waiting)
    free = {project: queues for project, queues in waiting.items() if project not in held}
    order, busy = fair_order(tx, request.pool, free, rules.shares), []
    for turn in order:
        is_free = still_free(tx, rules.quotas, turn.project, wait=False)
        if is_free is None:
            busy.append(turn)
        elif is_free and (claim := _next_of(tx, turn, free[turn.project], rules, request)) is not None:
            return claim
    for turn in busy:  # no other project has work: claims for these projects end soon, or are ended
        if still_free(tx, rules.quotas, turn.project):
            claim = _next_of(tx, turn, free[turn.project], rules, request)
            if claim is not None:
                return claim
    return None


def _next_of(
    tx: Connection, turn: Turn, queues: list[str], rules: Rules, request: ClaimRequest
) -> Claim | NeedsAlone | None:
    """The project's best job, claimed; None if it has none that may run now."""
    while (best := _best(tx, turn, queues, rules, request)) is not None:
        row, passed, behind = best
        if row.crashes >= request.max_crashes:
            set_aside(tx, row.id, request.max_crashes)
            continue
        if not request.alone and is_last_chance(row.crashes, row.suspects, request.max_crashes):
            pause = seconds_from_now(request.lease_seconds)
            tx.execute(update(jobs).where(jobs.c.id == row.id).values(not_before=pause))
            return NeedsAlone(row.id)
        claim = _claimed(tx, request, turn, [row, *_short_run(row, behind)])
        return claim and replace(claim, passed=passed)
    return None


def _most_claims(turn: Turn, rules: Rules, request: ClaimRequest) -> int:
    """How many jobs the project may get in this turn: one if each has to be decided separately, and none
    beyond the one that goes to the job that has waited longest."""
    if request.models or quota_of(rules.quotas, turn.project) is not None:
        return 1
    return min(request.most, (AGED_EACH - 1 - turn.claims) % AGED_EACH or AGED_EACH)


def _short_run(first: Row[Any], behind: Sequence[Row[Any]]) -> list[Row[Any]]:
    """The jobs that directly follow the first in its class, as long as all are short and new: none is passed
    over, and all are charged alike."""
    run: list[Row[Any]] = []
    for row in behind:
        beside = (row.priority, row.deadline_rank) == (first.priority, first.deadline_rank)
        if not (beside and _is_short(first) and _is_short(row)):
            break
        run.append(row)
    return run


def _is_short(row: Row[Any]) -> bool:
    is_new = row.attempt == 0 and row.audio_seconds is None
    return is_new and row.source_size is not None and row.source_size <= SHORT_BYTES


def goes_before(tx: Connection, offer: Offer, project: str, priority: int, rules: Rules) -> bool:
    """Whether a waiting job should get this worker before one of this project and class continues."""
    waiting = _waiting_for(tx, offer)
    held = find_holds(tx, rules.quotas, waiting)
    request = ClaimRequest("", offer.pool, offer.name, 0.0, offered=offer.models, machine=offer.machine)
    for other, queues in waiting.items():
        if other in held:
            continue
        for queue in queues:
            row = tx.execute(_front(other, request.suitable(queue))).one_or_none()
            if row is not None and (other != project or row.priority <= priority):
                return True
    return False


def waiting_by_queue(tx: Connection, rules: Rules, most: int) -> dict[str, int]:
    """How many jobs of each queue may run now, counted up to `most`."""
    counts = {}
    for queue in queues_waiting(tx):
        projects = list(tx.scalars(projects_in(queue)))
        held = find_holds(tx, rules.quotas, projects)
        number = 0
        for project in projects:
            if project not in held and number < most:
                conditions = (*in_queue(queue), *_of(project))
                some = select(jobs.c.id).where(*conditions).limit(most - number).subquery()
                number += tx.scalar(select(func.count()).select_from(some)) or 0
        if number:
            counts[queue] = number
    return counts


def _claimed(tx: Connection, request: ClaimRequest, turn: Turn, rows: Sequence[Row[Any]]) -> Claim | None:
    """The claim to the first of these jobs, with the claims to the others, which are charged like the
    first."""
    row = rows[0]
    left = None if row.audio_seconds is None else row.audio_seconds - row.done_seconds
    price = turn.price(left)
    claims = claim_queued(
        tx,
        [each.id for each in rows],
        request.worker_id,
        request.lease_seconds,
        row.done_seconds + price,
        pool=request.pool,
    )
    if not claims:
        return None
    take_turn(tx, request.pool, turn, price * len(claims), len(claims))
    return replace(claims[0], others=tuple(claims[1:]))


def _best(
    tx: Connection, turn: Turn, queues: list[str], rules: Rules, request: ClaimRequest
) -> tuple[Row[Any], Passed | None, Sequence[Row[Any]]] | None:
    """The project's next job, whether it passed over another, and the jobs that follow it in its queue, as
    many as may be claimed; all locked. None if all of them pause or are being taken by other workers."""
    if turn.claims % AGED_EACH == AGED_EACH - 1:
        row = _oldest(tx, queues, turn.project, rules.aging_seconds, request)
        if row is not None:
            return row, None, ()
    if len(queues) > 1:
        fronts = [
            (tx.execute(_front(turn.project, request.suitable(queue))).one_or_none(), queue)
            for queue in queues
        ]
        ranked = [(tuple(row[:4]), queue) for row, queue in fronts if row is not None]
        queues = [queue for _, queue in sorted(ranked)]
    most = _most_claims(turn, rules, request)
    for queue in queues:
        rows = tx.execute(_front(turn.project, request.suitable(queue), locked=most)).all()
        if rows:
            better = _better_job(tx, queues, turn.project, rows[0], request)
            return (rows[0], None, rows[1:]) if better is None else (*better, ())
    return None


def _better_job(
    tx: Connection, queues: list[str], project: str, first: Row[Any], request: ClaimRequest
) -> tuple[Row[Any], Passed] | None:
    """The job that is more suitable for the worker than the first one, locked; None if there is none, or
    another worker is taking it."""
    if not request.models:
        return None
    match = better_match(
        tx, first, [(*request.suitable(queue), *_of(project)) for queue in queues], request.models
    )
    if match is None:
        return None
    row = tx.execute(_facts(jobs.c.id == match[0], QUEUED).with_for_update(skip_locked=True)).one_or_none()
    return None if row is None else (row, match[1])


def _oldest(
    tx: Connection, queues: Sequence[str], project: str, seconds: float, request: ClaimRequest
) -> Row[Any] | None:
    """The job that has waited longest, if longer than this many seconds."""
    suitable = tuple(request.suitable(queue) for queue in queues)
    job_id = tx.scalar(_longest_waiting(suitable, project), {"micros": round(seconds * MICROS)})
    if job_id is None:
        return None
    return tx.execute(_facts(jobs.c.id == job_id, QUEUED).with_for_update(skip_locked=True)).one_or_none()


@lru_cache(maxsize=256)
def _longest_waiting(suitable: tuple[tuple[ColumnElement[bool], ...], ...], project: str) -> Select[Any]:
    """The project's job that has waited longest in queues with these conditions, if longer than `micros`
    microseconds."""
    before = epoch_us() - bindparam("micros", type_=BigInteger())
    each = [
        select(jobs.c.id, jobs.c.queue_position)
        .where(
            *conditions,
            *_of(project),
            jobs.c.priority == priority,
            jobs.c.deadline_rank == NEVER,
            jobs.c.queue_position < before,
        )
        .order_by(jobs.c.queue_position, jobs.c.id)
        .limit(1)
        .subquery()
        for conditions in suitable
        for priority in PRIORITY_NAMES
    ]
    oldest = union_all(*(select(one) for one in each)).subquery()
    return select(oldest.c.id).order_by(oldest.c.queue_position, oldest.c.id).limit(1)


def _facts(*conditions: ColumnElement[bool]) -> Select[Any]:
    facts = (
        jobs.c.crashes,
        jobs.c.suspects,
        jobs.c.audio_seconds,
        jobs.c.done_seconds,
        jobs.c.attempt,
        jobs.c.source_size,
    )
    return select(*_RANK, *facts).where(*conditions)


def is_live_waiting(tx: Connection, offer: Offer) -> bool:
    """Whether a live session waits for this worker."""
    return bool(_waiting_for(tx, offer, live=True))


def _waiting_for(tx: Connection, offer: Offer, *, live: bool = False) -> dict[str, list[str]]:
    """The projects that have jobs in the queues that the worker serves, each with its queues; for live
    sessions, or for all other jobs."""
    by_project: dict[str, list[str]] = {}
    for queue in queues_waiting(tx):
        route = route_of(queue)
        if route.live == live and offer.takes(route):
            for project in tx.scalars(projects_in(queue)):
                by_project.setdefault(project, []).append(queue)
    return by_project


def _of(project: str) -> Iterator[ColumnElement[bool]]:
    yield jobs.c.project == project
    yield or_(jobs.c.not_before.is_(None), jobs.c.not_before <= now_utc())
