"""The faults of a soak, done to the real processes of a `ops.testbed.stack.Stack`, and who mends them.

`Supervisor` is the service manager: what died is started again. `Faults` injects one fault at a time and
sees to it that what it broke comes back; it knows nothing of jobs, and no law.
"""

import contextlib
import os
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx
import psutil

from ops.testbed.faulty_s3 import FaultyS3, Rule
from ops.testbed.postgres import PostgresServer
from ops.testbed.stack import Stack
from spool.broker.celery_app import celery_app, send_hint
from spool.domain.jobs import JobState, queue_name
from spool.store.jobs import JobFilter, list_jobs

LOOK_SECONDS = 0.3
PATIENCE_SECONDS = 300.0


class Supervisor(threading.Thread):
    """Starts a dead worker or API again, as launchd or systemd would, until it is told to stop."""

    def __init__(self, stack: Stack, workers: tuple[str, ...], port: int) -> None:
        super().__init__(daemon=True)
        self._stack = stack
        self._port = port
        self.workers: dict[str, subprocess.Popen[bytes]] = {name: stack.worker(name) for name in workers}
        self.crashes: list[tuple[str, int, float]] = []
        """Name, process and time (monotonic) of whatever was found dead."""
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            for name, process in self.workers.items():
                if process.poll() is not None:
                    self.crashes.append((name, process.pid, time.monotonic()))
                    self.workers[name] = self._stack.launch(name)
            api = self._stack.api
            if api.poll() is not None:
                self.crashes.append(("api", api.pid, time.monotonic()))
                self._stack.launch_api(port=self._port)

    def stop(self) -> None:
        """Start nothing any more."""
        self._stopping.set()
        self.join()

    def is_up(self) -> bool:
        """Whether every worker and the API run."""
        running = all(process.poll() is None for process in self.workers.values())
        return running and self._stack.api.poll() is None and (self._stack.home / "api.json").exists()


@dataclass
class Faults:
    """Does to `stack` what it is told by name. `stopped` are the spans in which a worker did not run."""

    stack: Stack
    supervisor: Supervisor
    postgres: PostgresServer | None = None
    s3: FaultyS3 | None = None
    stopped: list[tuple[float, float]] = field(default_factory=list)

    def inject(self, fault: str, target: str) -> str:
        """Inject it, and mend what does not mend itself; what was done in a few words."""
        name = fault.replace("-", "_")
        do: Callable[[str], str | None] = getattr(self, f"_{name}")
        return do(target) or ""

    # --- processes ------------------------------------------------------------------------------------------

    def _worker_kill(self, target: str) -> str:
        process = self._worker(target)
        process.kill()
        return target

    def _worker_term(self, target: str) -> str:
        process = self._worker(target)
        process.terminate()
        process.wait(PATIENCE_SECONDS)
        return f"{target} ended with {process.returncode}"

    def _engine_kill(self, target: str) -> str:
        os.kill(self._engine(self._worker(target)).pid, signal.SIGKILL)
        return f"of {target}"

    def _api_kill(self, _: str) -> None:
        self._ready(lambda: self.stack.api.poll() is None)
        self.stack.api.kill()

    def _failpoint(self, target: str) -> str:
        self.stack.arm(**{target: "kill"})
        deadline = time.monotonic() + 10
        while not self.stack.fired(target) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.stack.disarm()
        return target if self.stack.fired(target) else f"{target}, which nobody passed"

    def _sleep(self, target: str) -> str:
        process = self._worker(target)
        both = [process.pid, self._engine(process).pid]
        seconds = 1.5 * self.stack.settings.lease_seconds
        began = time.monotonic()
        for pid in both:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        for pid in reversed(both):
            os.kill(pid, signal.SIGCONT)
        self.stopped.append((began, time.monotonic()))
        return f"{target} for {seconds:.0f} s"

    def _worker(self, name: str) -> "subprocess.Popen[bytes]":
        """The running worker of this name, ready to work."""
        self._ready(lambda: self._is_ready(name))
        return self.supervisor.workers[name]

    def _is_ready(self, name: str) -> bool:
        process = self.supervisor.workers[name]
        with contextlib.suppress(Exception):
            pids = {worker.info.pid for worker in self.stack.workers() if worker.state == "ready"}
            return process.poll() is None and process.pid in pids
        return False

    def _engine(self, worker: "subprocess.Popen[bytes]") -> psutil.Process:
        engines: list[psutil.Process] = []

        def look() -> bool:
            with contextlib.suppress(psutil.Error):
                children = psutil.Process(worker.pid).children()
                engines.extend(child for child in children if "spawn_main" in " ".join(child.cmdline()))
            return bool(engines)

        self._ready(look)
        return engines[-1]

    def _ready(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError("what a fault was meant for did not come up")
            time.sleep(0.1)

    # --- broker ---------------------------------------------------------------------------------------------

    def _redis_flush(self, _: str) -> None:
        with self.stack.redis.client() as client:
            client.flushall()

    def _redis_restart(self, _: str) -> None:
        self.stack.redis.kill()
        time.sleep(1.0)
        self.stack.redis.start()

    def _redis_freeze(self, _: str) -> None:
        process = self.stack.redis.process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        time.sleep(5.0)
        process.send_signal(signal.SIGCONT)

    def _five_times(self, _: str) -> str:
        with self.stack.db.read() as tx:
            waiting = list_jobs(tx, JobFilter(state=JobState.QUEUED), limit=50).items
        app = celery_app(self.stack.settings)
        for job in waiting:
            for _ in range(4):
                send_hint(app, job.id, queue_name(self.stack.settings.pool))
        app.close()
        return f"{len(waiting)} messages"

    # --- database -------------------------------------------------------------------------------------------

    def _database_cut(self, _: str) -> str:
        assert self.postgres is not None
        cut = 0
        with self.postgres.admin() as connection:
            for _ in range(5):
                query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = 'soak'"
                row = connection.execute(query).fetchone()
                cut += row[0] if row else 0
                time.sleep(0.1)
        return f"{cut} connections"

    def _database_restart(self, _: str) -> None:
        assert self.postgres is not None
        self.postgres.stop(abruptly=True)
        time.sleep(1.0)
        self.postgres.start()

    def _database_lock(self, _: str) -> None:
        other = sqlite3.connect(self.stack.home / "spool.db", isolation_level=None, timeout=60)
        other.execute("BEGIN IMMEDIATE")
        time.sleep(3.0)
        other.execute("ROLLBACK")
        other.close()

    # --- object store ---------------------------------------------------------------------------------------

    def _s3_errors(self, _: str) -> None:
        self._rules(
            Rule("GET", "/source", 5, 503),
            Rule("PUT", "transcript", 5, 503),
            Rule("PUT", "transcript.json", 2, 500, unheard=True),
            Rule("PUT", "transcript.srt", 3, 409),
            Rule("PUT", "/source", 5, 503),
        )

    def _s3_slow(self, _: str) -> None:
        self._rules(Rule("GET", "/source", 5, delay=2.0), Rule("PUT", "transcript", 5, delay=2.0))

    def _s3_cut(self, _: str) -> None:
        self._rules(Rule("GET", "/source", 5, cut=1000))

    def _rules(self, *rules: Rule) -> None:
        """For the next requests; what nobody met after a while is taken back."""
        assert self.s3 is not None
        self.s3.rules[:] = rules
        deadline = time.monotonic() + 10
        while any(rule.used < rule.times for rule in rules) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.s3.rules.clear()


def answers(url: str) -> bool:
    """Whether an API listens there."""
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{url}/healthz", timeout=5, trust_env=False).status_code == httpx.codes.OK
    return False
