"""Real worker processes over a real Redis, SQLite and a folder, and what a test asks of them."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil
from sqlalchemy import func, select

from ops.testbed.waiting import DEADLINE, until
from spool.broker.celery_app import celery_app, send_hint
from spool.domain.jobs import Job, Source, queue_name
from spool.domain.options import JobOptions
from spool.domain.recognition import DecodedChunk
from spool.domain.transcript import Transcript
from spool.objects import object_store
from spool.objects.integrity import read_verified
from spool.settings import Settings, load_settings
from spool.store.chunks import load_chunks
from spool.store.database import Database
from spool.store.jobs import NewJob, create_job, get_job
from spool.store.passes import load_passes
from spool.store.workers import Worker, list_workers
from spool.tables import cost_lines
from spool.tables.jobs import ChannelPass, PassName

ROOT = Path(__file__).parents[2]
FAKE = ("-m", "ops.testbed.run.worker")
REAL = ("-m", "worker.cli.main", "run")


def _source_of(path: Path) -> Source:
    return Source("file", path.as_uri(), path.stat().st_size if path.exists() else None)


class Fleet:
    """One database, broker and store, and the workers on them. `close` leaves no process behind."""

    def __init__(self, home: Path, database_url: str, redis_url: str, **environment: str) -> None:
        self.environment = {
            "SPOOL_HOME": str(home),
            "SPOOL_MODELS": f"demo-tdt={ROOT}/models/demo",
            "SPOOL_DATABASE_URL": database_url,
            "SPOOL_REDIS_URL": redis_url,
            "SPOOL_SOURCE_ROOTS": str(home),
            "SPOOL_LEASE_SECONDS": "2",
            "SPOOL_HEARTBEAT_SECONDS": "0.5",
            "SPOOL_SWEEP_SECONDS": "0.3",
            "SPOOL_HINT_STALE_SECONDS": "2",
            "SPOOL_LOG_JSON": "true",
            **environment,
        }
        self.home = home
        self.settings: Settings = load_settings(self.environment)
        self.db = Database(database_url, idle_seconds=60)
        self.prefix: tuple[str, ...] = ()
        """What the commands of processes start with."""
        self._workers: list[subprocess.Popen[bytes]] = []

    def start(
        self, *command: str, name: str = "alpha", state: str = "ready", **own: str
    ) -> "subprocess.Popen[bytes]":
        """Start a worker, with variables of its `own`, and wait until it is in this state; without one, until
        it is known."""
        env = {key: value for key, value in os.environ.items() if not key.startswith("SPOOL_")}
        worker = subprocess.Popen(
            [*self.prefix, sys.executable, *(command or FAKE)],
            env={**env, **self.environment, "SPOOL_WORKER_NAME": name, **own},
            cwd=ROOT,
        )
        self._workers.append(worker)
        until(lambda: worker.poll() is not None or self._is(worker.pid, state), f"the worker {state}")
        assert worker.poll() is None, "the worker ended while it started"
        return worker

    def _is(self, pid: int, state: str) -> bool:
        return any(worker.pid == pid and state in {worker.state, ""} for worker in self.workers())

    def submit(self, path: Path, model: str = "plain", pin: str | None = None, **fields: str) -> str:
        """Queue a recording; most of the recordings here are tones, so no speech detector listens."""
        (job_id,) = self.submit_together([path], model, pin, **fields)
        return job_id

    def submit_together(
        self, paths: Iterable[Path], model: str = "plain", pin: str | None = None, **fields: str
    ) -> list[str]:
        """Queue recordings so that workers see all of them at once."""
        options = JobOptions.model_validate({"model": model, "speech_detector": False, **fields})
        with self.db.begin() as tx:
            return [
                create_job(tx, NewJob(_source_of(path), options, path.name, worker=pin))[0].id
                for path in paths
            ]

    def worker_row(self, process: "subprocess.Popen[bytes]") -> Worker:
        """What the process says of itself."""
        return next(worker for worker in self.workers() if worker.pid == process.pid)

    def send(self, job_id: str, times: int = 1) -> None:
        """Deliver the job's message by hand."""
        app = celery_app(self.settings)
        for _ in range(times):
            send_hint(app, job_id, queue_name(self.settings.pool))
        app.close()

    def job(self, job_id: str) -> Job:
        with self.db.read() as tx:
            return get_job(tx, job_id)

    def ended(self, job_ids: Iterable[str]) -> bool:
        return all(self.job(job_id).state.terminal for job_id in job_ids)

    def chunks(self, job_id: str) -> list[DecodedChunk]:
        with self.db.read() as tx:
            return load_chunks(tx, job_id)

    def passes(self, job_id: str, listener: PassName = "speakers") -> list[ChannelPass]:
        with self.db.read() as tx:
            return load_passes(tx, job_id, listener)

    def transcript(self, job_id: str) -> Transcript:
        """The record of a job that is done."""
        job = self.job(job_id)
        objects = object_store(self.settings)
        return Transcript.model_validate_json(
            read_verified(objects, job.transcript_key or "", job.transcript_sha256 or "")
        )

    def workers(self) -> list[Worker]:
        with self.db.read() as tx:
            return list_workers(tx)

    def billed_ns(self, wasted: bool | None = None) -> int:
        query = select(func.coalesce(func.sum(cost_lines.c.engine_ns), 0))
        if wasted is not None:
            query = query.where(cost_lines.c.wasted == wasted)
        with self.db.read() as tx:
            return int(tx.scalar(query) or 0)

    def close(self) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait(DEADLINE)
        self.db.close()


def drained(worker: "subprocess.Popen[bytes]", number: signal.Signals = signal.SIGTERM) -> int:
    """Ask the worker to stop; its exit code."""
    worker.send_signal(number)
    return worker.wait(DEADLINE)


def children(pid: int) -> list[int]:
    """Processes that this one started, the engine among them."""
    return [child.pid for child in psutil.Process(pid).children()]


def engines_of(pid: int) -> list[int]:
    """The running engines among the worker's children; the other child looks after shared memory."""
    engines = []
    for child in psutil.Process(pid).children():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if "spawn_main" in " ".join(child.cmdline()):
                engines.append(child.pid)
    return engines


def engine_of(pid: int) -> int:
    """The one engine of the worker."""
    (engine,) = engines_of(pid)
    return engine


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
