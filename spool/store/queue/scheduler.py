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

from collections.abc import Iterator, Sequence
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
    or_,
    select,
    union_all,
    update,
)

from spool.domain.fleet.routing import Machine, Offer, route_of
from spool.domain.priority import NEVER, PRIORITY_NAMES, Rules
from spool.domain.quotas import quota_of
from spool.store.queue.crashes import MAX_CRASHES, is_last_chance, set_aside
from spool.store.queue.fair_share import ProjectTurn, fair_order, take_turn
from spool.store.queue.leases import Claim, Passed, claim_queued
from spool.store.queue.queues import QUEUED, in_queue, projects_in, queues_waiting
from spool.store.queue.quotas import find_holds, still_free
from spool.store.sql import count_up_to, epoch_us, now_utc, seconds_from_now
from spool.tables import jobs

LOOK_AHEAD = 64
"""Among how many jobs one is looked for whose model is in memory."""
AGED_EACH = 10
SHORT_BYTES = 1 << 20
"""The size up to which a recording is short: half a minute of 16-bit speech at 16 kHz."""
MICROS = 1_000_000

_MODEL = jobs.c.options["model"].as_string()
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


@dataclass(frozen=True, slots=True)
class _Choice:
    """The job that a project gets, locked, and the jobs right behind it that may be claimed with it, locked
    too. `passed`: which job it was preferred to, if any."""

    job: Row[Any]
    followers: Sequence[Row[Any]] = ()
    passed: Passed | None = None


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
    waiting = _find_waiting(tx, request.offer, live=request.live)
    if not waiting:
        return None
    held = find_holds(tx, rules.quotas, waiting)
    free = {project: queues for project, queues in waiting.items() if project not in held}
    busy: list[ProjectTurn] = []
    for turn in fair_order(tx, request.pool, free, rules.shares):
        is_free = still_free(tx, rules.quotas, turn.project, wait=False)
        if is_free is None:
            busy.append(turn)
        elif is_free and (claim := _claim_of_project(tx, turn, free[turn.project], rules, request)):
            return claim
    for turn in busy:  # no other project has work: claims for these projects end soon, or are ended
        is_free = still_free(tx, rules.quotas, turn.project)
        if is_free and (claim := _claim_of_project(tx, turn, free[turn.project], rules, request)):
            return claim
    return None


def claim_alone(tx: Connection, job_id: str, request: ClaimRequest, rules: Rules) -> Claim | None:
    """Take the job of a `NeedsAlone`, now that nothing else runs in the worker's process; None if it waits no
    longer, or its project's quota has been used up since."""
    project = tx.scalar(select(jobs.c.project).where(jobs.c.id == job_id))
    if project is None or not still_free(tx, rules.quotas, project):
        return None
    job = _lock(tx, job_id)
    if job is None:
        return None
    if job.crashes >= request.max_crashes:
        set_aside(tx, job_id, request.max_crashes)
        return None
    (turn,) = fair_order(tx, request.pool, [project], rules.shares)
    return _claim_run(tx, request, turn, [job])


def goes_before(tx: Connection, offer: Offer, project: str, priority: int, rules: Rules) -> bool:
    """Whether a waiting job should get this worker before one of this project and class continues."""
    waiting = _find_waiting(tx, offer)
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


def count_runnable(tx: Connection, rules: Rules, most: int) -> dict[str, int]:
    """How many jobs of each queue may run now, counted up to `most`."""
    counts = {}
    for queue in queues_waiting(tx):
        projects = list(tx.scalars(projects_in(queue)))
        held = find_holds(tx, rules.quotas, projects)
        number = 0
        for project in projects:
            if project not in held and number < most:
                number += count_up_to(tx, most - number, jobs.c.id, *in_queue(queue), *_of(project))
        if number:
            counts[queue] = number
    return counts


def is_live_waiting(tx: Connection, offer: Offer) -> bool:
    """Whether a live session waits for this worker."""
    return bool(_find_waiting(tx, offer, live=True))


def _claim_of_project(
    tx: Connection, turn: ProjectTurn, queues: list[str], rules: Rules, request: ClaimRequest
) -> Claim | NeedsAlone | None:
    """Claim the project's best job; None if it has none that may run now."""
    while (choice := _choose(tx, turn, queues, rules, request)) is not None:
        job = choice.job
        if job.crashes >= request.max_crashes:
            set_aside(tx, job.id, request.max_crashes)
            continue
        if not request.alone and is_last_chance(job.crashes, job.suspects, request.max_crashes):
            pause = seconds_from_now(request.lease_seconds)
            tx.execute(update(jobs).where(jobs.c.id == job.id).values(not_before=pause))
            return NeedsAlone(job.id)
        claim = _claim_run(tx, request, turn, [job, *_short_run(choice)])
        return claim and replace(claim, passed=choice.passed)
    return None


