"""What the queue costs the engine: the same files through `spool-worker transcribe` and through real workers.

    python -m ops.bench.queue.queue_cost --workers 1 2
    python -m ops.bench.queue.queue_cost --long 0 --rounds 3 --trees ../before .

Workers as in production (`spool-worker run`) over a PostgreSQL that waits for the disk and a Redis of their
own, the demo model, one thread an engine; many short recordings and a few long ones, all submitted at once.
*Idle* is the share of the time in which jobs waited and the engine had nothing on its device, by the engine's
own clock. *Speed* is audio over time; of `transcribe` without its start, which a run over one short file
takes. No speech detector listens on either way. The milliseconds of processor that a job takes are the
worker's own process' and its engine's, without their start. With several workers the last column is their
speed over that of the first row of workers. `--trees` names checkouts whose workers take turns, each round
anew.
"""

import argparse
import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import psutil
from sqlalchemy import func, select

import migrations
from ops.bench.queue.stock import DURABLE
from ops.soak.load import Recording, recordings
from ops.testbed.postgres import PostgresServer
from ops.testbed.processes import REAL, ROOT, Fleet, drained, engine_of
from spool.broker.embedded_redis import EmbeddedRedis, temporary_home
from spool.domain.jobs import JobState
from spool.store.database import Database
from spool.tables import jobs, workers

TARGET = 0.02
TWICE = 1.8
MODEL = ROOT / "models" / "demo"
THREADS = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "SPOOL_KERNEL_THREADS"), "1")
BEAT_SECONDS = 0.25
PATIENCE_SECONDS = 600.0


@dataclass
class Watch:
    """Samples of each worker's engine while jobs wait: its clock, and how long it had been at work by it."""

    samples: dict[str, list[tuple[datetime, int]]] = field(default_factory=dict)

    def look(self, db: Database) -> int:
        """How many jobs have not ended."""
        with db.read() as tx:
            states: dict[str, int] = dict(
                tx.execute(select(jobs.c.state, func.count()).group_by(jobs.c.state)).all()
            )
            rows = tx.execute(
                select(workers.c.name, workers.c.seen_at, workers.c.engine_busy_ns + workers.c.unbilled_ns)
            ).all()
        if states.get(JobState.QUEUED.value):
            for name, seen, busy in rows:
                values = self.samples.setdefault(name, [])
                if busy and (not values or values[-1][0] != seen):
                    values.append((seen, int(busy)))
        return sum(number for state, number in states.items() if not JobState(state).terminal)

    @property
    def idle(self) -> float | None:
        """The share of the time, over all workers; None where there was no time between two samples."""
        spans = [(found[0], found[-1]) for found in self.samples.values() if len(found) > 1]
        wall = sum((last[0] - first[0]).total_seconds() for first, last in spans)
        busy = sum(last[1] - first[1] for first, last in spans) / 1e9
        return 1 - busy / wall if wall else None


def without_queue(files: Sequence[Recording], least: Path, decoder: Sequence[str]) -> float:
    """Seconds that `spool-worker transcribe` takes for these files, its start left out: that is what a run
    over the `least` recording takes."""

    def run(paths: Sequence[Path]) -> float:
        began = time.perf_counter()
        command = [
            sys.executable,
            "-m",
            "worker.cli.main",
            "transcribe",
            *map(str, paths),
            "--model",
            str(MODEL),
            "--no-speech-detector",
        ]
        subprocess.run(
            [*command, *decoder], cwd=ROOT, env=os.environ | THREADS, stdout=subprocess.DEVNULL, check=True
        )
        return time.perf_counter() - began

    run([least])  # compiles what is not in the cache yet
    start = run([least])
    return run([one.path for one in files]) - start


@contextlib.contextmanager
def working(fleet: Fleet, count: int, tree: Path) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """So many workers of this checkout that are ready; drained at the end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOOL_")}
    running = [
        subprocess.Popen(
            [sys.executable, *REAL],
            env=kept | fleet.environment | {"SPOOL_WORKER_NAME": f"worker-{number}", "PYTHONPATH": str(tree)},
            cwd=tree,
            stderr=subprocess.DEVNULL,
        )
        for number in range(count)
    ]
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while sum(worker.state == "ready" for worker in fleet.workers()) < count:
            if time.monotonic() > deadline or any(process.poll() is not None for process in running):
                raise RuntimeError("the workers did not start")
            time.sleep(BEAT_SECONDS)
        yield running
    finally:
        for process in running:
            drained(process)


def through_queue(
    fleet: Fleet, files: Sequence[Recording], count: int, decoder: str, tree: Path
) -> tuple[float, Watch, str]:
    """Seconds from the first claim to the last ending, what was seen meanwhile, and the milliseconds of
    processor that a job took."""
    with working(fleet, count, tree) as running:
        before = processor_seconds(running)
        took, watch = _through(fleet, files, decoder)
        used = processor_seconds(running)
    used.subtract(before)
    each = [f"{1000 * used[part] / len(files):.1f}" for part in ("worker", "engine")]
    return took, watch, " + ".join(each)


def processor_seconds(workers: Sequence["subprocess.Popen[bytes]"]) -> Counter[str]:
    """What the workers' own processes have used, and what their engines have."""
    used: Counter[str] = Counter()
    for worker in workers:
        for part, pid in (("worker", worker.pid), ("engine", engine_of(worker.pid))):
            times = psutil.Process(pid).cpu_times()
            used[part] += times.user + times.system  # type: ignore[assignment]
    return used


