"""Spool's part of a worker process: one engine child, the background threads and what jobs need.

`Worker.start` shows their order, top to bottom; Celery's bootstep in `worker.tasks` calls it. This process
never imports MLX, and jobs are left to `worker.jobs`. SIGTERM (as well as SIGINT, SIGQUIT and SIGHUP) drains:
nothing new is claimed, running jobs go back to the queue at their next saved chunk, and the process exits
with 0. A second SIGINT exits at once; the leases then expire. Celery's own handlers lose jobs on SIGQUIT and
start a second process on SIGHUP.
"""

import contextlib
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import celery.worker.state
import structlog
from celery import Celery
from celery import signals as celery_signals

import spool
from spool import clock
from spool.background.sweeper import Sweeper
from spool.catalogue import loadable_models
from spool.errors import SpoolError
from spool.ids import new_id
from spool.objects import object_store
from spool.settings import Settings
from spool.store.database import Database
from spool.store.system import default_model
from spool.store.workers import register_worker, stop_worker
from spool.tables.workers import WorkerInfo
from spool.tracing import start_traces
from worker.engine.client import Engine
from worker.engine.handover import HandoverFolder
from worker.engine.memory_budget import engine_options
from worker.engine.protocol import DEFAULT_LOADER
from worker.jobs.live.intake import LiveIntake, live_desk
from worker.jobs.retry import RetryPolicy, retry_storage
from worker.jobs.services import JobServices
from worker.machine.hardware import backend_of, refuse_wrong_pool, this_machine
from worker.models.quality import list_measured
from worker.service.affinity import ModelAffinity
from worker.service.announcement import Announcement, default_model_warning
from worker.service.celery_status import show_claim
from worker.service.context import WorkerContext
from worker.service.departures import Departures, hand_back_held, record_departure
from worker.service.heartbeat import Heartbeat
from worker.service.intake import QueueIntake
from worker.service.integers import IntegerMeasurement, WorkerIdleness
from worker.service.schedule import OffHours
from worker.service.supervisor import Supervisor
from worker.service.wasted_time import WastedTime
from worker.sources.fetch import Sources

log = structlog.get_logger(__name__)
START_SECONDS = 30.0  # how long to wait for a database that is still starting
DRAIN_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


