"""What this process knows of the fleet: its workers, their models, the default model, and jobs no worker can
take.

Read from SQL every few seconds, and again before a request is refused or a job is reported as unservable.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import structlog
from sqlalchemy import Connection

from spool import clock
from spool.background.thread import BackgroundLoop, jitter
from spool.catalogue.entries import load_catalogue
from spool.domain.fleet.models import (
    can_stream,
    choose_with_head,
    different_weights,
    lacks_head,
    unknown_languages,
)
from spool.domain.fleet.routing import Route, route_of, why_waiting
from spool.domain.jobs import Job, JobState
from spool.errors import Conflict, InvalidRequest, UnknownModel
from spool.settings import Settings
from spool.store import Database
from spool.store.queue.unserved import Unserved, find_unserved
from spool.store.sql import read_clock
from spool.store.system import default_model, keep_first_default
from spool.store.workers import Worker, list_recent_workers

log = structlog.get_logger(__name__)

REFRESH_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class FleetState:
    """The fleet at one moment, by the database's clock."""

    now: datetime
    read_at: float
    workers: tuple[Worker, ...]
    unserved: tuple[Unserved, ...]

    @property
    def models(self) -> frozenset[str]:
        """The models that a live or known worker has."""
        return frozenset(name for worker in self.workers for name in worker.models)

    def waiting_for(self, route: Route, model: str) -> str | None:
        """What a job is waiting for if no worker can take it now."""
        return why_waiting(route, model, [worker.seen for worker in self.workers], self.now)


class FleetView(BackgroundLoop):
    """Keeps a `FleetState`. Thread-safe."""

    def __init__(self, database: Database, settings: Settings) -> None:
        super().__init__("api-fleet")
        self._database = database
        self._settings = settings
        self._lock = clock.Lock()
        self._state: FleetState | None = None
        self._first_kept = "default_model" not in settings.model_fields_set

    @property
    def latest(self) -> FleetState | None:
        """The last state that was read; None before the first. Makes no query."""
        return self._state

    def run_once(self) -> float:
        """Refresh the state."""
        self._keep_first_default()
        self.read()
        return jitter(REFRESH_SECONDS)

    def read(self) -> FleetState:
        """The current state. Raises StorageError."""
        with self._database.read() as tx:
            state = _state_of(tx)
        with self._lock:
            # Another thread's read may have begun later and ended before this one.
            if self._state is None or self._state.now <= state.now:
                self._state = state
        return state

    def recent(self) -> FleetState:
        """The state of at most a few seconds ago. Raises StorageError."""
        state = self._state
        if state is None or clock.monotonic() - state.read_at > 2 * REFRESH_SECONDS:
            return self.read()
        return state

    def default(self, head: str | None = None, preferred: str | None = None) -> str:
        """The model of jobs that name none, or the `preferred` one; if they need a `head`, one that has it
        where that is known. A new default holds in every process at once. Raises StorageError."""
        state = self.recent()
        model = preferred or self._read_default() or self._settings.default_model
        if head is None:
            return model
        facts = [worker.model_facts for worker in state.workers if worker.alive]
        if any(model in models and head in models[model].heads for models in facts):
            return model
        return choose_with_head(head, facts) or model

    def check(
        self,
        route: Route,
        model: str,
        head: str | None = None,
        languages: tuple[str, ...] = (),
        *,
        live: bool = False,
    ) -> None:
        """Raise UnknownModel for a model that no worker has, Conflict if workers that could take the job have
        different weights under its name, and InvalidRequest if it lacks the `head`, does not know one of the
        `languages`, or cannot stream a `live` session."""
        known = self._names(self.recent())
        for name in (model, route.reader):
            if name is not None and name not in known and name not in (known := self._names(self.read())):
                listed = ", ".join(sorted(known))
                raise UnknownModel(f"There is no model {name!r}. Available models: {listed}.")
        able = [
            (worker.name, worker.model_facts)
            for worker in self.recent().workers
            if worker.alive and worker.offer.takes(route, model)
        ]
        if (sentence := different_weights(model, able)) is not None:
            raise Conflict(sentence)
        if head is not None and lacks_head(model, head, [facts for _, facts in able]):
            raise InvalidRequest(
                f"{model} has no {head.upper()} head, which alignment needs; choose another."
            )
        catalogue = load_catalogue()
        codes = catalogue.find(model).languages if catalogue.has(model) else ()
        unheard, told = unknown_languages(model, languages, [facts for _, facts in able], codes)
        if unheard:
            raise InvalidRequest(
                f"language: {model} does not know {', '.join(unheard)}; it knows: {', '.join(told)}."
            )
        if live and can_stream(model, [facts for _, facts in able]) is False:
            raise InvalidRequest(f"{model} cannot stream, which a live session needs; choose another model.")

    def waiting_for(self, jobs: Iterable[Job]) -> dict[str, str]:
        """What each job is waiting for, by id, if no worker can take it."""
        reasons: dict[str, str] = {}
        state, fresh = None, False
        for job in jobs:
            if job.state is not JobState.QUEUED:
                continue
            state = state or self.recent()
            asked = route_of(job.queue), job.options.model
            reason = state.waiting_for(*asked)
            if reason is not None and not fresh:
                state, fresh = self.read(), True
                reason = state.waiting_for(*asked)
            if reason is not None:
                reasons[job.id] = reason
        return reasons

    def _read_default(self) -> str | None:
        with self._database.read() as tx:
            return default_model(tx)

    def _names(self, state: FleetState) -> frozenset[str]:
        return state.models | frozenset(self._settings.models)

    def _keep_first_default(self) -> None:
        if self._first_kept:
            return
        with self._database.begin() as tx:
            kept = keep_first_default(tx, self._settings.default_model)
        self._first_kept = True
        if kept != self._settings.default_model:
            log.warning(
                "SPOOL_DEFAULT_MODEL is only the first value of the default model",
                setting=self._settings.default_model,
                default=kept,
                change="spool models default NAME",
            )


def _state_of(tx: Connection) -> FleetState:
    workers = tuple(list_recent_workers(tx))
    unserved = find_unserved(tx, [worker.seen for worker in workers])
    now = read_clock(tx)
    return FleetState(now, clock.monotonic(), workers, tuple(unserved))
