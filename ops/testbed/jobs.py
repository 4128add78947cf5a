"""A worker's inside without Celery, for tests of one job: a real engine process, SQLite and a folder."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray
from sqlalchemy import func, select

from ops.testbed.fake_models import LOADER, RATE
from ops.testbed.rows import registered
from ops.testbed.waiting import DEADLINE
from spool import clock
from spool.domain.jobs import Job, Source
from spool.domain.ledger import CostSums
from spool.domain.options import AskedOptions
from spool.domain.recognition import DecodedChunk
from spool.errors import JobCancelled
from spool.objects import FolderStore
from spool.settings import Settings
from spool.store.chunks import load_chunks
from spool.store.database import Database
from spool.store.jobs import NewJob, create_job, get_job
from spool.store.ledger.charges import job_cost
from spool.store.queue.leases import claim_job
from spool.tables import cost_lines, workers
from worker.engine.client import Engine
from worker.engine.protocol import EngineOptions
from worker.engine.scheduler import BatchLimits
from worker.jobs.retry import RetryPolicy
from worker.jobs.runner import run_claimed
from worker.jobs.services import JobServices
from worker.service.context import WorkerContext
from worker.service.wasted_time import WastedTime
from worker.sources.fetch import Sources

MOST_SAMPLES = 40 * RATE  # of an utterance
RETRY = RetryPolicy(attempts=3, first_pause=0.001, longest_pause=0.001)


@contextlib.contextmanager
def running_engine(
    slots: int = 4, utterances: int | None = None, loader: str = LOADER, padding: float = 0.5
) -> Iterator[Engine]:
    """An engine in a process of its own; utterances: how many a device batch may have."""
    limits = BatchLimits()
    if utterances is not None:
        limits = BatchLimits(utterances=utterances, samples=utterances * MOST_SAMPLES, padding=padding)
    options = EngineOptions(slots=slots, slot_samples=MOST_SAMPLES, limits=limits, loader=loader)
    with contextlib.closing(Engine(options).start()) as engine:
        yield engine


def taken_in(engine: Engine) -> None:
    """Wait until the engine's child holds all that was submitted so far: what came after it in the pipe is
    answered."""
    fence = engine.submit("fence", np.zeros(1600, np.float32), "plain")
    engine.forget("fence")
    with pytest.raises(JobCancelled):
        fence.result(DEADLINE)


def speechlike(seconds: float, level: float = 0.3) -> NDArray[np.float32]:
    """Bursts of a tone with pauses of half a second every four: cut into chunks of 20 to 30 s."""
    t = np.arange(int(seconds * RATE)) / RATE
    burst = (t % 4.0) < 3.5
    swell = 0.7 + 0.3 * np.sin(2 * np.pi * 3 * t)
    return (level * swell * burst * np.sin(2 * np.pi * 220 * t)).astype(np.float32)


def write_wav(path: Path, samples: NDArray[np.float32]) -> Path:
    """Float samples, so that what a test puts in is what the model hears."""
    soundfile.write(path, samples, RATE, subtype="FLOAT")
    return path


@dataclass
class WorkerHarness:
    """One worker over a database of its own."""

    settings: Settings
    db: Database
    engine: Engine
    folder: Path
    objects: FolderStore = field(init=False)
    worker_id: str = field(init=False)
    draining: clock.Event = field(default_factory=clock.Event)
    busy_before: int = field(init=False)
    utterances_before: int = field(init=False)

    def __post_init__(self) -> None:
        self.objects = FolderStore(self.folder / "objects")
        self.worker_id = registered(self.db)
        self.busy_before = self.engine.stats.busy_ns
        self.utterances_before = self.engine.stats.utterances
        context = WorkerContext(
            self.settings, self.db, self.engine, WastedTime(self.db), self.worker_id, self.draining
        )
        sources = Sources(self.settings, self.objects, self.folder / "tmp")
        self.services = JobServices(context, self.objects, sources, RETRY)

    def record(self, name: str, samples: NDArray[np.float32]) -> Path:
        return write_wav(self.folder / name, samples)

    def submit(self, path: Path, model: str = "plain", *, reuse: bool = False, **options: object) -> str:
        source = Source("file", path.as_uri(), path.stat().st_size if path.exists() else None)
        # The recordings are tones, in which no detector hears speech: off unless a test is about it.
        asked = AskedOptions.model_validate({"model": model, "speech_detector": False, **options})
        with self.db.begin() as tx:
            new = NewJob(
                source,
                asked.job_options(),
                path.name,
                phrases=asked.phrases,
                typescript=asked.typescript,
                reuse=reuse,
            )
            return create_job(tx, new)[0].id

    def run(self, job_id: str) -> str | None:
        """Run this job, whichever would be next."""
        with self.db.begin() as tx:
            claim = claim_job(tx, job_id, self.worker_id, self.settings.lease_seconds)
        return None if claim is None else run_claimed(self.services, claim)

    def start(self, job_id: str) -> "Running":
        return Running(self, job_id)

    def job(self, job_id: str) -> Job:
        with self.db.read() as tx:
            return get_job(tx, job_id)

    def read(self, key: str) -> bytes:
        with self.objects.open(key) as stream:
            return stream.read()

    def chunks(self, job_id: str) -> list[DecodedChunk]:
        with self.db.read() as tx:
            return load_chunks(tx, job_id)

    def cost(self, job_id: str) -> CostSums:
        with self.db.read() as tx:
            return job_cost(tx, job_id)

    @property
    def decoded(self) -> int:
        return self.engine.stats.utterances - self.utterances_before

    def assert_bills_equal_busy_time(self) -> int:
        """Law 5, to the nanosecond: ledger, worker's sum and the engine's own count agree."""
        with self.db.read() as tx:
            billed = tx.scalar(select(func.coalesce(func.sum(cost_lines.c.engine_ns), 0)))
            summed = tx.scalar(select(workers.c.busy_ns).where(workers.c.id == self.worker_id))
        busy = self.engine.stats.busy_ns - self.busy_before
        assert billed == summed == busy
        assert len(self.services.context.wasted) == 0
        return busy


class Running(threading.Thread):
    """A job in a thread of its own, as Celery would run it."""

    def __init__(self, harness: WorkerHarness, job_id: str) -> None:
        super().__init__(daemon=True)
        self._harness = harness
        self._job_id = job_id
        self.ending: str | None = None
        self.start()

    def run(self) -> None:
        self.ending = self._harness.run(self._job_id)

    def end(self) -> str | None:
        self.join(DEADLINE)
        assert not self.is_alive(), "the job never ended"
        return self.ending
