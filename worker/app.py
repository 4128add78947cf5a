"""The worker's process: one engine child, Celery's thread pool for hints, and the background threads.

`Worker.run` shows the order of start and stop, top to bottom. `QueueIntake` pauses and resumes Celery's
consumption while the worker is unwell or outside its hours. This process never imports MLX, and jobs are left
to `worker.jobs`. SIGTERM (as well as SIGINT, SIGQUIT and SIGHUP) drains: nothing new is claimed, running jobs
go back to the queue at their next saved chunk, and the process exits with 0. A second SIGINT exits at once;
the leases then expire.
"""

import contextlib
import gc
import os
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import celery.signals
import celery.worker.state
import structlog
from celery import Celery
from celery.apps.worker import Worker as CeleryWorker
from celery.exceptions import SecurityWarning

import spool
from spool.background.sweeper import Sweeper
from spool.broker.celery_app import TASK, celery_app
from spool.catalogue import loadable_models
from spool.errors import SpoolError
from spool.ids import new_id
from spool.objects import object_store
from spool.settings import Settings
from spool.store.database import Database
from spool.store.system import keep_first_default
from spool.store.workers import WorkerInfo, register_worker, stop_worker
from spool.tracing import start_traces
from worker.engine.client import Engine
from worker.engine.memory_budget import engine_options
from worker.engine.protocol import DEFAULT_LOADER
from worker.jobs.live.intake import LiveIntake, live_desk
from worker.jobs.retry import RetryPolicy, retry_storage
from worker.jobs.runner import JobServices, run_next
from worker.machine.hardware import backend_of, refuse_wrong_pool, this_machine
from worker.service import hint_transport
from worker.service.affinity import ModelAffinity
from worker.service.announcement import Announcement
from worker.service.celery_status import CeleryStatus
from worker.service.context import WorkerContext
from worker.service.heartbeat import Heartbeat
from worker.service.quality import measured_paths
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
        self._draining = threading.Event()
        self._exit_code = 0
        self._temporary = settings.home / "tmp" / f"worker-{os.getpid()}"
        self._db = Database(
            settings.database_url, pool_size=2 * settings.concurrency + 4, statement_seconds=10
        )
        hint_transport.install()
        self._celery = celery_app(settings)
        measured = measured_paths(settings.home, settings.models, settings.min_qoi)
        self._engine = Engine(replace(engine_options(settings, loader), measured=measured))
        self._info = WorkerInfo(
            id=new_id("wrk"),
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
            pinned=tuple(sorted(settings.pinned_models)),
            backend=backend_of(settings.device, hardware),
            facts=self._announcement.facts(),
        )
        self._intake = QueueIntake(self._info.offer.queues)

    def run(self) -> int:
        """Work until a stop signal; returns the exit code. Raises StorageError or EngineStopped if it cannot
        start."""
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
            context = WorkerContext(
                self._settings,
                self._db,
                self._engine,
                WastedTime(self._db),
                self._info.id,
                self._draining,
                off=OffHours(self._settings.work_hours),
                affinity=ModelAffinity(self._settings.model_stay_seconds),
                machine=self._info.offer.machine,
                announcement=self._announcement,
            )
            self._announcement.start()
            stop.callback(lambda: self._sign_off(context))
            stop.callback(context.wasted.write)
            heartbeat = Heartbeat(context, self._info)
            heartbeat.start()
            stop.callback(heartbeat.stop)
            supervisor = Supervisor(
                context, self._intake, lambda hanging: self._leave(context, heartbeat, hanging)
            )
            supervisor.keep_hours()
            supervisor.start()
            stop.callback(supervisor.stop)
            sweeper = Sweeper(self._db, self._celery, self._settings)
            sweeper.start()
            stop.callback(sweeper.stop)
            return self._consume(context, sweeper)

    def _consume(self, context: WorkerContext, sweeper: Sweeper) -> int:
        objects = object_store(self._settings)
        settings = self._settings
        status = CeleryStatus(events=settings.celery_events or settings.celery_remote_control)
        sources = Sources(settings, objects, self._temporary)
        desk = live_desk(settings, self._engine)
        services = JobServices(context, objects, sources, self._retry, desk, status.claimed, sweeper.wake)

        def transcribe(task: object, job_id: str) -> None:
            hinted: str | None = job_id
            status.begin(task)
            # Continue without a message while there is work: jobs held by a quota have used up theirs.
            while run_next(services, hinted) is not None:
                hinted = None

        self._celery.task(name=TASK, bind=True, ignore_result=True)(transcribe)
        # Celery warns root of pickled messages; ours are JSON.
        warnings.filterwarnings("ignore", category=SecurityWarning)
        celery.signals.worker_ready.connect(self._on_ready, weak=False)
        celery.signals.setup_logging.connect(_keep_our_logs, weak=False)
        consumer = _Consumer(
            app=self._celery,
            hostname=f"{self._settings.worker_name}-{os.getpid()}@{self._info.host}",
            pool_cls="threads",
            concurrency=self._settings.concurrency,
            queues=self._intake.queues,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            quiet=True,
        )
        intake = LiveIntake(services, desk)
        intake.start()
        gc.collect()
        gc.freeze()  # no full collection goes through all modules again: 0.1 s in which no thread runs
        if not self._draining.is_set():
            consumer.start()
        self._draining.set()
        intake.stop()
        return int(self._exit_code or consumer.exitcode or 0)

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
        with self._db.begin() as tx:
            register_worker(tx, self._info)
            if "default_model" in self._settings.model_fields_set:
                keep_first_default(tx, self._settings.default_model)
            self._catch_signals()  # once registered, the worker may be told to stop

    def _sign_off(self, context: WorkerContext) -> None:
        engine = self._engine
        try:
            with self._db.begin() as tx:
                stop_worker(
                    tx, self._info.id, engine.busy_ns, engine.unbilled_ns, context.counters.counts(engine)
                )
        except SpoolError as error:
            log.warning("not signed off", error=error.message)

    def _leave(self, context: WorkerContext, heartbeat: Heartbeat, hanging: bool) -> None:
        """Exit with 1, so that the service manager restarts this process. A hanging thread ends only with the
        process, so the others hand their jobs back first."""
        self._exit_code = 1
        if not hanging:
            os.kill(os.getpid(), signal.SIGTERM)
            return
        deadline = time.monotonic() + self._settings.lease_seconds
        while context.job_gate.taken > len(context.health.hanging) and time.monotonic() < deadline:
            time.sleep(0.1)
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
        celery.worker.state.should_stop = 0


