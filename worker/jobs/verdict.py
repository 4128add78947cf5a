"""Whose fault an error is: the recording's, or this worker's (law 9).

What a worker lacks fails no job: one whose folder the worker cannot reach waits, whoever else is there. What
a model or the engine raises is the worker's until proven otherwise: another worker that could take the job
tries it; the job fails only once nobody else is left, or another worker has failed on the same recording, and
a self-test passes on this engine right after. Knows errors and who else is there; ends no job itself.
"""

import contextlib
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from typing import Literal

from spool.domain.fleet.routing import route_of
from spool.domain.options import JobOptions
from spool.errors import (
    EngineCrashed,
    EngineError,
    EngineStopped,
    ModelError,
    ShareForbidden,
    ShareMissing,
    SourceUnreachable,
    SpoolError,
    UnknownModel,
)
from spool.store.workers import ready_workers
from worker.engine.protocol import NOTHING
from worker.jobs.attempt import Attempt, GiveBack
from worker.jobs.decoding import WAIT_SECONDS
from worker.models.requests import DecodeRequest
from worker.service.context import WorkerContext


@dataclass(frozen=True, slots=True)
class Verdict:
    """The job goes back to the queue, for this `reason`."""

    reason: str
    blames_worker: bool = True
    """Whether it counts among the failures after which a worker takes itself out of service."""
    proven: bool = False
    """Whether the worker does so at once, since its self-test failed."""
    lacks_share: bool = False
    """Whether the worker does so until it can read the recording. The job does not pass over it."""
    retry: Literal["", "limited", "endless"] = ""
    """Whether this worker tries again after a growing pause, and whether it gives up in the end."""


def is_suspect(error: SpoolError) -> bool:
    """Whether the error may be the worker's own fault. An utterance that ends the engine's process is only
    accused after a harmless sound has passed on the next one (`worker.engine.pending`)."""
    if error.retryable or isinstance(error, EngineCrashed):
        return False
    return isinstance(error, (ModelError, EngineError)) or type(error) is SpoolError


def judge(context: WorkerContext, attempt: Attempt, error: SpoolError) -> Verdict | None:
    """Whether other workers should try the job; None where it fails for good.

    Raises LeaseLost, JobCancelled and GiveBack while the self-test runs, and StorageError.
    """
    job, own = attempt.claim.job, context.settings.worker_name
    refusals = set(job.refusals or {}) - {own}
    if others := _others(context, attempt, refusals | {own}):
        if isinstance(error, UnknownModel) and _lacks_what_is_asked(context, job.options):
            return Verdict(f"left to {_list_names(others)}", blames_worker=False)
        if isinstance(error, ModelError) or not refusals:
            return Verdict(f"left to {_list_names(others)}")
    if isinstance(error, ModelError) and (lack := _model_problem(context, attempt)) is not None:
        if (problem := _self_test(context, attempt, error)) is None:
            return Verdict(f"only this model does not load here: {lack}", retry="limited")
        return Verdict(f"the self-test failed: {problem}", proven=True)
    problem = _self_test(context, attempt, error)
    return None if problem is None else Verdict(f"the self-test failed: {problem}", proven=True)


def judge_place(context: WorkerContext, attempt: Attempt, error: SourceUnreachable) -> Verdict:
    """Who is to try a job whose folder this worker cannot reach. Raises StorageError."""
    if isinstance(error, ShareMissing):
        return Verdict("the share is missing here", lacks_share=True)
    job, own = attempt.claim.job, context.settings.worker_name
    others = _others(context, attempt, {own, *(job.refusals or {})})
    if others:
        return Verdict(f"left to {_list_names(others)}", blames_worker=isinstance(error, ShareForbidden))
    if isinstance(error, ShareForbidden):
        return Verdict("no other worker can take it", lacks_share=True)
    # The root is well, and the folder may have been deleted: that is no reason to take no other jobs.
    return Verdict("no other worker can take it", blames_worker=False, retry="endless")


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


def _list_names(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _self_test(context: WorkerContext, attempt: Attempt, error: SpoolError) -> str | None:
    """What is wrong with this worker's engine; None where a harmless sound comes through. A model that does
    not load cannot be tested by itself: the default model is, in its place."""
    if isinstance(error, ModelError) or not attempt.model:
        return _probe(context, attempt, context.settings.models[context.settings.self_test_model])
    return _probe(context, attempt, attempt.model, attempt.request)


def _model_problem(context: WorkerContext, attempt: Attempt) -> str | None:
    """Why the job's model does not work here; None if it does, and the error is about what the job asks of
    it."""
    model = context.settings.models.get(attempt.claim.job.options.model)
    return None if model is None else _probe(context, attempt, model)


def _probe(
    context: WorkerContext, attempt: Attempt, model: str, request: DecodeRequest = NOTHING
) -> str | None:
    """Why the control sound does not come through this model; None if it does."""
    try:
        future = context.engine.probe(model, request)
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
