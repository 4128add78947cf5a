"""The processes of a simulation: workers and APIs, each the product's own objects in threads of their own."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from api.delivery.webhook_dispatcher import Answer, WebhookDispatcher
from api.fleet_view import FleetView
from api.watching.watcher import SourceWatcher
from spool import clock
from spool.background.content_deleter import ContentDeleter
from spool.background.event_sequencer import EventSequencer
from spool.background.exporter import Exporter
from spool.background.sweeper import Sweeper
from spool.background.thread import BackgroundLoop
from spool.objects import ObjectStore
from spool.settings import Settings
from spool.settings.secret_key import SecretBox
from spool.store.database import Database
from tests.simulation.broker import Broker
from tests.simulation.exports import BUCKET
from tests.simulation.objects import Objects, SimulatedStore
from tests.simulation.product import Product
from tests.simulation.quotas import PRICE_PER_HOUR, Limits
from tests.simulation.scheduler import NS, Process, Scheduler
from tests.simulation.shares import IN_FLIGHT, SHARES
from tests.simulation.timeline import Timeline
from worker.jobs.services import JobServices

LOOK_S = 5.0
WEBHOOKS_S = 60.0
DRAIN_S = 60.0
RESTART_S = 20.0
"""The longest time until a process that has ended is started again."""


class Consumer:
    """Celery's part of a worker: takes messages while a thread is free, and runs the task for each."""

    def __init__(
        self, scheduler: Scheduler, broker: Broker, services: JobServices, threads: int, product: Product
    ) -> None:
        self._scheduler, self._broker, self._services, self._threads = scheduler, broker, services, threads
        self._run_next = product.module("worker.jobs.runner").run_next
        self._queues: list[str] = []
        self._running: list[clock.Thread] = []
        self._numbers = 0

    def call_soon(self, change: Callable[[str], None], queue: str) -> None:
        change(queue)

    def add_task_queue(self, queue: str) -> None:
        if queue not in self._queues:
            self._queues.append(queue)

    def cancel_task_queue(self, queue: str) -> None:
        if queue in self._queues:
            self._queues.remove(queue)

    def run(self, draining: clock.Event) -> None:
        """Take messages until the worker drains, and wait for the tasks."""
        while not draining.is_set():
            self._running = [each for each in self._running if each.is_alive()]
            job_id = self._broker.take(self._queues) if len(self._running) < self._threads else None
            if job_id is None:
                self._scheduler.wait(self._broker, lambda: False, LOOK_S)
                continue
            self._numbers += 1
            thread = clock.Thread(target=self._transcribe, args=(job_id,), name=f"task-{self._numbers}")
            thread.start()
            self._running.append(thread)
        for thread in self._running:
            thread.join()

    def _transcribe(self, job_id: str) -> None:
        hinted: str | None = job_id
        while self._run_next(self._services, hinted) is not None:
            hinted = None


def make_worker(product: Product, settings: Settings, leave: Callable[[], None]) -> Any:
    """A worker of this version in a simulated process: nothing catches signals, and leaving is a death."""
    made = product.module("worker.app").Worker(settings)
    made._catch_signals = lambda: None
    made._leave = lambda *_: leave()
    return made


@dataclass
class RunningWorker:
    """A worker process, from start to end."""

    process: Process
    worker: Any

    def main(self, scheduler: Scheduler, broker: Broker, timeline: Timeline) -> None:
        """What the process does."""
        services = self.worker.start(None)  # the broker's functions are simulated
        settings = services.context.settings
        consumer = Consumer(scheduler, broker, services, settings.concurrency, self.process.product)
        self.worker.intake.attach(consumer)
        consumer.run(self.worker._draining)
        # A job on its last chance would wait for one that is counted and has ended.
        if counted := services.context.job_gate.taken:
            what = f"{self.process.name} runs nothing and counts {counted} jobs"
            timeline.violate("a worker counts what it runs", what)
        self.worker.stop()


class Webhooks(BackgroundLoop):
    """Numbers events and delivers webhooks, as an API's two threads do; the receiver answers at once."""

    def __init__(self, database: Database, settings: Settings, receive: Callable[[str], int]) -> None:
        super().__init__("webhooks")
        self._sequencer = EventSequencer(database, settings.event_days, lambda: None)
        self._dispatcher = WebhookDispatcher(database, settings, SecretBox(("s" * 32,)))
        self._receive = receive

    def run_once(self) -> float:
        self._sequencer.run_once(lambda: self.stopping)
        for taken in self._dispatcher._take(Counter()):
            status = self._receive(taken.delivery.body)
            self._dispatcher._note(taken, Answer(status, None if status == 200 else "refused"), 5)
        return WEBHOOKS_S


@dataclass
class RunningApi:
    """An API process: its background threads, and the `services` of its routes. Requests are made by
    `tests.simulation.load` and `tests.simulation.uploads`."""

    process: Process
    settings: Settings
    objects: ObjectStore
    receive: Callable[[str], int]
    database: Database = field(init=False)
    sweeper: Sweeper = field(init=False)
    services: Any = field(init=False)
    loops: Sequence[BackgroundLoop] = field(init=False)

    def start(self) -> None:
        """Start the threads."""
        self.database = Database(self.settings.database_url)
        self.sweeper = Sweeper(self.database, None, self.settings)
        deleter = ContentDeleter(self.database, self.objects, self.settings)
        box = SecretBox(("s" * 32,))
        self.services = SimpleNamespace(
            settings=self.settings,
            database=self.database,
            objects=self.objects,
            sweeper=self.sweeper,
            fleet=FleetView(self.database, self.settings),
            secret_box=box,
            manifest_turn=clock.Lock(),
        )
        self.loops = [
            self.sweeper,
            deleter,
            Webhooks(self.database, self.settings, self.receive),
            Exporter(self.database, self.objects, self.settings, box),
            SourceWatcher(self.services),
        ]
        for loop in self.loops:
            loop.start()


