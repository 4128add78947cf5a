"""A worker of a simulated fleet: the real job code on a chip that only sleeps.

Real: the broker's messages, claims, leases and their threads, heartbeats, the relay and the sweep, saved
chunks, the ledger, the audio reader and chunk plan, a pool of connections of its own, as `worker.app` puts
them together. Simulated: the engine (a batch takes its latency and its audio over the chip's RTFx), the
object store (keeps nothing), and Celery's consumer (a thread a job in flight pops the same messages).
"""

import base64
import json
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import redis
from numpy.typing import NDArray

from spool import clock
from spool.background.sweeper import Sweeper
from spool.broker.celery_app import celery_app
from spool.domain.recognition import Hypothesis, Recognition
from spool.domain.transcript import Word
from spool.errors import EngineStopped
from spool.ids import new_id
from spool.objects import ObjectStore
from spool.objects.base import NewObject, ObjectInfo
from spool.settings import Settings
from spool.store.database import Database
from spool.store.workers import register_worker, stop_worker
from spool.tables.workers import WorkerInfo
from worker.engine.client import Engine
from worker.engine.pending import EngineStats
from worker.engine.protocol import SAMPLE_RATE
from worker.engine.scheduler import split_exactly
from worker.jobs.runner import run_next
from worker.jobs.services import JobServices
from worker.models.base import ModelInfo
from worker.service.context import WorkerContext
from worker.service.heartbeat import Heartbeat
from worker.service.wasted_time import WastedTime
from worker.sources.fetch import Sources

MODEL = ModelInfo(name="chip", sha256="0" * 64, heads=("tdt",))
POP_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Chip:
    """Seconds of audio a second, seconds that a batch costs besides, and utterances in a batch."""

    rtfx: float = 20.0
    latency: float = 0.02
    batch: int = 8


class ChipEngine:
    """What a job asks of an engine, answered after the time that the chip would take."""

    def __init__(self, chip: Chip, slots: int) -> None:
        self._chip = chip
        self._waiting: deque[tuple[str, int, Future[Recognition]]] = deque()
        self._arrived = threading.Condition()
        self._closed = False
        self.options = SimpleNamespace(slots=slots)
        self.busy_ns = self.unbilled_ns = 0
        self.loaded: tuple[str, ...] = ()
        self.stopped: str | None = None
        self.crowded = False
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def stats(self) -> EngineStats:
        """As the real one counts."""
        return replace(EngineStats(), busy_ns=self.busy_ns)

    def add_busy(self, ns: int) -> None:
        """Count time that a job is billed for beside its utterances."""
        self.busy_ns += ns

    def describe(self, _model: str) -> "Future[ModelInfo]":
        """Any model is there."""
        answer: Future[ModelInfo] = Future()
        answer.set_result(MODEL)
        return answer

    def prepare(self, model: str, *_asked: object) -> "Future[ModelInfo]":
        """Any search is ready."""
        return self.describe(model)

    def submit(self, job: str, samples: NDArray[Any], *_asked: object) -> "Future[Recognition]":
        """Let an utterance wait for its batch."""
        future: Future[Recognition] = Future()
        with self._arrived:
            self._waiting.append((job, len(samples), future))
            self._arrived.notify()
        return future

    def forget(self, job: str) -> None:
        """Take out what waits for the job."""
        with self._arrived:
            gone = [each for each in self._waiting if each[0] == job]
            self._waiting = deque(each for each in self._waiting if each[0] != job)
        for _, _, future in gone:
            future.set_exception(EngineStopped("forgotten"))

    def close(self) -> None:
        """End its thread."""
        with self._arrived:
            self._closed = True
            self._arrived.notify()

    def _run(self) -> None:
        while True:
            with self._arrived:
                while not self._waiting and not self._closed:
                    self._arrived.wait()
                if self._closed:
                    return
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._chip.batch))]
            began = time.monotonic_ns()
            audio = sum(samples for _, samples, _ in batch) / SAMPLE_RATE
            time.sleep(self._chip.latency + audio / self._chip.rtfx)
            busy = time.monotonic_ns() - began
            self.busy_ns += busy
            parts = split_exactly(busy, [1] * len(batch))
            for (_, samples, future), part in zip(batch, parts, strict=True):
                future.set_result(_heard(samples, part, len(batch)))


