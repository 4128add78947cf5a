"""How a worker claims a job: not while it drains or is unwell, and a job on its last chance only by itself.

A message only says that there is work; `spool.store.queue.scheduler` chooses the job, and
`spool.store.queue.leases` owns the claim itself.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import structlog
from sqlalchemy import Connection

from spool import clock
from spool.errors import SpoolError
from spool.store.queue.leases import Claim
from spool.store.queue.outbox import hint_again, hint_used_up
from spool.store.queue.scheduler import ClaimRequest, NeedsAlone, claim_alone, claim_next
from worker.service.affinity import list_loaded
from worker.service.context import WorkerContext

Answer = TypeVar("Answer")

log = structlog.get_logger(__name__)

ELSEWHERE_SECONDS = 1.0  # a returned message is delivered again after this, to any worker


@contextlib.contextmanager
def hold_next(context: WorkerContext, hinted: str | None, *, live: bool = False) -> Iterator[Claim | None]:
    """The claim to the job whose turn it is, and to the short ones that came with it, for as long as the
    block runs; None when none may run here now. Each of the others has to `leave` the gate by itself.

    `hinted` is the job whose message brought the worker here, if one did. live: of live sessions alone.
    """
    while True:
        with context.job_gate.share(context.resting) as entered:
            outcome = _next(context, live=live) if entered else None
            if not isinstance(outcome, NeedsAlone):
                if outcome is None and hinted is not None:
                    _use_up(context, hinted) if entered else _give_back(context, hinted)
                yield outcome
                return
        with context.job_gate.alone(context.resting) as entered:
            claim = _claim_alone(context, outcome.job_id, live=live) if entered else None
            if claim is not None or not entered:
                if not entered:
                    _give_back(context, hinted or outcome.job_id)
                yield claim
                return


@contextlib.contextmanager
def beside(context: WorkerContext, claims: Sequence[Claim], run: Callable[[Claim], object]) -> Iterator[None]:
    """Run these jobs while the block runs, and to their ends. One for which there is no thread comes after
    it."""

    def run_and_leave(claim: Claim) -> None:
        try:
            run(claim)
        finally:
            context.job_gate.leave()

    threads, left = [], list(claims)
    with contextlib.suppress(RuntimeError):  # no more threads
        while left:
            thread = clock.Thread(
                target=run_and_leave, args=(left[0],), name=f"job-{left[0].job.id}", daemon=True
            )
            thread.start()
            threads.append(thread)
            del left[0]
    try:
        yield
    finally:
        for claim in left:
            run_and_leave(claim)
        for thread in threads:
            thread.join()


def _next(context: WorkerContext, *, live: bool) -> Claim | NeedsAlone | None:
    settings = context.settings
    loaded = list_loaded(settings.models, context.engine.loaded)
    first = context.affinity.first(loaded) if context.engine.crowded else frozenset()
    most = 1 if live else context.appetite.jobs
    request = replace(_request_of(context, live=live), alone=False, models=first, most=most)
    outcome = _write(context, "not claimed", lambda tx: claim_next(tx, request, settings.rules))
    if isinstance(outcome, Claim):
        context.job_gate.add(len(outcome.others))
        context.affinity.record_claim(outcome.passed, loaded=outcome.job.options.model in loaded)
    return outcome


def _claim_alone(context: WorkerContext, job_id: str, *, live: bool) -> Claim | None:
    request, rules = _request_of(context, live=live), context.settings.rules
    return _write(context, "not claimed", lambda tx: claim_alone(tx, job_id, request, rules), job_id=job_id)


def _request_of(context: WorkerContext, *, live: bool) -> ClaimRequest:
    settings = context.settings
    return ClaimRequest(
        context.worker_id,
        settings.pool,
        settings.worker_name,
        settings.lease_seconds,
        settings.max_crashes,
        offered=context.offer.models,
        without_language_models=context.health.lacking_language_models,
        machine=context.offer.machine,
        live=live,
    )


def _give_back(context: WorkerContext, job_id: str) -> None:
    """This worker takes no jobs now: have the message sent again."""
    _write(
        context, "message not given back", lambda tx: hint_again(tx, job_id, ELSEWHERE_SECONDS), job_id=job_id
    )


def _use_up(context: WorkerContext, job_id: str) -> None:
    _write(context, "message not noted as used up", lambda tx: hint_used_up(tx, job_id), job_id=job_id)


def _write(
    context: WorkerContext, otherwise: str, write: Callable[[Connection], Answer], **ids: str
) -> Answer | None:
    """What the write answers; None where the database does not. The sweep then sends the message again."""
    try:
        with context.db.begin() as tx:
            return write(tx)
    except SpoolError as error:
        log.warning(otherwise, **ids, error=error.message)
        return None