def _most_claims(turn: ProjectTurn, rules: Rules, request: ClaimRequest) -> int:
    """How many jobs the project may get in this turn: one if each has to be decided separately, and none
    beyond the one that goes to the job that has waited longest."""
    if request.models or quota_of(rules.quotas, turn.project) is not None:
        return 1
    return min(request.most, (AGED_EACH - 1 - turn.claims) % AGED_EACH or AGED_EACH)


def _short_run(choice: _Choice) -> list[Row[Any]]:
    """The jobs that directly follow the chosen one in its class, as long as all are short and new: none is
    passed over, and all are charged alike."""
    run: list[Row[Any]] = []
    for row in choice.followers:
        beside = (row.priority, row.deadline_rank) == (choice.job.priority, choice.job.deadline_rank)
        if not (beside and _is_short(choice.job) and _is_short(row)):
            break
        run.append(row)
    return run


def _is_short(row: Row[Any]) -> bool:
    is_new = row.attempt == 0 and row.audio_seconds is None
    return is_new and row.source_size is not None and row.source_size <= SHORT_BYTES


def _claim_run(
    tx: Connection, request: ClaimRequest, turn: ProjectTurn, rows: Sequence[Row[Any]]
) -> Claim | None:
    """Claim the first of these jobs, with the others, which are charged like the first."""
    first = rows[0]
    left = None if first.audio_seconds is None else first.audio_seconds - first.done_seconds
    price = turn.price(left)
    claims = claim_queued(
        tx,
        [row.id for row in rows],
        request.worker_id,
        request.lease_seconds,
        first.done_seconds + price,
        pool=request.pool,
    )
    if not claims:
        return None
    take_turn(tx, request.pool, turn, price * len(claims), len(claims))
    return replace(claims[0], others=tuple(claims[1:]))


def _choose(
    tx: Connection, turn: ProjectTurn, queues: list[str], rules: Rules, request: ClaimRequest
) -> _Choice | None:
    """The project's next job; None if all of them pause or are being taken by other workers."""
    if turn.claims % AGED_EACH == AGED_EACH - 1:
        oldest = _oldest(tx, queues, turn.project, rules.aging_seconds, request)
        if oldest is not None:
            return _Choice(oldest)
    if len(queues) > 1:
        queues = _by_rank(tx, queues, turn.project, request)
    most = _most_claims(turn, rules, request)
    for queue in queues:
        rows = tx.execute(_front(turn.project, request.suitable(queue), locked=most)).all()
        if rows:
            better = _find_better(tx, queues, turn.project, rows[0], request)
            return better or _Choice(rows[0], rows[1:])
    return None


def _by_rank(tx: Connection, queues: list[str], project: str, request: ClaimRequest) -> list[str]:
    """The queues that have jobs for the worker, the one with the project's first job first."""
    ranks = []
    for queue in queues:
        first = tx.execute(_front(project, request.suitable(queue))).one_or_none()
        if first is not None:
            ranks.append((*(first[: len(_RANK)]), queue))
    return [rank[-1] for rank in sorted(ranks)]


def _find_better(
    tx: Connection, queues: list[str], project: str, first: Row[Any], request: ClaimRequest
) -> _Choice | None:
    """The job that goes before `first` since its model is in the worker's memory; None if the model of the
    first is, there is no such job, or another worker is taking it."""
    if not request.models:
        return None
    fronts = [_beside(first, (*request.suitable(queue), *_of(project))).subquery() for queue in queues]
    front = union_all(*(select(each) for each in fronts)).subquery()
    rows = tx.execute(
        select(front.c.id, front.c.model).order_by(front.c.queue_position, front.c.id).limit(LOOK_AHEAD)
    ).all()
    wanted = next((row.model for row in rows if row.id == first.id), None)
    loaded = [row.id for row in rows if row.model in request.models]
    if wanted is None or wanted in request.models or not loaded:
        return None
    job = _lock(tx, loaded[0])
    return job and _Choice(job, passed=Passed(len(loaded), sum(row.model == wanted for row in rows)))


def _beside(first: Row[Any], conditions: Sequence[ColumnElement[bool]]) -> Select[Any]:
    """The jobs of the same class and deadline as `first`, it included."""
    return (
        select(jobs.c.id, _MODEL.label("model"), jobs.c.queue_position)
        .where(*conditions, jobs.c.priority == first.priority, jobs.c.deadline_rank == first.deadline_rank)
        .order_by(jobs.c.queue_position, jobs.c.id)
        .limit(LOOK_AHEAD)
    )


def _oldest(
    tx: Connection, queues: Sequence[str], project: str, seconds: float, request: ClaimRequest
) -> Row[Any] | None:
    """The job that has waited longest, if longer than this many seconds."""
    suitable = tuple(request.suitable(queue) for queue in queues)
    job_id = tx.scalar(_longest_waiting(suitable, project), {"micros": round(seconds * MICROS)})
    return None if job_id is None else _lock(tx, job_id)


def _lock(tx: Connection, job_id: str) -> Row[Any] | None:
    """Lock the queued job; None if another worker is taking it."""
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


def _find_waiting(tx: Connection, offer: Offer, *, live: bool = False) -> dict[str, list[str]]:
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
