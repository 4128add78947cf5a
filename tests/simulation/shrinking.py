"""Makes a run that breaks a law smaller, and keeps it as a regression test.

`python -m tests.simulation.shrinking --seed 31 --hours 40 [--mutation NAME]` halves the hours, jobs and
faults and takes workers away, for as long as the same law is broken, and adds what is left to `seeds.txt`,
which `tests/simulation/test_simulation.py` runs.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.simulation.database import DATABASES

KEPT = Path(__file__).with_name("seeds.txt")


@dataclass(frozen=True)
class Size:
    """A run's options; `jobs` and `faults` an hour."""

    seed: int
    hours: float
    jobs: float
    faults: float
    workers: int
    database: str = DATABASES[0]

    @property
    def options(self) -> list[str]:
        """For `python -m tests.simulation`."""
        values = {"seed": self.seed, "hours": self.hours, "jobs": self.jobs, "faults": self.faults}
        values |= {"workers": self.workers}
        numbers = [text for name, value in values.items() for text in (f"--{name}", f"{value:g}")]
        return [*numbers, "--database", self.database]

    @property
    def variables(self) -> str:
        """For `make simulate`."""
        options = self.options
        pairs = zip(options[::2], options[1::2], strict=True)
        return " ".join(f"{name.removeprefix('--').upper()}={value}" for name, value in pairs)

    def __str__(self) -> str:
        """As `read_sizes` reads it."""
        return " ".join(self.options[1::2])

    def smaller(self) -> Iterator["Size"]:
        """Smaller ones, the boldest first."""
        yield replace(self, hours=self.hours / 2)
        yield replace(self, jobs=self.jobs / 2)
        yield replace(self, faults=self.faults / 2)
        if self.workers > 1:
            yield replace(
                self, workers=self.workers - 1, hours=self.hours * (self.workers - 1) / self.workers
            )


def read_sizes(file: Path, before: int) -> list[tuple[list[str], Size]]:
    """The runs in this file, each with the `before` words in front of it."""
    lines = [line.partition("#")[0].split() for line in file.read_text(encoding="utf-8").splitlines()]
    sizes = []
    for words in filter(None, lines):
        seed, hours, jobs, faults, workers, database = words[before:]
        size = Size(int(seed), float(hours), float(jobs), float(faults), int(workers), database)
        sizes.append((words[:before], size))
    return sizes


def read_kept() -> list[Size]:
    """The runs that are regression tests."""
    return [size for _, size in read_sizes(KEPT, 0)]


def find_law(size: Size, mutation: str | None, timeout_s: float | None = None) -> str:
    """The first law that the run breaks; empty if it breaks none. Raises subprocess.TimeoutExpired."""
    planted = [] if mutation is None else ["--mutation", mutation]
    command = [sys.executable, "-m", "tests.simulation", *planted, *size.options, "--stop-at-first"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as running:
        try:
            out, said = running.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            running.terminate()  # not killed: a server of its own has to end with it
            running.communicate()
            raise
    if running.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)} ended with {running.returncode}: {said[-2000:]}")
    broken = [line for line in out.splitlines() if "VIOLATION of " in line]
    return broken[0].partition("VIOLATION of ")[2].partition(":")[0] if broken else ""


def shrink(size: Size, mutation: str | None = None) -> tuple[Size, str]:
    """The smallest run that was found to break the same law, and the law; empty if it breaks none."""
    law = find_law(size, mutation)
    tried = {size}
    while law:
        for smaller in size.smaller():
            if smaller in tried:
                continue
            tried.add(smaller)
            if find_law(smaller, mutation) == law:
                print(*smaller.options, flush=True)
                size = smaller
                break
        else:
            break
    return size, law


def main() -> int:
    """Shrink what the command line names; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.shrinking", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--hours", type=float, default=40.0)
    parser.add_argument("--jobs", type=float, default=20.0)
    parser.add_argument("--faults", type=float, default=20.0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--database", choices=DATABASES, default=DATABASES[0])
    parser.add_argument("--mutation", help="with this defect; then nothing is kept")
    asked = parser.parse_args()
    start = Size(asked.seed, asked.hours, asked.jobs, asked.faults, asked.workers, asked.database)
    size, law = shrink(start, asked.mutation)
    if not law:
        print(f"seed {asked.seed} breaks no law", file=sys.stderr)
        return 1
    print(f"{law}: python -m tests.simulation {' '.join(size.options)}")
    if asked.mutation is None:
        with KEPT.open("a", encoding="utf-8") as file:
            file.write(f"{size}  # {law}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
