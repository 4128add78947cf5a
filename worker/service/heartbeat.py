"""The worker's heartbeat: reports its state and busy time every few seconds and writes pending charges.

Reads the engine's counters and writes the database; decides nothing.
"""

import structlog

from spool import clock
from spool.errors import NotFound, SpoolError
from spool.store.workers import heartbeat, register_worker
from spool.tables.workers import WorkerInfo, WorkerState
from worker.models.quality import read_qualities
from worker.service.affinity import list_loaded
from worker.service.context import WorkerContext

log = structlog.get_logger(__name__)


class Heartbeat(clock.Thread):
    """A daemon thread that sends heartbeats until stopped."""

    def __init__(self, context: WorkerContext, info: WorkerInfo) -> None:
        super().__init__(name="worker-heartbeat", daemon=True)
        self._context = context
        self._info = info
        self._stopping = clock.Event()

    def stop(self) -> None:
        """Stop sending heartbeats."""
        self._stopping.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        """Send heartbeats, write the charges that are due, and remove answers that nobody took over."""
        while True:
            self._beat()
            self._context.wasted.write()
            self._context.handover.sweep()
            if self._stopping.wait(self._context.settings.heartbeat_seconds):
                return

    def _beat(self) -> None:
        context, engine = self._context, self._context.engine
        facts = context.announcement.find_changes(engine)
        try:
            with context.db.begin() as tx:
                state, reason = self._state()
                heartbeat(
                    tx,
                    self._info.id,
                    state,
                    engine.busy_ns,
                    reason=reason,
                    unbilled_ns=engine.unbilled_ns,
                    counts=context.counters.counts(engine),
                    loaded_models=list_loaded(context.settings.models, engine.loaded),
                    model_facts=facts,
                    quality=read_qualities(context.settings.home),
                )
            context.announcement.record_stored(facts)
        except NotFound:
            log.warning("worker was forgotten, entering it again", worker=self._info.id)
            self._register()
        except SpoolError as error:
            log.warning("no heartbeat", error=error.message)

    def _register(self) -> None:
        try:
            with self._context.db.begin() as tx:
                register_worker(tx, self._info)
            self._context.announcement.record_stored(dict(self._info.model_facts))
        except SpoolError as error:
            log.warning("not registered", error=error.message)

    def _state(self) -> tuple[WorkerState, str | None]:
        if self._context.draining.is_set():
            return "draining", None
        if (reason := self._context.health.reason) is not None:
            return "unwell", reason
        reason = self._context.off.reason
        return ("ready", None) if reason is None else ("resting", reason)