def _heard(samples: int, engine_ns: int, batch: int) -> Recognition:
    end = samples / SAMPLE_RATE
    word = Word(text="tone", start=0.0, end=end, confidence=1.0)
    best = Hypothesis((1,), -1.0, (0,), (1,), (1.0,))
    return Recognition(
        (best,),
        (word,),
        max(1, samples // 1280),
        makers=MODEL.makers,
        engine_ns=engine_ns,
        batch_size=batch,
    )


class NoObjects:
    """An object store that takes everything and keeps nothing."""

    def put_bytes(self, key: str, data: bytes, content_type: str = "") -> ObjectInfo:
        """Say that it was kept."""
        del content_type
        return ObjectInfo(key=key, size=len(data), etag="0", modified=datetime.now(UTC))

    def put_several(self, objects: Sequence[NewObject]) -> None:
        """Keep none of them."""

    def delete(self, key: str) -> None:
        """There is nothing."""


@dataclass
class FleetWorker:
    """One worker: `start` it, `stop` it."""

    settings: Settings
    chip: Chip

    @property
    def done(self) -> int:
        """How many jobs it finished."""
        return self._context.counters.counts(cast("Engine", self._engine)).attempts.get("done/", 0)

    def start(self) -> None:
        """Register, beat, sweep and take jobs."""
        settings = self.settings
        self._db = Database(settings.database_url, pool_size=2 * settings.concurrency + 4)
        self._app = celery_app(settings)
        self._stopping = clock.Event()
        self._engine = ChipEngine(self.chip, settings.engine_slots)
        self._info = self._described()
        with self._db.begin() as tx:
            register_worker(tx, self._info)
        self._context = WorkerContext(
            settings,
            self._db,
            cast("Engine", self._engine),
            WastedTime(self._db),
            self._info.id,
            clock.Event(),
        )
        objects = cast("ObjectStore", NoObjects())
        sources = Sources(settings, objects, settings.home / "tmp")
        self._services = JobServices(self._context, objects, sources)
        self._heartbeat = Heartbeat(self._context, self._info)
        self._sweeper = Sweeper(self._db, self._app, settings)
        self._threads = [
            threading.Thread(target=self._take, daemon=True) for _ in range(settings.concurrency)
        ]
        for thread in (self._heartbeat, self._sweeper, *self._threads):
            thread.start()

    def drain(self) -> None:
        """Take nothing more, and hand back what runs at its next chunk."""
        self._context.draining.set()
        self._stopping.set()

    def stop(self) -> None:
        """Hand back what runs, sign off, and leave no thread."""
        self.drain()
        for thread in self._threads:
            thread.join()
        self._heartbeat.stop()
        self._sweeper.stop()
        self._context.wasted.write()
        with self._db.begin() as tx:
            stop_worker(tx, self._info.id, self._engine.busy_ns, 0)
        self._engine.close()
        self._app.close()
        self._db.close()

    def _described(self) -> WorkerInfo:
        settings = self.settings
        return WorkerInfo(
            id=new_id("wrk"),
            name=settings.worker_name,
            pool=settings.pool,
            host="fleet",
            chip="asleep",
            version="fleet",
            pid=0,
            models=tuple(settings.models),
            price_per_hour_micros=settings.price_per_hour_micros(),
            concurrency=settings.concurrency,
        )

    def _take(self) -> None:
        """One job in flight after another, as a thread of Celery's pool would take them."""
        settings = self.settings
        queues = self._context.offer.queues
        with redis_client(settings.redis_url) as broker:
            while not self._stopping.is_set():
                message = broker.brpop(queues, timeout=POP_SECONDS)
                if message is not None:
                    self._work(_job_of(message[1]))

    def _work(self, hinted: str | None) -> None:
        """What the task in `worker.tasks` does."""
        while not self._stopping.is_set() and run_next(self._services, hinted) is not None:
            hinted = None
            self._sweeper.wake()


def _job_of(message: bytes) -> str:
    """The job that a message of Celery's names."""
    (job_id, *_), _, _ = json.loads(base64.b64decode(json.loads(message)["body"]))
    return str(job_id)


def redis_client(url: str) -> "redis.Redis":
    """A client of the embedded server or another."""
    if url.startswith("redis+socket://"):
        return redis.Redis(unix_socket_path=str(Path(url.removeprefix("redis+socket://"))))
    return redis.Redis.from_url(url)
