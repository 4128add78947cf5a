"""Whose fault an error is: the recording's, or this worker's (law 9).

What a model or the engine raises is the worker's until proven otherwise. Where another worker could take the
job, it shall; a job fails only once nobody else is left, or another worker has failed on the same recording,
and a self-test passes on this engine right after. Knows errors and who else is there; ends no job itself.
"""

import contextlib
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass

from spool.domain.fleet.routing import route_of
from spool.domain.options import JobOptions
from spool.errors import (
    EngineCrashed,
    EngineError,
    EngineStopped,
    ModelError,
    ShareForbidden,
    ShareMissing,
    SpoolError,
    UnknownModel,
)
from spool.store.workers import ready_workers
from worker.jobs.attempt import Attempt, GiveBack
from worker.jobs.decoding import WAIT_SECONDS
from worker.service.context import WorkerContext

# A machine without a share, or whose settings do not name it, fails no recording that others can read.
_OF_ITS_PLACE = (ShareMissing, ShareForbidden)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The job goes to other workers, for this `reason`. `blames_worker`: it counts among the failures after
    which a worker takes itself out of service; `proven`: it does so at once, since its self-test failed."""

    reason: str
    blames_worker: bool = True
    proven: bool = False


def is_suspect(error: SpoolError) -> bool:
    """Whether the error may be the worker's own fault. An utterance that ends the engine's process is only
    accused after a harmless sound has passed on the next one (`worker.engine.pending`)."""
    if error.retryable or isinstance(error, EngineCrashed):
        return False
    return isinstance(error, (ModelError, EngineError, *_OF_ITS_PLACE)) or type(error) is SpoolError


def judge(context: WorkerContext, attempt: Attempt, error: SpoolError) -> Verdict | None:
    """Whether other workers should try the job; None where it fails for good.

    Raises LeaseLost, JobCancelled and GiveBack while the self-test runs, and StorageError.
    """
    job, own = attempt.claim.job, context.settings.worker_name
    refusals = set(job.refusals or {}) - {own}
    if others := _others(context, attempt, refusals | {own}):
        if isinstance(error, UnknownModel) and _lacks_what_is_asked(context, job.options):
            return Verdict(f"left to {_listed(others)}", blames_worker=False)
        if isinstance(error, (ModelError, *_OF_ITS_PLACE)) or not refusals:
            return Verdict(f"left to {_listed(others)}")
    if isinstance(error, _OF_ITS_PLACE):
        return None  # nobody has that folder
    problem = _self_test(context, attempt, error)
    return None if problem is None else Verdict(f"the self-test failed: {problem}", proven=True)


def _lacks_what_is_asked(context: WorkerContext, options: JobOptions) -> bool:
    """Whether the job asks for a language model, graph or second model that is not here, which is no
    illness: workers may differ in theirs. Jobs with that language model are left to others for a while."""
    if options.graph is not None and options.graph.name not in context.settings.graphs:
        return True
    second = None if options.rescore is None else options.rescore.second_model
    if second is not None and second not in context.settings.models:
        return True
    name = options.language_model
    if name is None or name in context.settings.language_models or "@" in name:
        return False
    context.health.lack_language_model(name)
    return True


def _others(context: WorkerContext, attempt: Attempt, tried: set[str]) -> list[str]:
    """The workers that could take the job and have not tried it."""
    job = attempt.claim.job
    with context.db.read() as tx:
        ready = ready_workers(tx)
    route = route_of(job.queue)
    return sorted(
        {each.name for each in ready if each.name not in tried and each.takes(route, job.options.model)}
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _self_test(context: WorkerContext, attempt: Attempt, error: SpoolError) -> str | None:
    """What is wrong with this worker's engine; None where a harmless sound comes through. A model that does
    not load cannot be tested by itself: the default model is, in its place."""
    try:
        if isinstance(error, ModelError) or not attempt.model:
            future = context.engine.probe(context.settings.models[context.settings.self_test_model])
        else:
            request = attempt.request
            future = context.engine.probe(attempt.model, request.options, request.ask)
        while True:
            with contextlib.suppress(NotYet):
                future.result(WAIT_SECONDS)
                return None
            attempt.lease.check()
            if (reason := context.rests_because()) is not None:
                raise GiveBack(reason)
    except EngineStopped:
        raise GiveBack("the engine stopped") from None
    except (ModelError, EngineError) as problem:
        return problem.message
