"""Lanes: the jobs that wait for one pool, or for one worker of it; and how SQL finds its way among them.

A query that is to be answered from the front of an index, however many jobs wait, says its condition as here.
"""

from collections.abc import Iterator
from functools import lru_cache

from sqlalchemy import ColumnElement, Connection, Select, literal_column, select

from spool.tables import jobs

Lane = tuple[str, str | None]
"""A pool, and the name of the worker to whom the jobs are pinned (None: to nobody)."""

# Spelt out, for SQLite reads a partial index only where its condition stands in the query.
QUEUED = jobs.c.state == literal_column("'queued'")
# PostgreSQL does not take IS NULL for an equality: without the column in its ORDER BY it would sort.
IN_ORDER = (jobs.c.worker,)
RUNNING = jobs.c.state == literal_column("'running'")


def lanes_waiting(tx: Connection) -> list[Lane]:
    """Every lane in which jobs wait."""
    lanes: list[Lane] = []
    for pool in tx.scalars(distinct_values(jobs.c.pool, QUEUED)).all():
        if tx.execute(select(jobs.c.id).where(*in_lane((pool, None))).limit(1)).one_or_none() is not None:
            lanes.append((pool, None))
        pinned = tx.scalars(
            distinct_values(jobs.c.worker, QUEUED, jobs.c.pool == pool, jobs.c.worker.is_not(None))
        )
        lanes.extend((pool, name) for name in pinned)
    return lanes


def in_lane(lane: Lane) -> Iterator[ColumnElement[bool]]:
    """SQL: the job waits in the lane."""
    pool, worker = lane
    yield QUEUED
    yield jobs.c.pool == pool
    yield jobs.c.worker.is_(None) if worker is None else jobs.c.worker == worker


@lru_cache(maxsize=256)  # building it takes longer than running it, and each claim asks
def projects_in(lane: Lane) -> Select[str]:
    """The projects that have jobs in the lane."""
    return distinct_values(jobs.c.project, *in_lane(lane), along=IN_ORDER)


def distinct_values(
    column: ColumnElement[str],
    *conditions: ColumnElement[bool],
    along: tuple[ColumnElement[str | None], ...] = (),
) -> Select[str]:
    """The distinct values of an indexed column in steps from one to the next: as many looks as values.

    `along`: columns before it in the index that the conditions hold to one value.
    """

    def least(*more: ColumnElement[bool]) -> Select[str]:
        return select(column).where(*conditions, *more).order_by(*along, column).limit(1)

    walk = select(least().scalar_subquery().label("value")).cte("walk", recursive=True)
    onward = select(least(column > walk.c.value).scalar_subquery()).where(walk.c.value.is_not(None))
    walk = walk.union_all(onward)
    return select(walk.c.value).where(walk.c.value.is_not(None))