class Fleet:
    """Starts processes, and starts again what has ended, as launchd or systemd would. `calm`: no more faults
    and no more load; `older`: a version that half of the workers run."""

    def __init__(
        self,
        scheduler: Scheduler,
        timeline: Timeline,
        broker: Broker,
        objects: Objects,
        folder: Path,
        database_url: str,
        limits: Limits,
        older: Product | None = None,
    ) -> None:
        self.database_url = database_url
        self.present, self.older, self._limits = Product(), older, limits
        self.scheduler, self._timeline = scheduler, timeline
        self._broker, self._objects, self._folder = broker, objects, folder
        self.outside = Process("world")
        self.calm = self.closing = False
        self.share, self.exported = folder / "share", folder / "exported"
        self.workers: dict[str, RunningWorker] = {}
        self.apis: dict[str, RunningApi] = {}
        self.processes: dict[str, Process] = {}
        """Every worker process there ever was, by its worker's id."""
        self.receive: Callable[[str], int] = lambda _: 200
        self._starts: Counter[str] = Counter()

    def choose_worker(self) -> RunningWorker | None:
        """One of those that run."""
        return self.workers[self.scheduler.random.choice(sorted(self.workers))] if self.workers else None

    def choose_api(self) -> RunningApi | None:
        """One of those that run."""
        return self.apis[self.scheduler.random.choice(sorted(self.apis))] if self.apis else None

    def start(self, name: str) -> None:
        """Start a process of this name: `api1`, `w2`."""
        self._starts[name] += 1
        skew = round(self.scheduler.random.uniform(-2, 2) * NS)
        product, version = self._choose_product(name)
        process = Process(f"{name}.{self._starts[name]}", skew, product)
        self._timeline.note(f"{process.name} starts{version}")
        run = self._run_api if name.startswith("api") else self._run_worker
        self.scheduler.spawn(process, "main", partial(run, name, process))

    def _choose_product(self, name: str) -> tuple[Product, str]:
        """The present version, or for half of the workers' starts the older one; and how that is said."""
        if self.older is None or name.startswith("api") or self.scheduler.random.random() < 0.5:
            return self.present, ""
        return self.older, ", of the older version"

    def kill(self, process: Process) -> None:
        """Kill the process; it is started again. Does not return to a thread of it."""
        if process.dead:
            return
        process.killed = True
        self._timeline.note(f"{process.name} killed")
        self._start_again(process)
        self.scheduler.kill(process)

    def drain(self, running: RunningWorker) -> None:
        """Ask a worker to end."""
        self._timeline.note(f"{running.process.name} drains")
        running.process.draining_since_ns = self.scheduler.now_ns
        self.workers.pop(running.process.name.partition(".")[0], None)
        running.worker.drain()

    def close(self) -> None:
        """Drain all workers, and wait until they have ended: an audit compares what they did and billed."""
        self.closing = True
        for running in list(self.workers.values()):
            self.drain(running)
        self.scheduler.sleep(DRAIN_S)

    def settings(self, name: str, product: Product) -> Settings:
        """The settings of a process of this version."""
        settings: Settings = product.module("spool.settings").Settings(
            home=self._folder / name,
            database_url=self.database_url,
            models={"simulated": "simulated"},
            worker_name=name,
            source_roots=(self.share,),
            output_prefixes=(BUCKET, f"{self.exported.as_uri()}/"),
            s3_public_endpoint_url="https://objects.example.org",
            concurrency=3,
            shares=dict(SHARES),
            quotas={
                **{project: {"jobs_in_flight": most} for project, most in IN_FLIGHT.items()},
                **self._limits.settings,
            },
            price_per_hour=PRICE_PER_HOUR,
            engine_slots=6,
            heartbeat_seconds=10.0,
            sweep_seconds=60.0,
            yield_seconds=60.0,
            disk_floor_bytes=0,
            language_check=False,
            compute_type="float32",  # an idle worker would start a process that measures its models
            min_qoi=0,
        )
        return settings

    def _run_worker(self, name: str, process: Process) -> None:
        try:
            settings = self.settings(name, process.product)
            made = make_worker(process.product, settings, partial(self.kill, process))
            process.ends.append(made._engine._slots._memory.unlink)  # as the operating system does
            self.processes[made.info.id] = process
            self.workers[name] = RunningWorker(process, made)
            self.workers[name].main(self.scheduler, self._broker, self._timeline)
        except process.product.errors.SpoolError as error:
            self._timeline.note(f"{process.name} did not start: {error.message}")
        else:
            self._timeline.note(f"{process.name} has ended")
        process.ends.clear()
        process.dead = True
        self._start_again(process)

    def _run_api(self, name: str, process: Process) -> None:
        api = RunningApi(
            process,
            self.settings(name, process.product),
            SimulatedStore(self._objects),
            lambda it: self.receive(it),
        )
        api.start()
        self.apis[name] = api

    def _start_again(self, process: Process) -> None:
        name = process.name.partition(".")[0]
        for running in (self.workers, self.apis):
            if name in running and running[name].process is process:
                del running[name]

        if self.closing:
            return

        def later() -> None:
            self.scheduler.sleep(self.scheduler.random.uniform(1, RESTART_S))
            self.start(name)

        self.scheduler.spawn(self.outside, f"start {name}", later)
