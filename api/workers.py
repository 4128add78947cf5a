"""The routes of the fleet: which workers there are, and which models jobs may name."""

from collections import Counter

from api.services import ServicesDep
from api.shown import shown_worker
from spool.store.workers import list_workers
from spool.wire.jobs import ModelList, ModelOut, WorkerList


def workers(services: ServicesDep) -> WorkerList:
    """Workers, most recently heard of first."""
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
