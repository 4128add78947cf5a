"""Whose turn it is: projects that share a pool, in the order in which they get its next job.

Start-time fair queueing: a claim charges its project the job's audio over the project's share, and the
project with the least charge goes next. Idle time earns no credit: a project that was idle begins where the
last claim began. What a job really took is settled when it ends. What was charged too much is not idle time's
credit, so it is kept apart (`refund`): if the project begins where the last claim began, its claims are
charged less. A charge never waits for a row that another transaction holds: it is stored (`turn_charges`) and
added later. `spool.store.queue.scheduler` chooses the project's job.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Double,
    Select,
    Update,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    update,
)

from spool.domain.jobs import Job, JobState
from spool.store.sql import now_utc, upsert
from spool.tables import turn_charges, turns

UNKNOWN_SECONDS = 300.0
"""The charge of a recording while neither its length nor that of another of its project is known."""
LEAST_SECONDS = 1.0
NEWEST = 0.1
"""The weight of the latest recording in the mean length."""


@dataclass(frozen=True, slots=True)
class ProjectTurn:
    """One project's place in the order. `start` is where its next claim begins, in seconds of audio over its
    share; `served` where its last one ended; `claims` is how many it has had."""

    project: str
    start: float
    served: float
    share: float
    claims: int
    mean_seconds: float | None
    has_charges: bool = False
    """Whether there are charges that could not be added while another transaction held the row."""
    is_first: bool = False
    """Whether the project has no row yet."""

    def price(self, left_seconds: float | None) -> float:
        """The charge of a job with this much audio left; None while that is unknown."""
        if left_seconds is None:
            left_seconds = self.mean_seconds or UNKNOWN_SECONDS
        return max(left_seconds, LEAST_SECONDS)


def fair_order(
    tx: Connection, pool: str, projects: Iterable[str], shares: Mapping[str, float]
) -> list[ProjectTurn]:
    """These projects, the one whose turn it is first."""
    known = {row.project: row for row in tx.execute(_WITH_CHARGES, {"pool": pool})}
    begun = max((row.start for row in known.values()), default=0.0)
    order = []
    for project in projects:
        row, share = known.get(project), shares.get(project, 1.0)
        if row is None:
            order.append(ProjectTurn(project, begun, 0.0, share, 0, None, is_first=True))
            continue
        served, claims = row.served + (row.seconds or 0.0) / row.share, row.claims + (row.charged or 0)
        start, has_charges = max(begun, served), row.seconds is not None
        order.append(ProjectTurn(project, start, served, share, claims, row.mean_seconds, has_charges))
    return sorted(order, key=lambda turn: (turn.start, turn.served, turn.project))


def _with_charges() -> Select[Any]:
    """The turns of a pool, with the sums of charges still to be added to them."""
    charges = (
        select(
            turn_charges.c.project,
            func.sum(turn_charges.c.seconds).label("seconds"),
            func.sum(turn_charges.c.claims).label("charged"),
        )
        .where(turn_charges.c.pool == bindparam("pool"))
        .group_by(turn_charges.c.project)
        .subquery()
    )
    joined = turns.outerjoin(charges, charges.c.project == turns.c.project)
    return (
        select(turns, charges.c.seconds, charges.c.charged)
        .select_from(joined)
        .where(turns.c.pool == bindparam("pool"))
    )


_WITH_CHARGES = _with_charges()


def take_turn(tx: Connection, pool: str, turn: ProjectTurn, seconds: float, claims: int = 1) -> None:
    """The project got this many jobs, charged as this many seconds of audio together. Waits for no other
    transaction."""
    charged = seconds / turn.share
    values = {
        "from_start": turn.start,
        "charged": charged,
        "more_claims": claims,
        "own_share": turn.share,
    }
    if _update_if_free(tx, _TAKEN, pool, turn.project, values):
        if turn.has_charges:
            _collect_charges(tx, pool, turn.project)
        return
    row = {"pool": pool, "project": turn.project, "start": turn.start, "served": turn.start + charged}
    # Only if there was none: an insert would wait for whoever holds the row, to see whether it conflicts.
    first = row | {"share": turn.share, "updated_at": now_utc(), "claims": claims}
    if not turn.is_first or upsert(tx, turns, first, returning=[turns.c.project]).one_or_none() is None:
        _charge_later(tx, pool, turn.project, seconds, claims)


def settle(tx: Connection, pool: str, project: str, seconds: float, lengths: Sequence[float] = ()) -> None:
    """Its jobs took this many more seconds of audio than they were charged (negative for fewer). The
    `lengths` of transcribed recordings (seconds) enter the mean one by one. Waits for no other
    transaction."""
    newest, values = 0.0, {"seconds": seconds}
    if lengths:
        for length in lengths:
            newest += NEWEST * (length - newest)
        values |= {"first": lengths[0], "kept": (1 - NEWEST) ** len(lengths), "newest": newest}
    if not _update_if_free(tx, _SETTLED_MEAN if lengths else _SETTLED, pool, project, values):
        _charge_later(tx, pool, project, seconds)


def _update_if_free(
    tx: Connection, change: Update, pool: str, project: str, values: Mapping[str, float]
) -> bool:
    """Change the project's row; False if there is none, or another transaction holds it: its machine may be
    frozen, and all claims of the pool would wait for it."""
    return tx.execute(change, {"in_pool": pool, "of_project": project, **values}).rowcount == 1


def settle_job(tx: Connection, job: Job, before_seconds: float = 0.0) -> None:
    """Square what the job's project was charged at the claim with what was decoded since; nothing is charged
    for a transcript that was taken over."""
    settle_jobs(tx, [(job, before_seconds)])


def settle_jobs(tx: Connection, ended: Iterable[tuple[Job, float]]) -> None:
    """Like `settle_job`, for several jobs: one change for each project and pool."""
    owed: dict[tuple[str, str], tuple[float, list[float]]] = {}
    for job, before_seconds in ended:
        if job.forecast_seconds is None or job.pool is None:
            continue
        seconds, lengths = owed.get((job.pool, job.project), (0.0, []))
        done = before_seconds if job.reused_from is not None else job.done_seconds
        if job.state is JobState.DONE and job.reused_from is None and job.audio_seconds is not None:
            lengths.append(job.audio_seconds)
        owed[job.pool, job.project] = (seconds + done - job.forecast_seconds, lengths)
    for (pool, project), (seconds, lengths) in owed.items():
        settle(tx, pool, project, seconds, lengths)


def _free_row() -> Update:
    pool: BindParameter[str] = bindparam("in_pool")
    project: BindParameter[str] = bindparam("of_project")
    named = select(turns.c.project).where(turns.c.pool == pool, turns.c.project == project)
    free = named.with_for_update(skip_locked=True).scalar_subquery()
    return update(turns).where(turns.c.pool == pool, turns.c.project == free)


def _number(name: str) -> BindParameter[float]:
    return bindparam(name, type_=Double())


def _at_least_0(value: ColumnElement[float]) -> ColumnElement[float]:
    return case((value > 0, value), else_=0.0)


# Built once: that takes longer than running them, and each claim and each end of a job uses them.
_FREE_ROW = _free_row()
# Concurrent claims may have read the same row: what they added is kept.
_START = case((turns.c.served > _number("from_start"), turns.c.served), else_=_number("from_start"))
_BEHIND = case((turns.c.served < _START, _START - turns.c.served), else_=0.0)
_REFUNDED = case((turns.c.refund < _BEHIND, turns.c.refund), else_=_BEHIND)
_TAKEN = _FREE_ROW.values(
    start=_START,
    served=_START + _number("charged") - _REFUNDED,
    refund=_at_least_0(_REFUNDED - _number("charged")),
    claims=turns.c.claims + bindparam("more_claims", type_=turns.c.claims.type),
    share=_number("own_share"),
    updated_at=now_utc(),
)
_SETTLED = _FREE_ROW.values(
    served=turns.c.served + _number("seconds") / turns.c.share,
    refund=_at_least_0(turns.c.refund - _number("seconds") / turns.c.share),
)
_SETTLED_MEAN = _SETTLED.values(
    mean_seconds=func.coalesce(turns.c.mean_seconds, _number("first")) * _number("kept") + _number("newest")
)


def _charge_later(tx: Connection, pool: str, project: str, seconds: float, claims: int = 0) -> None:
    charge = {"pool": pool, "project": project, "seconds": seconds, "claims": claims}
    tx.execute(insert(turn_charges).values(**charge))


def _collect_charges(tx: Connection, pool: str, project: str) -> None:
    """Add stored charges to the project's row, which this transaction holds."""
    free = (
        select(turn_charges.c.id)
        .where(turn_charges.c.pool == pool, turn_charges.c.project == project)
        .with_for_update(skip_locked=True)
    )
    gone = delete(turn_charges).where(turn_charges.c.id.in_(tx.scalars(free).all()))
    charges = tx.execute(gone.returning(turn_charges.c.seconds, turn_charges.c.claims)).all()
    seconds, claims = sum(row.seconds for row in charges), sum(row.claims for row in charges)
    settled = sum(row.seconds for row in charges if not row.claims)
    tx.execute(
        update(turns)
        .where(turns.c.pool == pool, turns.c.project == project)
        .values(
            served=turns.c.served + seconds / turns.c.share,
            refund=_at_least_0(turns.c.refund - settled / turns.c.share),
            claims=turns.c.claims + claims,
        )
    )
