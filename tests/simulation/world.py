"""One run: a fleet, its load and its faults, until everything has ended, and what an audit says then."""

import gc
import os
import random
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import structlog

import migrations
from spool.audit.runner import audit
from spool.domain.events import JOB_ENDS
from spool.settings.secret_key import SecretBox
from spool.store.database import Database
from spool.store.webhooks import create_webhook
from spool.tables.webhooks import NewWebhook
from tests.simulation.broker import Broker
from tests.simulation.database import DATABASES, DatabaseFaults, SimulatedDatabase
from tests.simulation.engine import SimulatedChild
from tests.simulation.exports import Bucket, Folder, check_exports
from tests.simulation.faults import Edges, FaultInjector
from tests.simulation.fleet import Fleet
from tests.simulation.history import History
from tests.simulation.load import Load, fill_share
from tests.simulation.nights import Nights
from tests.simulation.objects import Objects, SimulatedStore
from tests.simulation.postgresql import PostgresDatabase
from tests.simulation.product import OlderProduct, Product, find_tree
from tests.simulation.quotas import BY_DAY, Limits
from tests.simulation.scheduler import NS, Process, Scheduler, Stalled
from tests.simulation.shares import PROJECTS, WEIGHTS
from tests.simulation.sqlite import SqliteDatabase
from tests.simulation.stragglers import Stragglers
from tests.simulation.timeline import Timeline
from tests.simulation.triggers import make_script
from tests.simulation.uploads import Uploads
from tests.simulation.watching import BUCKET as WATCHED_BUCKET
from tests.simulation.watching import WatchedBucket, WatchedFolder
from worker.engine.audio_slots import SlotLayout
from worker.engine.protocol import EngineOptions

SETTLE_S = 4 * 3600.0
"""Within this time of the last fault everything has ended: a job that met outages waits up to ten minutes
between its attempts."""
WATCHED, UPLOADED = 0.12, 0.15
"""For each job that is submitted, how many files come into the watched folder and as many into the watched
bucket, and how many are uploaded in parts."""
PART_BYTES = 1 << 16
LOOK_S = 10.0
"""How often exporters and watchers look, so that a run has less to do."""
AFTER_S = 300.0
"""After the last ending: until webhooks are delivered and charges written."""


@dataclass(frozen=True)
class Plan:
    """How much of what: `hours` are worker-hours."""

    seed: int
    hours: float
    workers: int = 4
    apis: int = 2
    jobs_an_hour: float = 20.0
    faults_an_hour: float = 20.0
    database: str = DATABASES[0]
    older: str | None = None
    """The commit or folder of an older version, which half of the workers run."""
    stop_at_first: bool = False
    """End at the first violation."""

    def jobs_of(self, project: str) -> float:
        """How many jobs are expected of this project."""
        return self.jobs_an_hour * self.hours / self.workers * WEIGHTS[project] / sum(WEIGHTS.values())


@dataclass(frozen=True)
class Ending:
    """What a run came to."""

    plan: Plan
    jobs: int
    faults: int
    timeline: Timeline
    virtual_hours: float

    def __str__(self) -> str:
        """The line that ends a run."""
        return (
            f"seed {self.plan.seed}: {self.plan.hours:g} hours, {self.jobs} jobs, {self.faults} faults, "
            f"{len(self.timeline.violations)} violations, digest {self.timeline.digest}"
        )


