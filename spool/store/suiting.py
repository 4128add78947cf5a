"""Which of the jobs at the front suits a worker best: one whose model it has in memory.

Looks no further than the jobs that stand side by side in class and deadline, of the project whose turn it is
and among the first of them, so it changes no order but that in which jobs came. How often the first one may
be passed over is the worker's to count (`worker.placement`).
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, select

from spool.tables import jobs

LOOK_AHEAD = 64


class Passed(NamedTuple):
    """The first job was passed over: how many of the jobs looked at want a model in memory, and how many the
    model of the first."""

    own: int
    other: int


def suiting(
    tx: Connection, first: Row[Any], waiting: Sequence[ColumnElement[bool]], models: Collection[str]
) -> tuple[str, Passed] | None:
    """The id of the job that goes before `first` since its model is among `models`; None where the first one
    suits, or none does better. `waiting` says which jobs wait beside it."""
    model = jobs.c.options["model"].as_string()
    beside = (jobs.c.priority == first.priority, jobs.c.due == first.due)
    rows = tx.execute(
        select(jobs.c.id, model.label("model"))
        .where(*waiting, *beside)
        .order_by(jobs.c.place, jobs.c.id)
        .limit(LOOK_AHEAD)
    ).all()
    wanted = next((row.model for row in rows if row.id == first.id), None)
    own = [row.id for row in rows if row.model in models]
    if wanted is None or wanted in models or not own:
        return None
    return own[0], Passed(len(own), sum(row.model == wanted for row in rows))
