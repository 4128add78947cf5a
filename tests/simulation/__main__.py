"""`make simulate`: one run, or one for each mutation. The last line says how it ended."""

import argparse
import os
import signal
import sys
import time

from tests.simulation.database import DATABASES
from tests.simulation.mutations.planting import DoesNotApply, plant
from tests.simulation.mutations.trying import try_all
from tests.simulation.product import NoSuchVersion


def main() -> int:
    """Run what the command line asks for; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="an integer; a new one without it")
    parser.add_argument("--hours", type=float, default=40.0, help="worker-hours")
    parser.add_argument("--jobs", type=float, default=20.0, help="jobs an hour")
    parser.add_argument("--faults", type=float, default=20.0, help="faults an hour")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--database", choices=DATABASES, default=DATABASES[0])
    parser.add_argument("--show", action="store_true", help="print the whole timeline")
    parser.add_argument("--older", help="half of the workers run this commit, or the tree in this folder")
    parser.add_argument("--stop-at-first", action="store_true", help="end at the first violation")
    parser.add_argument("--mutation", help="plant this defect first; `all` tries each and prints a table")
    parser.add_argument("--keep", action="store_true", help="with all mutations: write down what was found")
    asked = parser.parse_args()
    seed = time.time_ns() % 1_000_000 if asked.seed is None else asked.seed
    if asked.mutation == "all":
        return try_all(seed, keep=asked.keep)
    if asked.mutation is not None:
        try:
            plant(asked.mutation)
        except DoesNotApply as error:
            print(error, file=sys.stderr)
            return 2
    from tests.simulation.world import Plan, run  # after a defect is planted

    began = time.monotonic()
    plan = Plan(
        seed,
        asked.hours,
        asked.workers,
        jobs_an_hour=asked.jobs,
        faults_an_hour=asked.faults,
        database=asked.database,
        older=asked.older,
        stop_at_first=asked.stop_at_first,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a server of the run's own ends, too
    try:
        ending = run(plan, print if asked.show else None)
    except NoSuchVersion as error:
        print(error, file=sys.stderr)
        return 2
    took = time.monotonic() - began
    if ending.timeline.violations and not asked.show:
        print(*ending.timeline.lines, sep="\n")
    print(f"{ending.virtual_hours:.1f} virtual hours in {took:.1f} s", file=sys.stderr)
    print(ending, flush=True)
    return 1 if ending.timeline.violations else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of a set of texts depends on it
        command = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of killed processes must not be collected