class World:
    """A run of the simulation, in an empty folder."""

    def __init__(self, plan: Plan, folder: Path, show: Callable[[str], None] | None = None) -> None:
        self._plan = plan
        self._scheduler = Scheduler(plan.seed, lambda text: self.timeline.violate("no thread dies", text))
        self.timeline = Timeline(lambda: self._scheduler.now_ns / NS, show=show)
        faults = DatabaseFaults()
        self._database = make_database(plan.database, self._scheduler, faults, folder)
        self._edges = Edges(
            self._database,
            faults,
            Broker(self._scheduler),
            objects=Objects(self._scheduler),
            exported=Objects(self._scheduler),
            filed=Objects(self._scheduler),
            watched=Objects(self._scheduler),
        )
        limits = Limits.of_run(plan.hours / plan.workers, plan.jobs_of(BY_DAY))
        older = None if plan.older is None else OlderProduct(find_tree(plan.older, folder / "older"))
        self._fleet = Fleet(
            self._scheduler,
            self.timeline,
            self._edges.broker,
            self._edges.objects,
            folder,
            self._database.url,
            limits,
            older,
        )
        fill_share(self._fleet.share)
        self._bucket = Bucket(self._edges.exported)
        self._folder = Folder(self._edges.filed, self._fleet.exported, self.timeline.violate)
        self._observer = self._database.observe()
        migrations.upgrade(self._database.url)
        self._observer.run_script(make_script(self._database.dialect))
        self._database.finish_setup()
        self._history = History(self._observer, self._scheduler, self.timeline, self._fleet.processes, limits)
        self._nights = Nights(
            self._fleet, self._database, self._observer, self.timeline, plan.workers + plan.apis
        )
        self._injector = FaultInjector(
            self._fleet, self._edges, self._history, self.timeline, plan.faults_an_hour
        )
        watched = plan.jobs_an_hour * WATCHED
        self._watched = (
            WatchedFolder(self._fleet, self.timeline, watched),
            WatchedBucket(self._fleet, self._edges.watched, self.timeline, watched),
        )
        self._uploads = Uploads(self._fleet, self._edges.objects, self.timeline, plan.jobs_an_hour * UPLOADED)
        self._connect()
        self._over = False

    def _connect(self) -> None:
        """Tell the history what it has to know."""
        history, edges = self._history, self._edges
        edges.database_faults.committed = history.collect
        edges.database_faults.broke = self.timeline.violate
        edges.database_faults.noted = self.timeline.note
        edges.engines.heard = self._note_heard
        self._fleet.receive = self._receive
        history.excuses = self._watched[1].excuses
        history.fleet_is_calm = lambda: not edges.database_faults.down

    def _note_heard(self, job: str, mark: str) -> None:
        job_id, _, attempt = job.partition("/")
        parts = mark.split("/")
        if len(parts) > 3:  # the engine knows the recording's bytes
            self._history.note_decoded(job_id, int(attempt), int(parts[3]))

    def _receive(self, body: str) -> int:
        if not self._fleet.calm and self._scheduler.random.random() < 0.1:
            return 500
        self._history.receive(body)
        return 200

    def run(self) -> Ending:
        """Run to the end."""
        with self._installed():
            self._scheduler.spawn(self._fleet.outside, "main", self._main)
            try:
                self._scheduler.run(self._has_ended)
            except Stalled as error:
                self.timeline.violate("nothing spins", str(error))
        hours = self._scheduler.now_ns / NS / 3600
        return Ending(self._plan, len(self._history.submitted), self._injector.count, self.timeline, hours)

    def close(self) -> None:
        """The run is over."""
        self._database.close()

    def _has_ended(self) -> bool:
        return self._over or (self._plan.stop_at_first and bool(self.timeline.violations))

    def _main(self) -> None:
        database = Database(self._database.url)
        for project in PROJECTS:
            new = NewWebhook(project=project, url="https://example.org/", types=tuple(sorted(JOB_ENDS)))
            with database.begin() as tx:
                create_webhook(tx, new, SecretBox(("s" * 32,)))
        plan, fleet = self._plan, self._fleet
        names = [f"api{number + 1}" for number in range(plan.apis)]
        for name in names + [f"w{number + 1}" for number in range(plan.workers)]:
            fleet.start(name)
        load = Load(fleet, self._history, self.timeline, fleet.share, plan.jobs_an_hour)
        self._injector.cancel = load.cancel
        self._scheduler.spawn(fleet.outside, "load", load.run)
        self._scheduler.spawn(fleet.outside, "changes", load.change)
        for watched in self._watched:
            watched.watch(database)
            self._scheduler.spawn(fleet.outside, "watched", watched.run)
        self._scheduler.spawn(fleet.outside, "uploads", self._uploads.run)
        self._scheduler.spawn(fleet.outside, "faults", self._injector.run)
        self._scheduler.sleep(plan.hours / plan.workers * 3600)
        fleet.calm = True
        self.timeline.note("no more jobs and no more faults")
        self._settle()
        Stragglers(fleet, load, self._history, self._injector, self.timeline).run()
        self._check()
        self._audit(database)
        self._over = True

    def _settle(self) -> None:
        """Wait until everything has ended."""
        history, end = self._history, self._scheduler.now_ns + round(SETTLE_S * NS)
        while not self._has_settled() and self._scheduler.now_ns < end:
            self._scheduler.sleep(30)
            if self._is_taken_in() and self._nights.pass_if_held():
                end = self._scheduler.now_ns + round(SETTLE_S * NS)
        for job in history.submitted:
            if job not in history.ended:
                name = history.expected[job].name
                self.timeline.violate("nothing waits", f"{name} has not ended {SETTLE_S / 3600:g} h later")

    def _check(self) -> None:
        """What has to hold once everything is over."""
        history = self._history
        self._scheduler.sleep(AFTER_S)
        self._fleet.close()
        history.check_webhooks()
        history.check_quotas()
        for watched in self._watched:
            watched.check(self._observer)
        self._uploads.check(self._observer)
        there = self._bucket.read() | self._folder.read()
        check_exports(there, self._observer, self._scheduler, self.timeline)

    def _has_settled(self) -> bool:
        """Whether nobody waits for an answer, and every job has ended."""
        return self._is_taken_in() and len(self._history.ended) == len(self._history.submitted)

    def _is_taken_in(self) -> bool:
        """Whether all that was offered is a job."""
        return not self._uploads.going_on and all(each.is_taken(self._observer) for each in self._watched)

    def _audit(self, database: Database) -> None:
        report = audit(database, SimulatedStore(self._edges.objects), remove_orphans=True)
        for breach in report.breaches:
            self.timeline.violate(f"the audit's rule {breach.rule}", f"{breach.subject}: {breach.message}")
        self.timeline.note(f"audited: {report.jobs} jobs, {report.chunks} chunks, {report.lines} cost lines")

    @contextmanager
    def _installed(self) -> Iterator[None]:
        """Put the simulated edges in the places of the real ones."""
        versions = [self._fleet.present, *([] if self._fleet.older is None else [self._fleet.older])]
        for product in versions:
            self._install_into(product)
        self._replace(
            self._fleet.present,
            {
                ("spool.objects.outputs", "write_object"): self._bucket.write,
                ("spool.objects.outputs", "write_whole"): self._folder.write,
                ("api.submission.connections", "s3_store"): partial(self._open_bucket, self._fleet.present),
                ("spool.background.exporter", "LOOK_S"): LOOK_S,
                ("api.watching.watcher", "LOOK_S"): LOOK_S,
                ("api.submission.direct", "PART_BYTES"): PART_BYTES,
            },
        )
        random.seed(self._plan.seed)
        entropy = random.Random(self._plan.seed)
        os.urandom = entropy.randbytes
        uuid.uuid4 = lambda: uuid.UUID(bytes=entropy.randbytes(16))
        try:
            yield
        finally:
            for product in versions:
                product.module("spool.clock").install(None)
                product.module("spool.failpoints").install(None)

    def _open_bucket(
        self, product: Product, _settings: object, bucket: str, prefix: str = "", *, link: object = None
    ) -> SimulatedStore:
        """In place of `spool.objects.s3_store`."""
        assert (bucket, prefix, link) == (WATCHED_BUCKET, "", None), bucket
        return SimulatedStore(self._edges.watched, product)

    def _install_into(self, product: Product) -> None:
        scheduler, edges = self._scheduler, self._edges
        slots, lease = product.module("worker.engine.audio_slots"), product.module("worker.jobs.lease")

        def make_child(layout: SlotLayout, _: EngineOptions) -> SimulatedChild:
            return SimulatedChild(scheduler, edges.engines, slots.AudioView(layout).read)

        product.module("spool.clock").install(scheduler)
        product.module("spool.failpoints").install(self._injector.pass_failpoint)
        replaced: dict[tuple[str, str], object] = {
            ("spool.store.database", "create_engine"): edges.database.create_engine,
            ("worker.engine.client", "EngineProcess"): make_child,
            ("worker.service.announcement", "hash_of"): cache(
                product.module("spool.catalogue.packages").hash_of
            ),
            ("worker.app", "object_store"): lambda _: SimulatedStore(edges.objects, product),
            ("worker.app", "LiveIntake"): _NoLiveSessions,
            ("worker.jobs.reuse", "s3_store"): partial(self._open_bucket, product),
            ("worker.sources.fetch", "s3_store"): partial(self._open_bucket, product),
            ("worker.app", "DRAIN_SIGNALS"): (),  # they are for the process that all are in
            ("worker.jobs.lease", "_STARTS"): _LeaseStarts(scheduler, lease._Starts),
            ("spool.background.outbox_relay", "queue_depth"): edges.broker.queue_depth,
            ("spool.background.outbox_relay", "send_hints"): edges.broker.send_hints,
            ("spool.background.sweeper", "queue_depth"): edges.broker.queue_depth,
        }
        self._replace(product, replaced)

    @staticmethod
    def _replace(product: Product, replaced: Mapping[tuple[str, str], object]) -> None:
        for (module, name), value in replaced.items():
            vars(product.module(module))[name] = value


