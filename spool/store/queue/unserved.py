"""Jobs that no worker can take now, by queue and model, with the reason; fails those that waited too long."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from spool.domain.fleet.routing import WorkerReport, route_of, why_waiting
from spool.domain.jobs import JobState
from spool.store.event_log import note_jobs
from spool.store.queue.queues import in_queue, queues_waiting
from spool.store.rows import JOB_COLUMNS, job_of
from spool.store.sql import count_up_to, now_utc, read_clock, seconds_from_now
from spool.tables import jobs

SAMPLED = 1000
"""Jobs of a pool's queue whose models are examined."""
COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class Unserved:
    """Jobs of one model in one queue. `jobs` is counted up to `COUNTED`."""

    queue: str
    model: str
    jobs: int
    waiting_for: str


def find_unserved(tx: Connection, workers: Sequence[WorkerReport]) -> list[Unserved]:
    """The jobs that none of these workers can take."""
    now = read_clock(tx)
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
    return count_up_to(tx, COUNTED, jobs.c.id, *in_queue(queue), model == _MODEL)


_MODEL = jobs.c.options["model"].as_string()


def fail_unservable(
    tx: Connection, queues: Sequence[str], model: str, waited_seconds: float, reason: tuple[str, str]
) -> int:
    """Fail the jobs of these queues that have been queued for too long and whose model no worker can load;
    `reason` is a code and a sentence. Returns how many."""
    waited = jobs.c.queued_at < seconds_from_now(-waited_seconds)
    code, message = reason
    rows = tx.execute(
        update(jobs)
        .returning(*JOB_COLUMNS)
        .where(jobs.c.state == JobState.QUEUED.value, jobs.c.queue.in_(queues), waited)
        .where(model == _MODEL)
        .values(
            state=JobState.FAILED.value,
            error_code=code,
            error_message=message,
            finished_at=now_utc(),
            updated_at=now_utc(),
        )
    )
    failed = [job_of(row) for row in rows]
    note_jobs(tx, *failed)
    return len(failed)