class Worker:
    """One run of one worker. Tests pass `loader` for a model without weights and `retry` for short pauses."""

    def __init__(
        self, settings: Settings, *, loader: str = DEFAULT_LOADER, retry: RetryPolicy | None = None
    ) -> None:
        hardware = this_machine()
        refuse_wrong_pool(settings.pool, hardware, settings.device)
        settings = settings.model_copy(update={"models": loadable_models(settings)})
        self._settings = settings
        self._announcement = Announcement(settings.models)
        self._retry = retry or RetryPolicy()
        self._draining = clock.Event()
        self._exit_code = 0
        self._stop = contextlib.ExitStack()
        self.failure: SpoolError | None = None
        """Why it could not start."""
        self._temporary = settings.home / "tmp" / f"worker-{os.getpid()}"
        self._db = Database(
            settings.database_url, pool_size=2 * settings.concurrency + 4, statement_seconds=10
        )
        measured = list_measured(settings.home, settings.models, settings.min_qoi)
        worker_id, self._handover = new_id("wrk"), settings.home / "handover"
        self._departures = Departures(settings.home / "departed")
        options = replace(engine_options(settings, loader), measured=measured)
        self._engine = Engine(replace(options, handover=self._handover, worker_id=worker_id))
        self._info = WorkerInfo(
            id=worker_id,
            name=settings.worker_name,
            pool=settings.pool,
            host=hardware.host,
            chip=hardware.chip,
            version=spool.__version__,
            pid=os.getpid(),
            models=tuple(sorted(settings.models)),
            price_per_hour_micros=settings.price_per_hour_micros(),
            concurrency=settings.concurrency,
            gpu_cores=hardware.gpu_cores,
            memory_bytes=hardware.memory,
            pinned_models=tuple(sorted(settings.pinned_models)),
            backend=backend_of(settings.device, hardware),
            model_facts=self._announcement.facts(),
        )
        self._intake = QueueIntake(self._info.offer.queues)

    @property
    def info(self) -> WorkerInfo:
        """What the worker is, as it registers."""
        return self._info

    @property
    def intake(self) -> QueueIntake:
        """The queues that it serves."""
        return self._intake

    def start(self, celery: Celery) -> JobServices:
        """Start all that jobs need, and take live sessions; `celery` sends hints. Raises StorageError or
        EngineStopped if it cannot start."""
        for number in DRAIN_SIGNALS:  # until it is registered there is nothing to hand back
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _remove_leftovers(self._temporary.parent)
        with contextlib.ExitStack() as stop:
            stop.callback(shutil.rmtree, self._temporary, ignore_errors=True)
            stop.callback(self._db.close)
            stop.callback(start_traces(self._settings.otlp_endpoint, "spool-worker"))
            self._engine.start()
            stop.callback(self._engine.close)
            retry_storage(self._register, START_SECONDS)
            for name in self._settings.pinned_models:
                self._engine.describe(self._settings.models[name])  # an error is reported by the jobs
            context = self._context()
            self._announcement.start()
            stop.callback(self._depart, context)
            stop.callback(context.wasted.write_within, self._settings.lease_seconds)
            heartbeat = Heartbeat(context, self._info)
            heartbeat.start()
            stop.callback(heartbeat.stop)
            supervisor = Supervisor(
                context, self._intake, lambda hanging: self._leave(context, heartbeat, hanging)
            )
            supervisor.keep_hours()
            supervisor.start()
            stop.callback(supervisor.stop)
            sweeper = Sweeper(self._db, celery, self._settings)
            sweeper.start()
            stop.callback(sweeper.stop)
            services, live = self._job_services(context, sweeper)
            live.start()
            stop.callback(live.stop)
            measurement = IntegerMeasurement(self._settings, WorkerIdleness(context))
            if measurement.applies:
                measurement.start()
                stop.callback(measurement.stop)
            celery_signals.worker_ready.connect(self._on_ready)
            self._stop = stop.pop_all()
            return services

    def drain(self) -> None:
        """Claim nothing more, and hand back running jobs at their next saved chunk."""
        self._draining.set()

    def stop(self) -> None:
        """Stop what `start` started, once no job runs any more."""
        self._stop.close()

    def _context(self) -> WorkerContext:
        return WorkerContext(
            self._settings,
            self._db,
            self._engine,
            WastedTime(self._db),
            self._info.id,
            self._draining,
            off=OffHours(self._settings.work_hours),
            affinity=ModelAffinity(self._settings.model_stay_seconds),
            machine=self._info.offer.machine,
            handover=HandoverFolder(self._handover),
            announcement=self._announcement,
        )

    def _job_services(self, context: WorkerContext, sweeper: Sweeper) -> tuple[JobServices, LiveIntake]:
        objects = object_store(self._settings)
        sources = Sources(self._settings, objects, self._temporary)
        # In a thread of its own: it waits for shares that do not answer.
        clock.Thread(target=sources.shares.remember_mounts, name="shares", daemon=True).start()
        desk = live_desk(self._settings, self._engine)
        services = JobServices(context, objects, sources, self._retry, desk, show_claim, sweeper.wake)
        return services, LiveIntake(services, desk)

    def _on_ready(self, sender: Any = None, **_: object) -> None:  # noqa: ANN401 - Celery has no types
        self._intake.attach(sender)
        log.info(
            "ready",
            worker=self._settings.worker_name,
            pool=self._settings.pool,
            chip=self._info.chip,
            concurrency=self._settings.concurrency,
        )

    def _register(self) -> None:
        departed = self._departures.list()
        with self._db.begin() as tx:
            for worker_id in departed:
                record_departure(tx, worker_id, self._settings.max_crashes)
            register_worker(tx, self._info)
            fleet_default = default_model(tx)
            self._catch_signals()  # once registered, the worker may be told to stop
        if (sentence := default_model_warning(self._settings, fleet_default)) is not None:
            log.warning(sentence)
        self._departures.forget(departed)

    def _depart(self, context: WorkerContext) -> None:
        """Sign off, with what could not be handed back; leave that to the next worker if need be."""
        if not self._sign_off(context, release=True):
            self._departures.note(self._info.id)

    def _sign_off(self, context: WorkerContext, *, release: bool = False) -> bool:
        engine = self._engine
        try:
            with self._db.begin() as tx:
                if release:
                    hand_back_held(tx, self._info.id, self._settings.max_crashes)
                stop_worker(
                    tx, self._info.id, engine.busy_ns, engine.unbilled_ns, context.counters.counts(engine)
                )
        except SpoolError as error:
            log.warning("not signed off", error=error.message)
            return False
        return True

    def _leave(self, context: WorkerContext, heartbeat: Heartbeat, hanging: bool) -> None:
        """Exit with 1, so that the service manager restarts this process. A hanging thread ends only with the
        process, so the others hand their jobs back first."""
        self._exit_code = 1
        if not hanging:
            os.kill(os.getpid(), signal.SIGTERM)
            return
        deadline = clock.monotonic() + self._settings.lease_seconds
        while context.job_gate.taken > len(context.health.hanging) and clock.monotonic() < deadline:
            clock.sleep(0.1)
        heartbeat.stop()  # its next beat would report that the worker is alive
        context.wasted.write()
        self._sign_off(context)
        self._engine.close()
        shutil.rmtree(self._temporary, ignore_errors=True)
        os._exit(1)

    def _catch_signals(self) -> None:
        for number in DRAIN_SIGNALS:
            signal.signal(number, self._drain)

    def _drain(self, number: int, _frame: FrameType | None) -> None:
        if self._draining.is_set() and number == signal.SIGINT:
            os._exit(128 + number)  # second SIGINT; the engine child ends with us
        self._draining.set()
        celery.worker.state.should_stop = self._exit_code  # as Celery's own handlers do


def _remove_leftovers(folder: Path) -> None:
    """Remove the temporary folders of killed workers of this machine."""
    for leftover in folder.glob("worker-*"):
        pid = leftover.name.partition("-")[2]
        if pid.isdigit() and not _alive(int(pid)):
            shutil.rmtree(leftover, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