class _Consumer(CeleryWorker):  # type: ignore[misc]
    """Celery's worker without its signal handlers: on SIGQUIT it loses jobs, on SIGHUP it starts a second
    process."""

    app: Celery

    def install_platform_tweaks(self, worker: object) -> None:
        """Install no signal handlers."""


def _keep_our_logs(**_: object) -> None:
    """Do nothing: a receiver of this signal keeps Celery from configuring logging."""


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


class QueueIntake:
    """Pauses and resumes the consumption of `queues`, to which more can be added. Thread-safe."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = list(queues)
        self._lock = threading.Lock()
        self._consumer: Any = None
        self._paused = False

    def attach(self, consumer: Any) -> None:  # noqa: ANN401 - Celery has no types
        """Set Celery's consumer; called each time it is ready."""
        with self._lock:
            self._consumer = consumer
            self._call_consumer("cancel_task_queue" if self._paused else "add_task_queue")

    @property
    def queues(self) -> list[str]:
        """The queues that are consumed, or will be once it resumes."""
        with self._lock:
            return list(self._queues)

    def serve(self, queues: Iterable[str]) -> None:
        """Also consume these queues."""
        with self._lock:
            new = [queue for queue in queues if queue not in self._queues]
            self._queues += new
            if not self._paused:
                self._call_consumer("add_task_queue", new)

    def pause(self) -> None:
        """Stop taking messages; one already on its way may still arrive."""
        with self._lock:
            if not self._paused:
                self._paused = True
                self._call_consumer("cancel_task_queue")

    def resume(self) -> None:
        """Take messages again."""
        with self._lock:
            if self._paused:
                self._paused = False
                self._call_consumer("add_task_queue")

    def _call_consumer(self, operation: str, queues: Sequence[str] | None = None) -> None:
        consumer = self._consumer
        if consumer is None:
            return  # `attach` repeats this once the consumer is ready
        for queue in self._queues if queues is None else queues:
            # The consumer may only be changed from its own thread.
            consumer.call_soon(getattr(consumer, operation), queue)
