"""Upgrades a fleet while it works: an older version beside this one, over one PostgreSQL.

    python -m ops.bench.queue.rolling OLD_COMMIT [--seconds 120]

The older version's code is taken from git. Its API and worker transcribe; the database is migrated under
them; both versions work at once, each API's jobs done by either's worker; the old worker is stopped in the
middle of a job, and started once more as if the upgrade were taken back. Prints what each step came to and
ends with the audit; exits with 1 if a job was lost or a law broken.
"""

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg

from ops.testbed.postgres import PostgresServer
from spool.broker.embedded_redis import EmbeddedRedis, temporary_home

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 400.0
SHORT = sorted((ROOT / "samples" / "demo-tdt" / "digits").glob("*.flac"))
DATABASE = "rolling"
TOKEN = "token-of-the-rolling-upgrade"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("old", help="a commit of the version before")
    parser.add_argument("--seconds", type=float, default=120, help="audio of the job that is interrupted")
    return parser.parse_args(arguments)


@dataclass
class Site:
    """Where both versions work: trees by version, and the processes of each."""

    trees: dict[str, Path]
    environment: dict[str, str]
    postgres: PostgresServer
    logs: Path
    urls: dict[str, str] = field(default_factory=dict)
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def run(self, version: str, *command: str) -> None:
        subprocess.run(
            [sys.executable, *command],
            cwd=self.trees[version],
            env=self._environment(version),
            check=True,
            timeout=PATIENCE,
        )

    def start(self, version: str, part: str, *command: str, **extra: str) -> None:
        with (self.logs / f"{version}-{part}.log").open("ab") as log:
            self.running[f"{version} {part}"] = subprocess.Popen(
                [sys.executable, *command],
                cwd=self.trees[version],
                env=self._environment(version) | extra,
                stdout=log,
                stderr=log,
            )

    def serve(self, version: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.start(version, "api", "-m", "api.cli.main", "serve", SPOOL_API_PORT=str(port))
        self.urls[version] = f"http://127.0.0.1:{port}"
        until(lambda: _answers(self.urls[version]), f"the {version} API")

    def work(self, version: str) -> None:
        self.start(version, "worker", "-m", "worker.cli.main", "run", SPOOL_WORKER_NAME=version)
        until(lambda: self.ask("SELECT 1 FROM workers WHERE name = %s AND state = 'ready'", version), version)

    def stop(self, version: str, part: str) -> int:
        process = self.running.pop(f"{version} {part}")
        process.send_signal(signal.SIGTERM)
        return process.wait(PATIENCE)

    def submit(self, version: str, *recordings: Path) -> list[str]:
        job_ids = []
        for recording in recordings:
            with recording.open("rb") as file:
                headers = {"Authorization": f"Bearer {TOKEN}"}
                answer = httpx.post(
                    f"{self.urls[version]}/v1/jobs", headers=headers, files={"file": file}, timeout=60
                )
            answer.raise_for_status()
            job_ids.append(str(answer.json()["id"]))
        return job_ids

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self.postgres.connect(DATABASE) as connection:
            return connection.execute(query, values).fetchall()

    def finished(self, jobs: list[str]) -> bool:
        (row,) = self.ask("SELECT count(*) FROM jobs WHERE id = ANY(%s) AND state = 'done'", jobs)
        return row[0] == len(jobs)

    def close(self) -> None:
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()

    def _environment(self, version: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOOL_")}
        return kept | self.environment | {"PYTHONPATH": str(self.trees[version])}


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parse(arguments)
    with _site(chosen.old) as site:
        return Rolling(site, chosen.seconds).run()


class Rolling:
    """The steps, in the order of docs/operations.md."""

    def __init__(self, site: Site, seconds: float) -> None:
        self._site = site
        self._seconds = seconds
        self._jobs: list[str] = []

    def run(self) -> int:
        site = self._site
        site.run("old", "-m", "migrations", "upgrade")
        site.serve("old")
        site.work("old")
        self._transcribe("old API, old worker, old schema", "old")
        site.run("new", "-m", "migrations", "upgrade")
        self._transcribe("old API, old worker, new schema", "old")
        site.serve("new")
        self._transcribe("new API, old worker, new schema", "new")
        site.work("new")
        self._transcribe("both APIs, both workers", "old", "new", "old", "new")
        self._interrupt()
        site.stop("old", "api")
        self._transcribe("new API, new worker", "new")
        site.serve("old")
        site.work("old")
        site.stop("new", "worker")
        self._transcribe("taken back: both APIs, old worker, new schema", "old", "new")
        return self._audit()

    def _transcribe(self, step: str, *versions: str) -> None:
        site, began = self._site, time.monotonic()
        jobs = [job for version in versions for job in site.submit(version, *SHORT)]
        self._wait(jobs, step)
        self._say(step, jobs, began)

    def _interrupt(self) -> None:
        """A long job on the old worker, which is told to stop."""
        site, began = self._site, time.monotonic()
        site.stop("new", "worker")
        (job,) = site.submit("new", self._long())
        until(lambda: site.ask("SELECT 1 FROM chunks WHERE job_id = %s", job), "a chunk of the long job", 900)
        code = site.stop("old", "worker")
        before = site.ask("SELECT count(*) FROM chunks WHERE job_id = %s", job)[0][0]
        site.work("new")
        self._wait([job], "the interrupted job")
        self._say(f"old worker stopped (exit {code}) after {before} chunks, new one goes on", [job], began)

    def _long(self) -> Path:
        import numpy as np
        import soundfile

        samples, rate = soundfile.read(
            ROOT / "samples" / "demo-tdt" / "long" / "pauses.flac", dtype="float32"
        )
        path = self._site.logs / "long.flac"
        soundfile.write(path, np.resize(samples, int(self._seconds * rate)), rate)
        return path

    def _wait(self, jobs: list[str], step: str) -> None:
        self._jobs += jobs
        until(lambda: self._site.finished(jobs), step)

    def _say(self, step: str, jobs: list[str], began: float) -> None:
        by = Counter(
            str(name)
            for (name,) in self._site.ask(
                "SELECT DISTINCT w.name || ' ' || c.job_id FROM cost_lines c JOIN workers w"
                " ON w.id = c.worker_id WHERE c.job_id = ANY(%s)",
                jobs,
            )
            for name in [str(name).partition(" ")[0]]
        )
        shared = ", ".join(f"{name} {number}" for name, number in sorted(by.items()))
        print(f"{step}: {len(jobs)} done ({shared}) in {time.monotonic() - began:.0f} s", flush=True)

    def _audit(self) -> int:
        states: dict[str, int] = dict(self._site.ask("SELECT state, count(*) FROM jobs GROUP BY state"))
        lost = len(self._jobs) - int(str(states.get("done", 0)))
        print(f"{len(self._jobs)} jobs, {states}, {lost} lost", flush=True)
        self._site.stop("old", "worker")
        try:
            self._site.run("new", "-m", "api.cli.main", "audit")
        except subprocess.CalledProcessError:
            return 1
        return 1 if lost else 0


@contextlib.contextmanager
def _site(old: str) -> Iterator[Site]:
    home, postgres = temporary_home(), PostgresServer()
    with tempfile.TemporaryDirectory(prefix="spool-rolling-") as folder, contextlib.ExitStack() as stop:
        tree = Path(folder) / "old"
        tree.mkdir()
        archive = subprocess.run(["git", "archive", old], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", str(tree)], input=archive, check=True)
        postgres.start()
        stop.callback(postgres.close)
        redis = stop.enter_context(EmbeddedRedis(home))
        environment = {
            "SPOOL_HOME": str(home),
            "SPOOL_DATABASE_URL": postgres.create_database(DATABASE),
            "SPOOL_REDIS_URL": redis.url,
            "SPOOL_OBJECTS": (Path(folder) / "objects").as_uri(),
            "SPOOL_MODELS": f"demo-tdt={ROOT / 'models' / 'demo'}",
            "SPOOL_DISK_FLOOR_BYTES": "0",
            "SPOOL_LEASE_SECONDS": "120",
            "SPOOL_API_TOKEN": TOKEN,
        }
        site = Site({"old": tree, "new": ROOT}, environment, postgres, Path(folder))
        stop.callback(site.close)
        try:
            yield site
        except BaseException:
            for log in sorted(site.logs.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
            raise


def until(condition: object, what: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.2)


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError, psycopg.Error):
        return httpx.get(f"{url}/healthz", timeout=10).status_code == 200
    return False


if __name__ == "__main__":
    sys.exit(main())
