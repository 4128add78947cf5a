"""Up to 200 simulated workers on a real PostgreSQL and Redis: what a fleet costs them, and where it bends.

    python -m ops.bench.queue.fleet --folder DIR --rows 1000 1000000 --workers 1 10 50 100 200

What is real and what is simulated stands in `ops.bench.queue.fleet_worker`. The database holds so many jobs
of others (`ops.bench.queue.stock`, filled once in the folder) and enough jobs of this bench for all workers;
the workers live in a few processes. A row says: jobs a second and their share of what the chips could do, the
least and the most that one worker did, milliseconds of a claim (median, 99th percentile), the slowest sweep,
what PostgreSQL did, and the processor time that PostgreSQL, Redis and the workers' processes took.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import structlog

from ops.bench.engine.processor import cpu_seconds
from ops.bench.queue.fleet_servers import Ground, grounded
from ops.bench.queue.fleet_worker import Chip, FleetWorker
from spool.background import sweeper
from spool.settings import load_settings
from worker.jobs import claim

SETTLE_SECONDS = 3.0  # at least; until each worker is through with what it took first


@dataclass(frozen=True, slots=True)
class HostSetup:
    """What a process with workers is given."""

    environment: dict[str, str]
    first: int
    count: int
    chip: Chip
    seconds: float


@dataclass
class Seen:
    """What happened within the measured time, in one process or in all."""

    done: list[int] = field(default_factory=list)
    claims: list[float] = field(default_factory=list)
    sweeps: list[float] = field(default_factory=list)

    def add(self, other: "Seen") -> None:
        """Take in another process's."""
        self.done += other.done
        self.claims += other.claims
        self.sweeps += other.sweeps


def host(setup: HostSetup, parent: "Connection[Any, Any]") -> None:
    """A process: start its workers, measure when told, stop them, tell."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    seen = Seen()
    _time(claim, "_next", seen.claims)
    _time(sweeper, "sweep_once", seen.sweeps)
    workers = []
    for number in range(setup.first, setup.first + setup.count):
        settings = load_settings(setup.environment | {"SPOOL_WORKER_NAME": f"sim-{number}"})
        workers.append(FleetWorker(settings, setup.chip))
        workers[-1].start()
    parent.send("started")
    parent.recv()
    before = [worker.done for worker in workers]
    seen.claims.clear()
    seen.sweeps.clear()
    time.sleep(setup.seconds)
    after = [worker.done for worker in workers]
    result = Seen([new - old for new, old in zip(after, before, strict=True)], [*seen.claims], [*seen.sweeps])
    parent.send(result)
    parent.recv()
    # All at once: each waits for the batch at hand.
    for worker in workers:
        worker.drain()
    for worker in workers:
        worker.stop()
    parent.send("stopped")


def _time(module: Any, name: str, into: list[float]) -> None:  # noqa: ANN401
    """Note how long each call took that came to something."""
    original = getattr(module, name)

    def timed(*args: object, **kwargs: object) -> object:
        began = time.perf_counter()
        answer = original(*args, **kwargs)
        if answer is not None:
            into.append(time.perf_counter() - began)
        return answer

    setattr(module, name, timed)


def measured(ground: Ground, rows: int, count: int, arguments: argparse.Namespace) -> None:
    """Run so many workers for a while and print their row."""
    chip = Chip(arguments.rtfx)
    could = count * arguments.rtfx / arguments.audio
    seconds = arguments.seconds
    settle = max(SETTLE_SECONDS, arguments.concurrency * arguments.audio / arguments.rtfx)
    ground.fill(int(could * (seconds + 2 * settle + 10)) + 4 * count + 200)
    processes = min(arguments.processes, count)
    shares = [count // processes + (number < count % processes) for number in range(processes)]
    context, hosts = multiprocessing.get_context("spawn"), []
    for number, share in enumerate(shares):
        ours, theirs = context.Pipe()
        setup = HostSetup(ground.environment, sum(shares[:number]), share, chip, seconds)
        process = context.Process(target=host, args=(setup, theirs), daemon=True)
        process.start()
        hosts.append((process, ours))
    for _, pipe in hosts:
        pipe.recv()
    time.sleep(settle)
    ground.begin()
    machines = [ground.postgres, ground.redis, *(psutil.Process(process.pid) for process, _ in hosts)]
    before = [cpu_seconds(machine) for machine in machines]
    for _, pipe in hosts:
        pipe.send("measure")
    seen = Seen()
    for _, pipe in hosts:
        seen.add(pipe.recv())
    statements, connections = ground.statements(), _backends(ground.postgres)
    took = [after - then for after, then in zip(map(cpu_seconds, machines), before, strict=True)]
    for _, pipe in hosts:
        pipe.send("stop")
    for process, pipe in hosts:
        pipe.recv()
        process.join()
    _print(rows, count, could, seconds, seen, statements, [*took[:2], sum(took[2:])], connections, arguments)


def _print(
    rows: int,
    count: int,
    could: float,
    seconds: float,
    seen: Seen,
    statements: list[tuple[str, int, float]],
    cpu: list[float],
    connections: int,
    arguments: argparse.Namespace,
) -> None:
    speed = sum(seen.done) / seconds
    claims = sorted(seen.claims) or [0.0]
    tail = claims[min(int(0.99 * len(claims)), len(claims) - 1)]
    calls, busy = sum(each[1] for each in statements), sum(each[2] for each in statements)
    cells = (
        f"{rows:,}",
        f"{count} x {arguments.rtfx:g}",
        f"{speed:.1f}",
        f"{speed / could:.0%}",
        f"{min(seen.done)} to {max(seen.done)}",
        f"{1000 * statistics.median(claims):.1f}, {1000 * tail:.0f}",
        f"{1000 * max(seen.sweeps, default=0.0):.0f}",
        f"{calls / seconds:.0f}",
        f"{busy / seconds / 10:.1f} %",
        str(connections),
        ", ".join(f"{each / seconds:.2f}" for each in cpu),
        f"{os.getloadavg()[0]:.1f}",
    )
    print(f"| {' | '.join(cells)} |", flush=True)
    for text, number, took in statements[: arguments.top]:
        print(f"    {took / seconds:7.2f} ms/s {number / seconds:7.1f}/s  {' '.join(text.split())[:150]}")


def _backends(postgres: psutil.Process) -> int:
    return sum("postgres: spool stock" in " ".join(child.cmdline()) for child in postgres.children())


HEAD = (
    "| jobs in the table | workers x RTFx | jobs/s | of the chips | jobs of one worker | claim, ms |"
    " sweep, ms | statements/s | time in statements | connections |"
    " cores: PostgreSQL, Redis, workers | load |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where PostgreSQL's data is kept")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 10, 50, 100, 200])
    parser.add_argument("--seconds", type=float, default=20.0, help="that are measured")
    parser.add_argument("--audio", type=float, default=60.0, help="seconds of each recording")
    parser.add_argument("--rtfx", type=float, default=20.0, help="of each chip")
    parser.add_argument("--concurrency", type=int, default=2, help="SPOOL_CONCURRENCY")
    parser.add_argument("--processes", type=int, default=2, help="that the workers live in")
    parser.add_argument("--top", type=int, default=0, help="statements to print, by their time")
    arguments = parser.parse_args()
    print(HEAD)
    for rows in arguments.rows:
        with grounded(arguments.folder, rows, arguments.audio, arguments.concurrency) as found:
            for count in arguments.workers:
                measured(found, rows, count, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
