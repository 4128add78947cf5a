"""How a worker takes a job: not while it drains or is unwell, and a job on its last chance only by itself.

Knows the order of asking; what a claim is, is said in `spool.store.leases`.
"""

import contextlib
from collections.abc import Iterator

import structlog

from spool.errors import SpoolError
from spool.store.leases import Claim, claim_job, needs_alone
from spool.store.outbox import hint_again
from worker.workbench import Bench

log = structlog.get_logger(__name__)

ELSEWHERE_SECONDS = 1.0  # a message given back comes again after so long, to whoever takes it then


@contextlib.contextmanager
def claimed(bench: Bench, job_id: str) -> Iterator[Claim | None]:
    """The claim for as long as the block runs; None when there is nothing to take, or nobody to take it."""
    with bench.berths.shared(bench.resting) as here:
        claim = _claim(bench, job_id, alone=False) if here else None
        if claim is not None or not here or not _on_its_last_chance(bench, job_id):
            if not here:
                _give_back(bench, job_id)
            yield claim
            return
    with bench.berths.alone(bench.resting) as here:
        if not here:
            _give_back(bench, job_id)
        yield _claim(bench, job_id, alone=True) if here else None


def _claim(bench: Bench, job_id: str, *, alone: bool) -> Claim | None:
    settings = bench.settings
    try:
        with bench.db.begin() as tx:
            return claim_job(
                tx,
                job_id,
                bench.worker_id,
                settings.lease_seconds,
                max_deaths=settings.max_deaths,
                alone=alone,
            )
    except SpoolError as error:
        log.warning("not claimed", job=job_id, error=error.message)  # the sweep sends it again
        return None


def _on_its_last_chance(bench: Bench, job_id: str) -> bool:
    try:
        with bench.db.read() as tx:
            return needs_alone(tx, job_id, bench.settings.max_deaths)
    except SpoolError:
        return False


def _give_back(bench: Bench, job_id: str) -> None:
    """The message came to the wrong worker: let it be sent again."""
    try:
        with bench.db.begin() as tx:
            hint_again(tx, job_id, ELSEWHERE_SECONDS)
    except SpoolError as error:
        log.warning("message not given back", job=job_id, error=error.message)  # the sweep sends it again
