"""The queues in which jobs wait, one per route, and the SQL that finds jobs in them.

A query that must be answered from the front of an index, however many jobs wait, uses the conditions defined
here.
"""

from collections.abc import Iterator
from functools import lru_cache

from sqlalchemy import ColumnElement, Connection, Select, literal_column, select

from spool.tables import jobs

# Spelt out, since SQLite uses a partial index only if the query contains its condition.
QUEUED = jobs.c.state == literal_column("'queued'")
RUNNING = jobs.c.state == literal_column("'running'")


def queues_waiting(tx: Connection) -> list[str]:
    """Every queue in which jobs wait."""
    return list(tx.scalars(_QUEUES))


def in_queue(queue: str) -> Iterator[ColumnElement[bool]]:
    """SQL: the job waits in the queue."""
    yield QUEUED
    yield jobs.c.queue == queue


@lru_cache(maxsize=256)  # building it takes longer than running it, and each claim uses it
def projects_in(queue: str) -> Select[str]:
    """The projects that have jobs in the queue."""
    return distinct_values(jobs.c.project, *in_queue(queue))


def distinct_values(column: ColumnElement[str], *conditions: ColumnElement[bool]) -> Select[str]:
    """The distinct values of an indexed column, stepping from one to the next: one lookup per value."""

    def least(*more: ColumnElement[bool]) -> Select[str]:
        return select(column).where(*conditions, *more).order_by(column).limit(1)

    walk = select(least().scalar_subquery().label("value")).cte("walk", recursive=True)
    onward = select(least(column > walk.c.value).scalar_subquery()).where(walk.c.value.is_not(None))
    walk = walk.union_all(onward)
    return select(walk.c.value).where(walk.c.value.is_not(None))


_QUEUES = distinct_values(jobs.c.queue, QUEUED)
