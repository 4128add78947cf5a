"""A real PgBouncer for the tests, before a PostgreSQL of ours: it lends connections for a transaction each.

Without one its tests are left out, and the run says so; with CI set that is a failure.
"""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

from ops.testbed.postgres import PostgresServer

# Debian has it outside a user's PATH.
PGBOUNCER = shutil.which(
    "pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin:/opt/homebrew/bin"
)

left_out = ["test_pooler.py"] if PGBOUNCER is None and not os.environ.get("CI") else []


class Pooler:
    """One in a temporary folder, on a Unix socket, with so many connections to the server."""

    def __init__(self, server: PostgresServer, connections: int) -> None:
        assert PGBOUNCER is not None
        self.folder = Path(tempfile.mkdtemp(prefix="spool-pgb-"))
        self.folder.chmod(0o777)  # it refuses to run as root
        options = {
            "pool_mode": "transaction",
            "default_pool_size": connections,
            "max_client_conn": 1000,
            "auth_type": "any",
            "unix_socket_dir": self.folder,
            "listen_port": 6432,
            "logfile": self.folder / "log",
        }
        lines = [f"{name} = {value}" for name, value in options.items()]
        (self.folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host={server.folder} user=spool\n[pgbouncer]\n" + "\n".join(lines) + "\n"
        )
        command = [PGBOUNCER, "-q", str(self.folder / "pgbouncer.ini")]
        self._process = subprocess.Popen(command, user=server.user, stderr=subprocess.DEVNULL)

    def url(self, database: str) -> str:
        """As Spool's settings have it."""
        return f"postgresql://spool@/{database}?host={self.folder}&port=6432&pooler=transaction"

    def wait(self, database: str) -> None:
        """Until it answers."""
        deadline = time.monotonic() + 20
        while True:
            assert self._process.poll() is None, (self.folder / "log").read_text()
            try:
                psycopg.connect(host=str(self.folder), port=6432, dbname=database, user="spool").close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.05)

    def close(self) -> None:
        """End it, and remove its folder."""
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self.folder)
