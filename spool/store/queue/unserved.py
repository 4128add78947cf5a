"""Jobs that no worker can take now, by queue and model, and what they wait for."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, select

from spool.domain.fleet.routing import Seen, route_of, why_waiting
from spool.store.queue.queues import in_queue, queues_waiting
from spool.store.sql import now_utc
from spool.tables import jobs

SAMPLED = 1000
"""Jobs of a pool's queue whose models are looked at."""
COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class Unserved:
    """Jobs of one model in one queue. `jobs` is counted up to `COUNTED`."""

    queue: str
    model: str
    jobs: int
    waiting_for: str


def unserved_jobs(tx: Connection, workers: Sequence[Seen]) -> list[Unserved]:
    """What waits in vain, with these workers."""
    now: datetime = tx.execute(select(now_utc())).scalar_one()
    unserved = []
    for queue in queues_waiting(tx):
        for model in _models(tx, queue):
            reason = why_waiting(route_of(queue), model, workers, now)
            if reason is not None:
                unserved.append(Unserved(queue, model, _count(tx, queue, model), reason))
    return unserved


def _models(tx: Connection, queue: str) -> list[str]:
    """The models of the jobs in the queue; of a pool's queue, of some of them."""
    model = route_of(queue).model
    if model is not None:
        return [model]
    some = select(_MODEL.label("model")).where(*in_queue(queue)).limit(SAMPLED).subquery()
    return sorted(tx.scalars(select(some.c.model).distinct()))


def _count(tx: Connection, queue: str, model: str) -> int:
    some = select(jobs.c.id).where(*in_queue(queue), model == _MODEL).limit(COUNTED).subquery()
    return tx.scalar(select(func.count()).select_from(some)) or 0


_MODEL = jobs.c.options["model"].as_string()
