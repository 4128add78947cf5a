"""The routes of the fleet: its workers, the models that jobs may name, and the overview of queue and
costs."""

from collections import Counter
from decimal import Decimal
from itertools import groupby

from api.auth.authentication import CallerDep
from api.presenters.jobs import shown_worker
from api.services import ServicesDep
from spool.domain.pricing import NANOS_PER_UNIT
from spool.schemas.fleet import EndedOut, ModelList, ModelOut, Overview, TodayOut, WaitingOut, WorkerList
from spool.store.monitoring import Gauges, Spent, read_gauges
from spool.store.workers import list_workers


def workers(services: ServicesDep) -> WorkerList:
    """Workers, most recently seen first."""
    with services.database.read() as tx:
        return WorkerList(items=[shown_worker(worker) for worker in list_workers(tx)])


def models(services: ServicesDep) -> ModelList:
    """The models that the settings name, and how many live workers offer each."""
    with services.database.read() as tx:
        offered = Counter(name for worker in list_workers(tx) if worker.alive for name in worker.info.models)
    default = services.settings.default_model
    return ModelList(
        items=[
            ModelOut(name=name, default=name == default, workers=offered[name])
            for name in sorted(services.settings.models)
        ]
    )


def overview(services: ServicesDep, caller: CallerDep) -> Overview:
    """Queued, running and ended jobs, and today's totals; of one project if the key has one."""
    with services.database.read() as tx:
        gauges = read_gauges(tx, caller.project, month=False)
    return _shown_overview(gauges, services.settings.currency)


def _shown_overview(gauges: Gauges, currency: str) -> Overview:
    return Overview(
        now=gauges.now,
        waiting=_waiting(gauges),
        running=gauges.running,
        ended=[EndedOut(state=one.state, error=one.error, jobs=one.jobs) for one in gauges.ended],
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
