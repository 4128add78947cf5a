"""A complete Spool on this machine: tables, broker, API and one worker, started and stopped in order.

Each part is started as a process by its command; neither the worker nor the kernels are imported. Each step
is reported to a callable.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from api.local.instance import RunLock, Running
from api.local.processes import Child, Survivor, end_leftovers, kill_group, record_children, survivors
from spool import clock
from spool.broker.embedded_redis import EmbeddedRedis
from spool.catalogue import Progress, fetch_model, loadable_models
from spool.errors import SpoolError, StorageError
from spool.objects import object_store
from spool.settings import Settings, load_settings
from spool.store import Database
from spool.store.workers import list_workers

Say = Callable[[str], None]

_START_TIMEOUT_S = 60.0
# The worker loads its model before it reports, which takes long on a busy machine.
_WORKER_TIMEOUT_S = 180.0
_API_STOP_S = 30.0
_WORKER_STOP_S = 60.0
_LAST_WAIT_S = 3.0
_POLL_S = 0.1


class StackError(SpoolError):
    """A part of the stack did not start, or ended by itself."""

    code = "stack"


class Stack:
    """One running stack. As a context manager it starts on entry and stops, whatever happened, on exit."""

    def __init__(self, environ: Mapping[str, str], say: Say) -> None:
        self._environ = dict(environ)
        self._say = say
        self.settings: Settings = load_settings(environ)
        # The children must use this home, whatever folder they are started from.
        self._environ["SPOOL_HOME"] = str(self.settings.home)
        self._lock = RunLock(self.settings.home)
        self._redis: EmbeddedRedis | None = None
        self._children: list[Child] = []
        self._groups: list[int] = []
        self.url = ""
        self.left_behind: list[Survivor] = []

    @property
    def logs(self) -> Path:
        """The folder that the parts write their logs to."""
        return self.settings.home / "logs"

    @property
    def _record(self) -> Path:
        return self.settings.home / "children.json"

    def __enter__(self) -> Self:
        self._lock.__enter__()
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stop()
        finally:
            self._lock.__exit__(kind, error, trace)

    def check(self) -> None:
        """Raise `StackError` if a part has ended by itself."""
        for child in self._children:
            if child.exit_code is not None:
                words = child.log_tail()
                raise StackError(f"The {child.name} ended by itself (exit {child.exit_code}):\n{words}")

    def _start(self) -> None:
        if end_leftovers(self._record, _WORKER_STOP_S):
            self._say("ended processes that an earlier run had left behind")
        self._migrate()
        if self.settings.redis_url == EmbeddedRedis(self.settings.home).url:
            self._say("starting the broker")
            self._redis = EmbeddedRedis(self.settings.home)
            self._redis.start()
            if self._redis.process is not None:
                self._groups.append(self._redis.process.pid)
        else:
            self._check_broker()
        self._check_objects()
        self._fetch_model()
        self._say("starting the API and the worker")
        announced = self.settings.home / "api.json"
        announced.unlink(missing_ok=True)
        self._spawn("API", "api", "--announce", str(announced))
        self._spawn("worker", "worker.cli.main", "run")
        self._wait(announced.exists, _START_TIMEOUT_S, "The API does not answer")
        self.url = _read_url(announced)
        self._wait_for_worker()
        roots = tuple(str(root) for root in self.settings.source_roots)
        running = Running(self.url, os.getpid(), str(self.settings.home), roots, str(self.logs))
        self._lock.announce(running)

    def _check_broker(self) -> None:
        """Raise StackError if the broker that somebody else runs does not answer. Once jobs are under way its
        outages are waited for."""
        from spool.broker.redis_client import check_broker  # redis-py takes 0.3 s to load

        try:
            check_broker(self.settings)
        except StorageError as error:
            raise StackError(
                f"{error.message} Correct it, or unset SPOOL_REDIS_URL: `spool up` then starts a broker."
            ) from None

    def _check_objects(self) -> None:
        """Raise StackError if uploads and transcripts have no place to go."""
        try:
            object_store(self.settings).check()
        except SpoolError as error:
            raise StackError(
                f"SPOOL_OBJECTS {self.settings.objects} cannot be used: {error.message}"
            ) from None

    def _fetch_model(self) -> None:
        """Fetch the default model before the worker starts, and report progress."""
        default, models = self.settings.default_model, loadable_models(self.settings)
        if default not in models:
            raise StackError(
                f"SPOOL_DEFAULT_MODEL names {default}, which is neither in SPOOL_MODELS nor in the catalogue "
                "(`spool models list`)."
            )

        def show(progress: Progress) -> None:
            total = f" of {progress.total / 1e6:.0f}" if progress.total else ""
            self._say(f"fetching {progress.name}: {progress.done / 1e6:.0f}{total} MB")

        fetch_model(models[default], self.settings, show)

    def _migrate(self) -> None:
        self._say("preparing the database")
        command = [sys.executable, "-m", "migrations", "upgrade"]
        done = subprocess.run(command, env=self._environ, capture_output=True, text=True, check=False)
        if done.returncode:
            words = "\n".join((done.stderr or done.stdout).strip().splitlines()[-12:])
            raise StackError(f"The database could not be brought up to date:\n{words}")

    def _spawn(self, name: str, module: str, *arguments: str) -> None:
        command = [sys.executable, "-m", module, *arguments]
        child = Child(name, command, self._environ, self.logs / f"{name.lower()}.log")
        self._children.append(child)
        self._groups.append(child.group)
        record_children(self._record, self._children)

    def _wait(self, ready: Callable[[], bool], timeout: float, problem: str) -> None:
        deadline = clock.monotonic() + timeout
        while not ready():
            self.check()
            if clock.monotonic() > deadline:
                raise StackError(f"{problem} within {timeout:.0f} s; see {self.logs}.")
            clock.sleep(_POLL_S)

    def _wait_for_worker(self) -> None:
        # Not through the API, which may ask for a key that we do not have.
        database = Database(self.settings.database_url)
        try:
            self._wait(lambda: _worker_ready(database), _WORKER_TIMEOUT_S, "The worker does not report")
        finally:
            database.close()

    def _stop(self) -> None:
        """Stop the API, so that nothing new comes in; then the worker, which returns its jobs; then the
        broker."""
        try:
            for child in self._children:
                timeout = _WORKER_STOP_S if child.name == "worker" else _API_STOP_S
                self._say(f"stopping the {child.name}")
                if not child.stop(timeout):
                    self._say(f"the {child.name} did not stop within {timeout:.0f} s and was ended")
            if self._redis is not None:
                self._say("stopping the broker")
                self._redis.stop()
        except KeyboardInterrupt:
            # After a second Ctrl-C, do not wait any longer.
            for child in self._children:
                child.kill()
            if self._redis is not None:
                self._redis.stop()
        self._children = []
        self._kill_leftovers()
        self._record.unlink(missing_ok=True)

    def _kill_leftovers(self) -> None:
        """Kill every process of the stack that still runs, and note which ones."""
        deadline = clock.monotonic() + _LAST_WAIT_S
        while (left := survivors(self._groups)) and clock.monotonic() < deadline:
            clock.sleep(_POLL_S)
        self.left_behind = left
        for survivor in left:
            kill_group(survivor.group)


def _worker_ready(database: Database) -> bool:
    try:
        with database.read() as tx:
            return any(worker.alive and worker.state == "ready" for worker in list_workers(tx))
    except StorageError:
        return False


def _read_url(path: Path) -> str:
    return str(json.loads(path.read_text())["url"])