class _LeaseStarts:
    """The thread that starts those of leases, one in each process."""

    def __init__(self, scheduler: Scheduler, make: Callable[[], Any]) -> None:
        self._scheduler, self._make = scheduler, make
        self._own: dict[Process, Any] = {}

    def add(self, at: float, lease: object) -> None:
        process = self._scheduler.current().process
        if process not in self._own:
            self._own[process] = self._make()
        self._own[process].add(at, lease)


class _NoLiveSessions:
    """Live sessions are not simulated."""

    def __init__(self, *_: object) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


def make_database(name: str, scheduler: Scheduler, faults: DatabaseFaults, folder: Path) -> SimulatedDatabase:
    """The database of this name, for a run in this folder."""
    if name == SqliteDatabase.dialect:
        return SqliteDatabase(scheduler, faults, folder)
    return PostgresDatabase(scheduler, faults)


def run(plan: Plan, show: Callable[[str], None] | None = None) -> Ending:
    """Run in a folder of its own, in memory where the machine has one there."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="spool-simulation-", dir=memory if memory.is_dir() else None))
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    world = None
    gc.freeze()  # a full collection would look through all modules each time
    gc.set_threshold(50_000, 20, 20)
    try:
        world = World(plan, folder, show)
        return world.run()
    finally:
        if world is not None:
            world.close()
        shutil.rmtree(folder, ignore_errors=True)
