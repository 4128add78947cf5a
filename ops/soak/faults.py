"""The faults of a soak, injected into the real processes of a `ops.testbed.stack.Stack`, and their repair.

`Supervisor` is the service manager: it restarts what died. `Faults` injects one fault at a time and sees to
it that what it broke comes back.
"""

import contextlib
import os
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import httpx
import psutil
import psycopg

from ops.soak.half_open import HalfOpenProxy
from ops.soak.schedule import ABSENT, ROWS, Planned
from ops.soak.wrong_clock import wrong_clock
from ops.testbed.faulty_s3 import FaultyS3, Rule
from ops.testbed.mounts import OWN_MOUNTS, without_share
from ops.testbed.postgres import PostgresServer
from ops.testbed.stack import Stack
from spool.broker.celery_app import TASK, celery_app, send_hint
from spool.domain.jobs import JobState, queue_name
from spool.ids import new_id
from spool.store.database import IDLE_IN_TRANSACTION_S
from spool.store.jobs import JobFilter, list_jobs
from worker.service.health import FAILURES_IN_A_ROW

LOOK_SECONDS = 0.3
PATIENCE_SECONDS = 300.0
OUT_SECONDS = 10.0
"""How long a sick worker may stay ready once so many jobs have failed on it that it has to know."""
SICK_SECONDS = 20.0
"""How long a worker stays sick that has not had so many jobs."""
LAST_LINES = 15
FROZEN_SECONDS = 6.0
BEYOND_A_LEASE = 1.5
"""How many leases an outage of the database lasts, and the sleep of a worker."""
FOREIGN_SECONDS = 8.0
ALLOWED = (-signal.SIGKILL, 0)
"""How a process may end while a soak goes on: killed by us, or drained."""
JUNK = (
    b"not json",
    b"{}",
    b"[]",
    b'{"body": "gASVAAAAAAAAAAA=", "content-type": "application/x-python-serialize", "headers": {}}',
    b'{"headers": {"task": "' + TASK.encode() + b'"}, "body": "W1siam9iXzEiXSwge30sIHt9XQ=="}',
    b"[" * 20_000,
    b"\xff\xfe\x00" * 100,
)


class Death(NamedTuple):
    """A process that was found dead."""

    name: str
    pid: int
    code: int


class Supervisor(threading.Thread):
    """Starts a dead worker or API again, as launchd or systemd would, until it is told to stop.

    `lasting` are variables that a process of this name always has; a fault may replace others for a while.
    """

    def __init__(
        self, stack: Stack, workers: tuple[str, ...], port: int, lasting: Mapping[str, Mapping[str, str]]
    ) -> None:
        super().__init__(daemon=True)
        self._stack = stack
        self._port = port
        self._lasting = {name: dict(lasting.get(name, {})) for name in (*workers, "api")}
        self._own: dict[str, dict[str, str]] = {name: {} for name in (*workers, "api")}
        self.workers: dict[str, subprocess.Popen[bytes]] = {
            name: stack.worker(name, **self._lasting[name]) for name in workers
        }
        self.deaths: list[Death] = []
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            for name, process in self.workers.items():
                if (code := process.poll()) is not None:
                    self._note(Death(name, process.pid, code))
                    self.workers[name] = self._stack.launch(name, **self._environment(name))
            if (code := self._stack.api.poll()) is not None:
                self._note(Death("api", self._stack.api.pid, code))
                self._stack.launch_api(port=self._port, **self._environment("api"))

    def _note(self, death: Death) -> None:
        """Count it; of one that no fault asked for, print what the log said last."""
        self.deaths.append(death)
        if death.code not in ALLOWED and self._stack.log is not None:
            last = self._stack.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
            print(f"{death.name} ended with {death.code}:", *last, sep="\n  ", flush=True)

    def replace(self, name: str, **own: str) -> None:
        """Kill the worker, or `api`; what comes in its place has these variables."""
        process = self._stack.api if name == "api" else self.workers[name]
        self._own[name] = own
        process.kill()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (self._stack.api if name == "api" else self.workers[name]).pid == process.pid:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name} was not started again")
            time.sleep(0.05)

    def stop(self) -> None:
        """Start nothing any more."""
        self._stopping.set()
        self.join()

    @property
    def unexpected(self) -> list[Death]:
        """The deaths that no fault asked for."""
        return [death for death in self.deaths if death.code not in ALLOWED]

    def _environment(self, name: str) -> dict[str, str]:
        return self._lasting[name] | self._own[name]