def _through(fleet: Fleet, files: Sequence[Recording], decoder: str) -> tuple[float, Watch]:
    fleet.submit_together([one.path for one in files], "demo-tdt", decoder=decoder)
    watch, deadline = Watch(), time.monotonic() + PATIENCE_SECONDS
    while watch.look(fleet.db):
        if time.monotonic() > deadline:
            raise RuntimeError("not all jobs ended")
        time.sleep(BEAT_SECONDS / 2)
    with fleet.db.read() as tx:
        first, last, done = tx.execute(
            select(
                func.min(jobs.c.started_at),
                func.max(jobs.c.finished_at),
                func.count().filter(jobs.c.state == JobState.DONE.value),
            )
        ).one()
    if done != len(files):
        raise RuntimeError(f"{done} of {len(files)} jobs are done")
    return (last - first).total_seconds(), watch


@contextlib.contextmanager
def stack(server: PostgresServer, sources: Path, concurrency: int) -> Iterator[Fleet]:
    """An empty database, an empty Redis, and no worker yet."""
    home = temporary_home()
    url = server.create_database("queue_cost")
    migrations.upgrade(url)
    environment = {
        "SPOOL_SOURCE_ROOTS": str(sources),
        "SPOOL_LEASE_SECONDS": "60",
        "SPOOL_SWEEP_SECONDS": "5",
        "SPOOL_HINT_STALE_SECONDS": "30",
        "SPOOL_HEARTBEAT_SECONDS": str(BEAT_SECONDS),
        "SPOOL_CONCURRENCY": str(concurrency),
        "SPOOL_LOG_JSON": "true",
    }
    try:
        with EmbeddedRedis(home) as redis:
            fleet = Fleet(home, url, redis.url, **environment, **THREADS)
            try:
                yield fleet
            finally:
                fleet.close()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def compared(
    server: PostgresServer, name: str, files: Sequence[Recording], least: Path, arguments: argparse.Namespace
) -> list[str]:
    """Print a row of `transcribe` and one for each checkout and number of workers; what missed its target."""
    audio, missed = sum(one.seconds for one in files), []
    alone = without_queue(files, least, ["--decoder", arguments.decoder])
    row(name, "transcribe", audio / alone, "", "", "", "")
    first = 0.0
    for tree, count in itertools.product(arguments.trees, arguments.workers):
        with stack(server, files[0].path.parent, arguments.concurrency) as fleet:
            took, watch, processor = through_queue(fleet, files, count, arguments.decoder, tree.resolve())
        speed = audio / took
        first = first or speed
        idle = watch.idle
        verdict = "too short" if idle is None else f"{idle:.1%} {'pass' if idle <= TARGET else 'MISS'}"
        if idle is not None and idle > TARGET:
            missed.append(f"{name}, {count} workers: idle")
        against = ""
        if count == 2 * arguments.workers[0]:
            against = f"{speed / first:.2f} {'pass' if speed / first >= TWICE else 'MISS'}"
            missed += [f"{name}: {count} workers"] if speed / first < TWICE else []
        row(
            name,
            f"{count} worker{'s' * (count > 1)}" + f" of {tree}" * (len(arguments.trees) > 1),
            speed,
            verdict,
            processor,
            f"{speed * alone / audio:.2f}",
            against,
        )
    return missed


def row(name: str, how: str, speed: float, idle: str, processor: str, over: str, twice: str) -> None:
    """A row of the table."""
    load = os.getloadavg()[0]
    print(
        f"| {name} | {how} | {speed:.0f} | {idle} | {processor} | {over} | {twice} | {load:.1f} |", flush=True
    )


def main() -> int:
    """Print the table; the exit code is 1 when a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", type=int, default=600, help="recordings of 3 to 8 s")
    parser.add_argument("--long", type=int, default=24)
    parser.add_argument("--long-seconds", type=float, default=300.0)
    parser.add_argument("--workers", type=int, nargs="+", default=[1])
    parser.add_argument("--trees", type=Path, nargs="+", default=[ROOT], help="checkouts of the workers")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=8, help="SPOOL_CONCURRENCY")
    parser.add_argument("--decoder", choices=("greedy", "beam"), default="greedy")
    arguments = parser.parse_args()
    folder, missed = Path(tempfile.mkdtemp(prefix="spool-bench-")), []
    server = PostgresServer(settings=DURABLE)
    try:
        server.start()
        print(
            "| files | how | speed | idle while jobs wait, ≤ 2 % | ms a job, worker + engine "
            "| over transcribe | over one, ≥ 1.8 | load |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for name, short, long in (("short", arguments.short, 0), ("long", 0, arguments.long)):
            # One long one comes before a short one each.
            paths = list(recordings(folder / name, max(short, long, 1), long, arguments.long_seconds, 1))
            files = [one for one in paths if one.long == bool(long)]
            assert len(files) == (long or max(short, 1))
            if short or long:
                least = next(one.path for one in paths if not one.long)
                for _ in range(arguments.rounds):
                    missed += compared(server, name, files, least, arguments)
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"missed: {', '.join(missed)}" if missed else "every target held")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
