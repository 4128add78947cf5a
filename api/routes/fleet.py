"""The routes of the fleet: its workers, the models that jobs may name, and the overview of queue and
costs."""

from collections import Counter
from decimal import Decimal
from itertools import groupby
from typing import Annotated

from fastapi import Query

from api.auth.authentication import CallerDep
from api.presenters.jobs import present_worker
from api.services import Services, ServicesDep
from api.submission.bodies import json_body
from api.submission.openai_models import ITS_MODELS
from spool.catalogue.entries import load_catalogue
from spool.domain.fleet.models import can_stream
from spool.domain.fleet.routing import Route
from spool.domain.pricing import NANOS_PER_UNIT
from spool.errors import NotFound, describe_code
from spool.schemas.common import ListOf
from spool.schemas.fleet import (
    CollectionFailureOut,
    CollectionOut,
    DefaultModel,
    EndedOut,
    ModelDetail,
    ModelList,
    ModelOut,
    OpenAIModel,
    Overview,
    TodayOut,
    WaitingOut,
    WorkerOut,
)
from spool.store import workers as store
from spool.store.archive.collections import Collection, list_collections
from spool.store.ledger.reports import read_paces
from spool.store.monitoring import Gauges, Spent, read_gauges
from spool.store.system import set_default_model


def list_workers(services: ServicesDep) -> ListOf[WorkerOut]:
    """List workers.

    Workers, most recently seen first.
    """
    with services.database.read() as tx:
        return ListOf[WorkerOut](items=[present_worker(worker) for worker in store.list_workers(tx)])


def list_models(services: ServicesDep) -> ModelList:
    """List models.

    The models that workers have or the settings name, and how many live workers offer each.
    """
    items = _models(services)
    return ModelList(items=items, data=[OpenAIModel(id=model.name) for model in items])


def get_model(model: str, services: ServicesDep) -> ModelDetail:
    """Show a model.

    A name that clients of OpenAI's API know, such as `whisper-1`, is the default one.
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
    offered = Counter(name for worker in state.workers if worker.alive for name in worker.models)
    facts = [worker.model_facts for worker in state.workers if worker.alive]
    with services.database.look() as tx:
        paces = read_paces(tx)
    catalogue = load_catalogue()
    return [
        ModelOut(
            name=name,
            default=name == default,
            workers=offered[name],
            streams=can_stream(name, facts),
            languages=sorted({code for models in facts if name in models for code in models[name].languages}),
            good_for=catalogue.find(name).good_for if catalogue.has(name) else "",
            ready=any(models[name].sha256 for models in facts if name in models),
            rtfx=paces.get(name),
        )
        for name in sorted(state.models | set(services.settings.models) | {default})
    ]


def set_default(
    services: ServicesDep, body: Annotated[DefaultModel, json_body(DefaultModel, declared=True)]
) -> DefaultModel:
    """Set the default model.

    Jobs that name no model have this one from now on.
    """
    services.fleet.check(Route(None), body.name)
    with services.database.begin() as tx:
        set_default_model(tx, body.name)
    services.fleet.read()
    return body


def get_overview(
    services: ServicesDep,
    caller: CallerDep,
    batches: Annotated[
        int,
        Query(
            ge=0, le=200, description="List projects in `collections`, and this many of the newest batches."
        ),
    ] = 0,
) -> Overview:
    """Show the overview.

    Queued, running and ended jobs, and today's totals; of one project if the key has one.
    """
    with services.database.read() as tx:
        gauges = read_gauges(tx, caller.project, month=False)
        collections = list_collections(tx, caller.project, batches) if batches else []
    unserved = () if caller.project else services.fleet.recent().unserved
    return Overview.of(
        gauges,
        waiting=_waiting(gauges),
        unserved=unserved,
        ended=[
            EndedOut.of(one, reason=describe_code(one.error) if one.error else "") for one in gauges.ended
        ],
        today=_today(gauges.today, services.settings.currency),
        collections=[CollectionOut.of(one, failures=_failures(one)) for one in collections],
    )


def _failures(one: Collection) -> list[CollectionFailureOut]:
    by_jobs = sorted(one.failures.items(), key=lambda failure: (-failure[1], failure[0]))
    return [
        CollectionFailureOut(error=error, reason=describe_code(error), jobs=number)
        for error, number in by_jobs
    ]


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
