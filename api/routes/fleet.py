"""The routes of the fleet: its workers, the models that jobs may name, and the overview of queue and
costs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from decimal import Decimal
from itertools import groupby

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from api.auth.authentication import CallerDep
from api.presenters.jobs import present_worker
from api.problems import Problem
from api.services import Services, ServicesDep
from api.submission.bodies import SMALL, read_json
from api.submission.openai_models import ITS_MODELS
from spool.domain.fleet.models import can_stream
from spool.domain.fleet.routing import Route
from spool.domain.pricing import NANOS_PER_UNIT
from spool.errors import NotFound, describe_code
from spool.schemas.fleet import (
    DefaultModel,
    EndedOut,
    ModelDetail,
    ModelList,
    ModelOut,
    OpenAIModel,
    Overview,
    TodayOut,
    UnservedOut,
    WaitingOut,
    WorkerList,
)
from spool.store import workers as store
from spool.store.monitoring import Gauges, Spent, read_gauges
from spool.store.queue.unserved import Unserved
from spool.store.system import set_default_model


def list_workers(services: ServicesDep) -> WorkerList:
    """Workers, most recently seen first."""
    with services.database.read() as tx:
        return WorkerList(items=[present_worker(worker) for worker in store.list_workers(tx)])


def list_models(services: ServicesDep) -> ModelList:
    """The models that workers have or the settings name, and how many live workers offer each."""
    items = _models(services)
    return ModelList(items=items, data=[OpenAIModel(id=model.name) for model in items])


def get_model(model: str, services: ServicesDep) -> ModelDetail:
    """One model; a name that clients of OpenAI's API know, such as `whisper-1`, is the default one.

    Raises NotFound.
    """
    known = _models(services)
    for entry in known:
        if entry.name == model or (entry.default and model in ITS_MODELS):
            return ModelDetail(id=model, **entry.model_dump())
    raise NotFound(
        f"There is no model {model!r}. Available models: {', '.join(entry.name for entry in known)}."
    )


def _models(services: Services) -> list[ModelOut]:
    state, default = services.fleet.read(), services.fleet.default()
    offered = Counter(name for worker in state.workers if worker.alive for name in worker.info.models)
    facts = [worker.info.facts for worker in state.workers if worker.alive]
    return [
        ModelOut(name=name, default=name == default, workers=offered[name], streams=can_stream(name, facts))
        for name in sorted(state.models | set(services.settings.models) | {default})
    ]


async def set_default(request: Request, services: ServicesDep) -> DefaultModel:
    """Let jobs that name no model have this one from now on."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, "unsupported_media_type", "Send application/json.")
    body = await read_json(request, DefaultModel, SMALL)
    return await run_in_threadpool(_set_default, services, body)


def _set_default(services: Services, body: DefaultModel) -> DefaultModel:
    services.fleet.check(Route(None), body.name)
    with services.database.begin() as tx:
        set_default_model(tx, body.name)
    services.fleet.read()
    return body


def get_overview(services: ServicesDep, caller: CallerDep) -> Overview:
    """Queued, running and ended jobs, and today's totals; of one project if the key has one."""
    with services.database.read() as tx:
        gauges = read_gauges(tx, caller.project, month=False)
    unserved = () if caller.project else services.fleet.recent().unserved
    return _present_overview(gauges, services.settings.currency, unserved)


def _present_overview(gauges: Gauges, currency: str, unserved: Sequence[Unserved]) -> Overview:
    return Overview(
        now=gauges.now,
        waiting=_waiting(gauges),
        unserved=[UnservedOut(**asdict(each)) for each in unserved],
        running=gauges.running,
        ended=[
            EndedOut(
                state=one.state,
                error=one.error,
                reason=describe_code(one.error) if one.error else "",
                jobs=one.jobs,
            )
            for one in gauges.ended
        ],
        batches_receiving=gauges.open_batches,
        today=_today(gauges.today, currency),
    )


def _waiting(gauges: Gauges) -> list[WaitingOut]:
    shown = []
    for pool, classes in groupby(gauges.waiting, key=lambda one: one.pool):
        waiting = list(classes)
        oldest = (gauges.now - min(one.oldest for one in waiting)).total_seconds()
        shown.append(
            WaitingOut(pool=pool, jobs=sum(one.jobs for one in waiting), oldest_seconds=max(oldest, 0))
        )
    return shown


def _today(spent: tuple[Spent, ...], currency: str) -> TodayOut:
    audio, engine = sum(one.audio_seconds for one in spent), sum(one.engine_seconds for one in spent)
    return TodayOut(
        audio_seconds=audio,
        engine_seconds=engine,
        rtfx=audio / engine if engine else None,
        billable=Decimal(sum(one.billable_nanos for one in spent)) / NANOS_PER_UNIT,
        wasted=Decimal(sum(one.wasted_nanos for one in spent)) / NANOS_PER_UNIT,
        currency=currency,
    )
