"""Whose turn it is: projects that share a pool, in the order in which they get its next job.

Start-time fair queueing: a claim charges its project the job's audio over the project's share, and the
project that was charged least goes next. One that had nothing to do is not paid for that: it begins where the
last claim began. What a job really took is settled when it ends. Knows `turns`; which job of the project it
is, is chosen in `spool.store.queue.scheduler`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, case, func, literal, select, update

from spool.store.sql import now_utc, upsert
from spool.tables import turns

UNKNOWN_SECONDS = 300.0
"""What a recording is charged as while neither its length nor that of another of its project is known."""
LEAST_SECONDS = 1.0
NEWEST = 0.1
"""How much the latest recording counts in the mean length."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One project's place in the order. `start` is where its next claim begins, in seconds of audio over its
    share; `claims` is how many it had."""

    project: str
    start: float
    share: float
    claims: int
    mean_seconds: float | None

    def price(self, left_seconds: float | None) -> float:
        """What a job is charged with so much audio left; None while that is not known."""
        if left_seconds is None:
            left_seconds = self.mean_seconds or UNKNOWN_SECONDS
        return max(left_seconds, LEAST_SECONDS)


def fair_order(tx: Connection, pool: str, projects: Iterable[str], shares: Mapping[str, float]) -> list[Turn]:
    """These projects, the one whose turn it is first."""
    known = {row.project: row for row in tx.execute(select(turns).where(turns.c.pool == pool))}
    begun = max((row.start for row in known.values()), default=0.0)
    order = []
    for project in projects:
        row, share = known.get(project), shares.get(project, 1.0)
        if row is None:
            order.append(((begun, 0.0, project), Turn(project, begun, share, 0, None)))
            continue
        start = max(begun, row.served)
        order.append(
            ((start, row.served, project), Turn(project, start, share, row.claims, row.mean_seconds))
        )
    return [turn for _, turn in sorted(order, key=lambda each: each[0])]


def take_turn(tx: Connection, pool: str, turn: Turn, seconds: float) -> None:
    """The project got a job that is charged as so many seconds of audio."""
    # Claims beside us may have read the same row: what they added stays.
    start = case((turns.c.served > turn.start, turns.c.served), else_=literal(turn.start))
    charged = seconds / turn.share
    both = {"share": turn.share, "updated_at": now_utc()}
    row = {"pool": pool, "project": turn.project, "start": turn.start, "served": turn.start + charged}
    change = {"start": start, "served": start + charged, "claims": turns.c.claims + 1}
    upsert(tx, turns, row | both | {"claims": 1}, update=change | both)


def settle(
    tx: Connection, pool: str, project: str, seconds: float, length_seconds: float | None = None
) -> None:
    """The job took so many seconds of audio more than it was charged (less: negative). `length_seconds` of a
    recording that was transcribed goes into the mean.

    Lock the job's row first: everybody does, and then nobody waits in a circle.
    """
    values = {"served": turns.c.served + seconds / turns.c.share}
    if length_seconds is not None:
        mean = func.coalesce(turns.c.mean_seconds, length_seconds)
        values["mean_seconds"] = mean + NEWEST * (length_seconds - mean)
    tx.execute(update(turns).where(turns.c.pool == pool, turns.c.project == project).values(**values))
