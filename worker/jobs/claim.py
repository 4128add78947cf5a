"""How a worker takes a job: not while it drains or is unwell, and a job on its last chance only by itself.

A message says that there is work; which job it is, is asked in `spool.store.queue.scheduler`. Knows the order
of asking; what a claim is, is said in `spool.store.queue.leases`.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import structlog
from sqlalchemy import Connection

from spool.errors import SpoolError
from spool.store.queue.leases import Claim, claim_job
from spool.store.queue.outbox import hint_again, hint_used_up
from spool.store.queue.scheduler import ClaimRequest, NeedsAlone, claim_next
from worker.service.affinity import loaded_names
from worker.service.context import WorkerContext

Answer = TypeVar("Answer")

log = structlog.get_logger(__name__)

ELSEWHERE_SECONDS = 1.0  # a message given back comes again after so long, to whoever takes it then


@contextlib.contextmanager
def claimed_next(bench: WorkerContext, hinted: str | None) -> Iterator[Claim | None]:
    """The claim to the job whose turn it is, for as long as the block runs; None when none may run here now.

    `hinted` is the job whose message brought the worker here, if one did.
    """
    while True:
        with bench.berths.shared(bench.resting) as here:
            found = _next(bench) if here else None
            if not isinstance(found, NeedsAlone):
                if found is None and hinted is not None:
                    _used_up(bench, hinted) if here else _give_back(bench, hinted)
                yield found
                return
        with bench.berths.alone(bench.resting) as here:
            claim = _claim_alone(bench, found.job_id) if here else None
            if claim is not None or not here:
                if not here:
                    _give_back(bench, hinted or found.job_id)
                yield claim
                return


def _next(bench: WorkerContext) -> Claim | NeedsAlone | None:
    settings = bench.settings
    loaded = loaded_names(settings.models, bench.engine.loaded)
    first = bench.placement.first(loaded) if bench.engine.crowded else frozenset()
    asker = ClaimRequest(
        bench.worker_id,
        settings.pool,
        settings.worker_name,
        settings.lease_seconds,
        settings.max_crashes,
        alone=False,
        models=first,
        without=bench.health.lacking,
    )
    found = _written(bench, "not claimed", lambda tx: claim_next(tx, asker, settings.rules))
    if isinstance(found, Claim):
        bench.placement.took(found.passed, here=found.job.options.model in loaded)
    return found


def _claim_alone(bench: WorkerContext, job_id: str) -> Claim | None:
    settings = bench.settings
    who = (job_id, bench.worker_id, settings.lease_seconds)
    return _written(
        bench,
        "not claimed",
        lambda tx: claim_job(tx, *who, max_crashes=settings.max_crashes, alone=True),
        job_id=job_id,
    )


def _give_back(bench: WorkerContext, job_id: str) -> None:
    """The message came to the wrong worker: let it be sent again."""
    _written(
        bench, "message not given back", lambda tx: hint_again(tx, job_id, ELSEWHERE_SECONDS), job_id=job_id
    )


def _used_up(bench: WorkerContext, job_id: str) -> None:
    _written(bench, "message not noted as used up", lambda tx: hint_used_up(tx, job_id), job_id=job_id)


def _written(
    bench: WorkerContext, otherwise: str, write: Callable[[Connection], Answer], **ids: str
) -> Answer | None:
    """What the write answers; None where the database does not. The sweep then sends the message again."""
    try:
        with bench.db.begin() as tx:
            return write(tx)
    except SpoolError as error:
        log.warning(otherwise, **ids, error=error.message)
        return None