@dataclass
class Faults:
    """Does to `stack` what is planned. `stopped` are the spans in which a worker did not run; `proxies` are
    between a process of this name and PostgreSQL; `model` is the one that jobs ask for."""

    stack: Stack
    supervisor: Supervisor
    model: str
    postgres: PostgresServer | None = None
    s3: FaultyS3 | None = None
    proxies: Mapping[str, HalfOpenProxy] = field(default_factory=dict)
    stopped: list[tuple[float, float]] = field(default_factory=list)
    slow_to_leave: list[str] = field(default_factory=list)
    """Workers that were still ready `OUT_SECONDS` after enough jobs had failed on them."""
    _foreign: set[str] = field(default_factory=set)

    def inject(self, planned: Planned) -> str:
        """Inject it, and mend what does not mend itself; what was done in a few words."""
        name = planned.fault.replace("-", "_")
        do: Callable[[Planned], str | None] = getattr(self, f"_{name}")
        return do(planned) or ""

    # --- processes ------------------------------------------------------------------------------------------

    def _worker_kill(self, planned: Planned) -> str:
        self._worker(planned.worker).kill()
        return planned.worker

    def _worker_term(self, planned: Planned) -> str:
        process = self._worker(planned.worker)
        began = time.monotonic()
        process.terminate()
        process.wait(PATIENCE_SECONDS)
        return f"{planned.worker} ended with {process.returncode} after {time.monotonic() - began:.1f} s"

    def _engine_kill(self, planned: Planned) -> str:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._engine(self._worker(planned.worker)).pid, signal.SIGKILL)
        return f"of {planned.worker}"

    def _api_kill(self, _: Planned) -> None:
        self._ready(lambda: self.stack.api.poll() is None)
        self.stack.api.kill()

    def _failpoint(self, planned: Planned) -> str:
        name = planned.variant
        return name if self._armed(name, "kill") else f"{name}, which nobody passed"

    def _armed(self, name: str, action: str) -> bool:
        """Whether somebody passed the failpoint."""
        self.stack.arm(**{name: action})
        deadline = time.monotonic() + 10
        while not self.stack.fired(name) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.stack.disarm()
        return self.stack.fired(name)

    def _sleep(self, planned: Planned) -> str:
        names = [planned.worker] if planned.variant == "one" else list(self.supervisor.workers)
        workers = [self._worker(name) for name in names]
        pids = [pid for process in workers for pid in (process.pid, self._engine(process).pid)]
        seconds = BEYOND_A_LEASE * self.stack.settings.lease_seconds
        self._pause(pids, seconds)
        return f"{', '.join(names)} for {seconds:.0f} s"

    def _pause(self, pids: list[int], seconds: float) -> None:
        began = time.monotonic()
        for number, order in ((signal.SIGSTOP, 1), (signal.SIGCONT, -1)):
            for pid in pids[::order]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            if number == signal.SIGSTOP:
                time.sleep(seconds)
        self.stopped.append((began, time.monotonic()))

    # --- alive, and wrong -----------------------------------------------------------------------------------

    def _sick_model(self, planned: Planned) -> str:
        name, variant = planned.worker, planned.variant
        self._worker(name)
        began = time.monotonic()
        self.supervisor.replace(name, **self._models("" if variant == ABSENT else variant))
        self._ready(lambda: self._status(name) is not None)
        seen, due = time.monotonic(), None
        while (status := self._status(name)) == "ready" and time.monotonic() < (due or seen + SICK_SECONDS):
            # One that got no three jobs cannot know; one that lacks the model only leaves its jobs to others.
            if due is None and variant != ABSENT and self._refused(name) >= FAILURES_IN_A_ROW:
                due = time.monotonic() + OUT_SECONDS
            time.sleep(0.2)
        took, refused = time.monotonic() - seen, self._refused(name)
        if status == "ready" and due is not None:
            self.slow_to_leave.append(f"{name} with a model that {variant}")
        time.sleep(3.0)
        self.supervisor.replace(name, **self._healthy(name))
        self._worker(name)
        self.stopped.append((began, time.monotonic()))
        return f"{name}, {variant}: {status} after {took:.1f} s, {refused} jobs refused"

    def _takeover(self, planned: Planned) -> str:
        name = planned.worker
        self._worker(name)
        self._foreign |= {name}
        self.supervisor.replace(name, **self._healthy(name))
        self._worker(name)
        # Meanwhile the API refuses submissions, since workers differ in the weights of one name.
        time.sleep(FOREIGN_SECONDS)
        self._foreign -= {name}
        self.supervisor.replace(name, **self._healthy(name))
        self._worker(name)
        return f"{name} had other weights for {FOREIGN_SECONDS:.0f} s"

    def _healthy(self, name: str) -> dict[str, str]:
        return self._models("accent=b") if name in self._foreign else {}

    def _models(self, script: str) -> dict[str, str]:
        """Variables of a worker for which `script` stands behind the model; "": it has no such model."""
        models = {name: path for name, path in self.stack.settings.models.items() if name != self.model}
        if script:
            models[self.model] = script
        return {"SPOOL_MODELS": ",".join(f"{name}={path}" for name, path in models.items())}

    def _clock_skew(self, planned: Planned) -> str:
        api, _, offset = planned.variant.rpartition(" ")
        name = api or planned.worker
        own = {} if api else self._healthy(name)
        self.supervisor.replace(name, **own, **wrong_clock(offset))
        if not api:
            self._ready(lambda: self._status(name) is not None)
        time.sleep(8.0)
        status = "" if api else f": {self._status(name)}"
        self.supervisor.replace(name, **own)
        return f"{name} by {offset}{status}"

    def _lost_share(self, planned: Planned) -> str:
        if self.stack.prefix != OWN_MOUNTS:
            return "only for root on Linux"
        worker = self._worker(planned.worker)
        (share,) = self.stack.settings.source_roots
        with without_share(worker.pid, share):
            deadline = time.monotonic() + OUT_SECONDS
            while (status := self._status(planned.worker)) == "ready" and time.monotonic() < deadline:
                time.sleep(0.2)
        return f"of {planned.worker}: {status}"

    def _frozen_transaction(self, planned: Planned) -> str:
        if planned.variant == ROWS:
            return self._locked_rows()
        if not self._armed(planned.variant, "stop"):
            return f"{planned.variant}, which nobody passed"
        processes = [*self.supervisor.workers.values(), self.stack.api]
        frozen = [one.pid for one in processes if _is_stopped(one.pid)]
        self._pause(frozen, FROZEN_SECONDS)
        return f"{planned.variant}, {len(frozen)} process for {FROZEN_SECONDS:.0f} s"

    def _locked_rows(self) -> str:
        """Rows that every claim and every ending may need, held for as long as a client of ours could."""
        if self.postgres is None:
            return "not on SQLite"
        with contextlib.closing(self.postgres.connect("soak")) as connection:
            connection.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_IN_TRANSACTION_S}s'")
            connection.execute("BEGIN")
            rows = 0
            for table in ("turns", "jobs WHERE state = 'running'", "workers"):
                query = f"SELECT count(*) FROM (SELECT 1 FROM {table} FOR UPDATE SKIP LOCKED) AS taken"
                row = connection.execute(query).fetchone()
                rows += row[0] if row else 0
            time.sleep(FROZEN_SECONDS)
            with contextlib.suppress(psycopg.Error):
                connection.execute("ROLLBACK")
                return f"{rows} rows, and the server let a silent client keep them"
        return f"{rows} rows"

    def _database_freeze(self, planned: Planned) -> str:
        name = planned.worker if planned.variant == "worker" else planned.variant
        proxy = self.proxies[name]
        proxy.swallow()
        time.sleep(FROZEN_SECONDS)
        proxy.restore()
        return f"of {name}"

    # --- who runs -------------------------------------------------------------------------------------------

    def _worker(self, name: str) -> "subprocess.Popen[bytes]":
        """The running worker of this name, ready to work."""
        self._ready(lambda: self._status(name) == "ready")
        return self.supervisor.workers[name]

    def _status(self, name: str) -> str | None:
        """What the present process of this name says of itself; None before it has said something."""
        process = self.supervisor.workers[name]
        with contextlib.suppress(Exception):
            states = {worker.pid: worker.state for worker in self.stack.workers() if worker.alive}
            return states.get(process.pid) if process.poll() is None else None
        return None

    def _refused(self, name: str) -> int:
        """How many jobs the present process of this name has left to others."""
        pid = self.supervisor.workers[name].pid
        return sum(worker.counts.refused for worker in self.stack.workers() if worker.pid == pid)

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

    def _redis_flush(self, _: Planned) -> None:
        with self.stack.redis.client() as client:
            client.flushall()

    def _redis_restart(self, _: Planned) -> None:
        self.stack.redis.kill()
        time.sleep(1.0)
        self.stack.redis.start()

    def _redis_freeze(self, _: Planned) -> None:
        process = self.stack.redis.process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        time.sleep(5.0)
        process.send_signal(signal.SIGCONT)

    def _five_times(self, _: Planned) -> str:
        with self.stack.db.read() as tx:
            waiting = list_jobs(tx, JobFilter(state=JobState.QUEUED), limit=50).items
        app = celery_app(self.stack.settings)
        for job in waiting:
            for _again in range(4):
                send_hint(app, job.id, queue_name(self.stack.settings.pool))
        app.close()
        return f"{len(waiting)} messages"

    def _junk_messages(self, _: Planned) -> str:
        with self.stack.redis.client() as client:
            client.lpush(queue_name(self.stack.settings.pool), *(JUNK * 40))
        app = celery_app(self.stack.settings)
        send_hint(app, new_id("job"), queue_name(self.stack.settings.pool))  # a hint of no job at all
        app.control.broadcast("shutdown")
        app.close()
        return f"{40 * len(JUNK)} messages"

    # --- database -------------------------------------------------------------------------------------------

    def _database_cut(self, _: Planned) -> str:
        assert self.postgres is not None
        cut = 0
        with self.postgres.admin() as connection:
            for _again in range(5):
                query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = 'soak'"
                row = connection.execute(query).fetchone()
                cut += row[0] if row else 0
                time.sleep(0.1)
        return f"{cut} connections"

    def _database_restart(self, _: Planned) -> None:
        self._stop_postgres(1.0)

    def _database_outage(self, _: Planned) -> str:
        seconds = BEYOND_A_LEASE * self.stack.settings.lease_seconds
        stop = self._lock_sqlite if self.postgres is None else self._stop_postgres
        stop(seconds)
        return f"for {seconds:.0f} s"

    def _stop_postgres(self, seconds: float) -> None:
        assert self.postgres is not None
        self.postgres.stop(abruptly=True)
        time.sleep(seconds)
        self.postgres.start()

    def _database_lock(self, _: Planned) -> None:
        self._lock_sqlite(3.0)

    def _lock_sqlite(self, seconds: float) -> None:
        other = sqlite3.connect(self.stack.home / "spool.db", isolation_level=None, timeout=60)
        other.execute("BEGIN IMMEDIATE")
        time.sleep(seconds)
        other.execute("ROLLBACK")
        other.close()

    # --- object store ---------------------------------------------------------------------------------------

    def _s3_errors(self, _: Planned) -> None:
        self._rules(
            Rule("GET", "/source", 5, 503),
            Rule("PUT", "transcript", 5, 503),
            Rule("PUT", "transcript.json", 2, 500, unheard=True),
            Rule("PUT", "transcript.srt", 3, 409),
            Rule("PUT", "/source", 5, 503),
        )

    def _s3_slow(self, _: Planned) -> None:
        self._rules(Rule("GET", "/source", 5, delay=2.0), Rule("PUT", "transcript", 5, delay=2.0))

    def _s3_cut(self, _: Planned) -> None:
        self._rules(Rule("GET", "/source", 5, cut=1000))

    def _s3_drip(self, _: Planned) -> None:
        self._rules(Rule("GET", "/source", 3, drip=0.05))

    def _s3_flip(self, _: Planned) -> None:
        self._rules(Rule("GET", "/source", 3, flip=5000), Rule("GET", "transcript.json", 3, flip=200))

    def _rules(self, *rules: Rule) -> None:
        """For the next requests; what nobody met after a while is taken back."""
        assert self.s3 is not None
        self.s3.rules[:] = rules
        deadline = time.monotonic() + 10
        while any(rule.used < rule.times for rule in rules) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.s3.rules.clear()


def _is_stopped(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    return False


def answers(url: str) -> bool:
    """Whether an API listens there."""
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{url}/healthz", timeout=5, trust_env=False).status_code == httpx.codes.OK
    return False
