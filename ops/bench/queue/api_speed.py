"""How fast the API answers with 1,000,000 jobs in the table, each figure beside its target.

    python -m ops.bench.queue.api_speed --folder DIR
    python -m ops.bench.queue.api_speed --folder DIR --only reads --processes 1 --seconds 30

`python -m api` as in production, in processes of its own, over a PostgreSQL that waits for the disk (kept and
filled once in the folder, `ops.bench.queue.stock`) and a Redis of its own; a lean client on this machine
(`ops.bench.queue.http_load`) with a key a project, within the default rate limit. No worker runs. Each row
says what the machine's load was; the exit code is 1 when a target was missed.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
from sqlalchemy import delete

from ops.bench.engine.processor import cpu_seconds
from ops.bench.queue import http_load
from ops.bench.queue.http_load import Load, Next, request
from ops.bench.queue.stock import batch_id, job_id, stocked
from spool.broker.embedded_redis import EmbeddedRedis, temporary_home
from spool.domain.api_keys import Scope
from spool.store import Database
from spool.store.api_keys import create_key
from spool.tables import api_keys, jobs, outbox

PROJECTS = 20
NAME = "api_speed"
READS, READ_MS, SUBMISSIONS, REPORT_S, PAGE_MS = 500.0, 50.0, 150.0, 1.0, 200.0
GROUPS = ("day", "project", "model", "worker", "pool", "key", "batch", "tag&tag=client", "tag&tag=box")
ROOT = Path(__file__).parents[3]


@dataclass
class ApiBench:
    """A running API and what asks it."""

    url: str
    api: psutil.Process
    postgres: psutil.Process
    keys: list[str]
    admin: str
    rows: int
    seconds: float
    connections: int
    source: Path
    missed: list[str] = field(default_factory=list)

    def say(self, name: str, target: str, figure: str, held: bool, note: str = "") -> None:
        """A row of the table."""
        if not held:
            self.missed.append(name)
        load = os.getloadavg()[0]
        print(
            f"| {name} | {target} | {figure} | {'pass' if held else 'MISS'} | {load:.1f} | {note} |",
            flush=True,
        )

    def measured(
        self, follow: Callable[[int], Next], connections: int = 0, seconds: float = 0
    ) -> tuple[Load, str]:
        """Load from so many connections, and the processor time of an answer in API and PostgreSQL."""
        count = connections or self.connections
        before = cpu_seconds(self.api), cpu_seconds(self.postgres)
        load = http_load.run(self.url, [follow(number) for number in range(count)], seconds or self.seconds)
        cost = [
            1000 * (after - then) / max(1, len(load.seconds))
            for after, then in zip((cpu_seconds(self.api), cpu_seconds(self.postgres)), before, strict=True)
        ]
        if not load.all_well:
            raise RuntimeError(f"{dict(load.statuses)} {load.example[:300]!r}")
        return load, f"{cost[0]:.2f} ms of the API's processor, {cost[1]:.2f} ms of PostgreSQL's"

    def gets(self, path: Callable[[random.Random, int], str], admin: bool = False) -> Callable[[int], Next]:
        """Connections that ask for what `path` says, by a die and the number of a project."""

        def follow(number: int) -> Next:
            dice, project = random.Random(number), number % PROJECTS
            headers = {"Authorization": f"Bearer {self.admin if admin else self.keys[project]}"}
            return lambda: request("GET", path(dice, project), headers)

        return follow

    def posts(self, number: int) -> Next:
        """A connection that submits."""
        headers = {
            "Authorization": f"Bearer {self.keys[number % PROJECTS]}",
            "Content-Type": "application/json",
        }
        body = json.dumps({"source": self.source.as_uri(), "name": NAME}).encode()
        return lambda: request("POST", "/v1/jobs", headers, body)


def reads(bench: ApiBench) -> None:
    """Looks at single jobs, any of all there are."""
    of_project = max(1, bench.rows // PROJECTS - 1)

    def path(dice: random.Random, project: int) -> str:
        return f"/v1/jobs/{job_id(PROJECTS * dice.randrange(1, of_project + 1) + project)}"

    load, note = bench.measured(bench.gets(path))
    held = load.per_second >= READS and load.percentile(0.99) <= READ_MS
    figure = f"{load.per_second:.0f}/s, p50 {load.percentile(0.5):.0f} ms, p99 {load.percentile(0.99):.0f} ms"
    bench.say("status reads", f"≥ {READS:.0f}/s, p99 ≤ {READ_MS:.0f} ms", figure, held, note)


def submissions(bench: ApiBench) -> None:
    """Single submissions of a file, each with its key; the relay sends their hints meanwhile."""
    load, note = bench.measured(bench.posts)
    figure = f"{load.per_second:.0f}/s, p50 {load.percentile(0.5):.0f} ms, p99 {load.percentile(0.99):.0f} ms"
    bench.say("single submissions", f"≥ {SUBMISSIONS:.0f}/s", figure, load.per_second >= SUBMISSIONS, note)


def reports(bench: ApiBench) -> None:
    """The cost report of all lines, by each grouping, of all projects; the slower of two."""
    end = datetime.now(UTC).date() + timedelta(days=1)
    for group in GROUPS:
        path = f"/v1/costs?from={end - timedelta(days=400)}&to={end}&group_by={group}"
        took = _slowest(bench, path, admin=True)
        bench.say(f"costs by {group}", f"≤ {REPORT_S:.0f} s", f"{took:.2f} s", took <= REPORT_S)


def pages(bench: ApiBench) -> None:
    """Lists with filters, a batch, the overview and the metrics."""
    since = (datetime.now(UTC) - timedelta(days=9)).strftime("%Y-%m-%dT%H:%M:%SZ")
    asked = {
        "newest jobs": "/v1/jobs",
        "failed jobs": "/v1/jobs?state=failed&limit=200",
        "jobs of a time": f"/v1/jobs?created_to={since}",
        "jobs of a pool": "/v1/jobs?pool=pool1&state=done",
        "batches": "/v1/batches",
        "a batch": f"/v1/batches/{batch_id(PROJECTS)}",
        "overview": "/v1/overview",
    }
    for admin in (True, False):
        for name, path in asked.items():
            took = 1000 * _slowest(bench, path, admin=admin)
            whose = "all projects" if admin else "one project"
            bench.say(f"{name}, {whose}", f"≤ {PAGE_MS:.0f} ms", f"{took:.0f} ms", took <= PAGE_MS)
    took = _slowest(bench, "/metrics", admin=True, times=1)
    bench.say("metrics", f"≤ {REPORT_S:.0f} s", f"{took:.2f} s", took <= REPORT_S, "kept for 5 s and more")


def _slowest(bench: ApiBench, path: str, *, admin: bool, times: int = 2) -> float:
    """Seconds of the slowest of a few, after one that nobody counts."""
    times_seen = []
    for number in range(times + (times > 1)):
        load, _ = bench.measured(bench.gets(lambda _dice, _project: path, admin=admin), 1, 0.001)
        times_seen.append(load.seconds[0])
        del number
    return max(times_seen[1:] or times_seen)


PARTS = {"reads": reads, "submissions": submissions, "reports": reports, "pages": pages}


@contextlib.contextmanager
def running(url: str, postgres: psutil.Process, arguments: argparse.Namespace) -> Iterator[ApiBench]:
    """The API over this database, with keys of its own; what it was asked to write is removed again."""
    database, home = Database(url), temporary_home()
    source = home / "in" / "reel.wav"
    source.parent.mkdir(parents=True)
    source.write_bytes(bytes(1000))
    with database.begin() as tx:
        keys = [create_key(tx, NAME, f"project{n}", [Scope.READ, Scope.SUBMIT]).text for n in range(PROJECTS)]
        admin = create_key(tx, NAME, None, [Scope.ADMIN]).text
    try:
        with (
            EmbeddedRedis(home) as redis,
            _api(url, redis.url, source.parent, home, arguments) as (api, address),
        ):
            yield ApiBench(
                address,
                api,
                postgres,
                keys,
                admin,
                arguments.rows,
                arguments.seconds,
                arguments.connections,
                source,
            )
    finally:
        with database.begin() as tx:
            tx.execute(delete(outbox))
            tx.execute(delete(jobs).where(jobs.c.name == NAME))
            tx.execute(delete(api_keys).where(api_keys.c.name == NAME))
        database.close()
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def _api(
    url: str, redis: str, sources: Path, home: Path, arguments: argparse.Namespace
) -> Iterator[tuple[psutil.Process, str]]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOOL_")}
    environment = {
        "SPOOL_HOME": str(home),
        "SPOOL_DATABASE_URL": url,
        "SPOOL_REDIS_URL": redis,
        "SPOOL_SOURCE_ROOTS": str(sources),
        "SPOOL_API_PROCESSES": str(arguments.processes),
        "SPOOL_LOG_JSON": "1",
    }
    announced, log = home / "api.json", home / "api.log"
    command = [sys.executable, "-m", "api", "--port", "0", "--announce", str(announced)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=kept | environment, cwd=ROOT, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 120
        while not announced.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text()[-2000:])
            time.sleep(0.05)
        yield psutil.Process(process.pid), str(json.loads(announced.read_text())["url"])
    finally:
        process.terminate()
        process.wait(60)


def main() -> int:
    """Measure what is asked for, print the table, and say by the exit code whether all targets were held."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where PostgreSQL's data is kept")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=15.0, help="of reads, and of submissions")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--processes", type=int, default=2, help="SPOOL_API_PROCESSES")
    parser.add_argument("--only", choices=tuple(PARTS), action="append")
    arguments = parser.parse_args()
    with (
        stocked(arguments.folder, arguments.rows) as (server, url),
        running(url, psutil.Process(server.pid), arguments) as bench,
    ):
        print(f"{arguments.rows:,} jobs, {arguments.processes} API processes")
        print("| what | target | here | | load | |\n|---|---|---|---|---|---|")
        for name in arguments.only or PARTS:
            PARTS[name](bench)
    print(f"missed: {', '.join(bench.missed)}" if bench.missed else "every target held")
    return 1 if bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
