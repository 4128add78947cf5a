"""What a simulated fleet stands on: PostgreSQL with others' jobs, Redis, and jobs that wait for it.

Knows the tables and `pg_stat_statements`, where PostgreSQL has it; measures nothing.
"""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from psycopg import Connection as Postgres
from sqlalchemy import make_url

from ops.bench.queue.stock import stocked
from ops.testbed.jobs import speechlike, write_wav
from ops.testbed.postgres import find_binaries
from spool.broker.embedded_redis import EmbeddedRedis, temporary_home
from spool.domain.jobs import queue_name
from spool.domain.options import JobOptions

POOL = "fleet"
_OURS = f"pool = '{POOL}'"

_FILL = f"""
    INSERT INTO jobs (id, project, state, name, source_kind, source_uri, options, pool, queue, queue_position,
                      created_at, queued_at, updated_at)
    SELECT 'job_02' || upper(lpad(to_hex(n), 24, '0')), 'fleet' || mod(n, 5), 'queued', 'tone.wav', 'file',
           %s, %s, '{POOL}', '{queue_name(POOL)}', n, now(), now(), now() FROM generate_series(1, %s) n"""
_HINTS = f"""
    INSERT INTO outbox (job_id, queue, due_at)
    SELECT id, '{queue_name(POOL)}', now() FROM jobs WHERE {_OURS} ORDER BY id"""


@dataclass
class Ground:
    """The servers, and the environment that workers over them have."""

    database: Postgres
    postgres: psutil.Process
    redis: psutil.Process
    environment: dict[str, str]
    sound: Path
    counts: bool
    """Whether PostgreSQL counts its statements."""

    def fill(self, number: int) -> None:
        """So many jobs that wait, and nothing of an earlier run."""
        self.clear()
        options = JobOptions(model="chip").model_dump_json()
        self.database.execute(_FILL.encode(), [self.sound.as_uri(), options, number])
        self.database.execute(_HINTS.encode())
        self.database.execute("ANALYZE jobs")

    def clear(self) -> None:
        """Remove what this bench wrote; others' jobs stay."""
        for table in ("cost_lines", "chunks"):
            self.database.execute(f"DELETE FROM {table} WHERE job_id LIKE 'job\\_02%'".encode())
        self.database.execute("DELETE FROM outbox")
        self.database.execute(f"DELETE FROM jobs WHERE {_OURS}".encode())
        self.database.execute(f"DELETE FROM workers WHERE {_OURS}".encode())

    def begin(self) -> None:
        """Count statements from now on."""
        if self.counts:
            self.database.execute("SELECT pg_stat_statements_reset()")

    def statements(self) -> list[tuple[str, int, float]]:
        """Statements since `begin`: text, calls and milliseconds, the most time first."""
        if not self.counts:
            return []
        rows = self.database.execute(
            "SELECT query, calls, total_exec_time FROM pg_stat_statements"
            " WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " ORDER BY total_exec_time DESC"
        )
        return [(str(text), int(calls), float(took)) for text, calls, took in rows]


@contextlib.contextmanager
def grounded(folder: Path, rows: int, audio: float, concurrency: int) -> Iterator[Ground]:
    """The servers, the environment of workers, and the sound of `audio` seconds that each job is of."""
    home, counts = temporary_home(), _counts_statements()
    sound = home / "in" / "tone.wav"
    sound.parent.mkdir(parents=True)
    write_wav(sound, speechlike(audio))
    settings = {"max_connections": "3000"}
    if counts:
        settings["shared_preload_libraries"] = "pg_stat_statements"
    try:
        with (
            stocked(folder, rows, **settings) as (server, url),
            EmbeddedRedis(home) as redis,
            server.connect(str(make_url(url).database)) as database,
        ):
            if counts:
                database.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
            assert redis.process is not None
            environment = {
                "SPOOL_HOME": str(home),
                "SPOOL_DATABASE_URL": url,
                "SPOOL_REDIS_URL": redis.url,
                "SPOOL_SOURCE_ROOTS": str(sound.parent),
                "SPOOL_POOL": POOL,
                "SPOOL_MODELS": "chip=/nowhere",
                "SPOOL_DEFAULT_MODEL": "chip",
                "SPOOL_CONCURRENCY": str(concurrency),
            }
            processes = psutil.Process(server.pid), psutil.Process(redis.process.pid)
            ground = Ground(database, *processes, environment, sound, counts)
            try:
                yield ground
            finally:
                ground.clear()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _counts_statements() -> bool:
    """Whether this PostgreSQL has what counts its statements; a wheel's has not."""
    config = find_binaries() / "pg_config"
    if not config.exists():
        return False
    config_output = subprocess.run([config, "--sharedir"], capture_output=True, text=True, check=False)
    return (Path(config_output.stdout.strip()) / "extension" / "pg_stat_statements.control").exists()
