"""Tries every mutation: whether the simulation finds it, by which run, and how long that took.

`known.txt` has a small run for each mutation that has been found; it is tried first. New seeds follow for the
others, while time is left.
"""

import itertools
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from tests.simulation.mutations.defects import DEFECTS
from tests.simulation.shrinking import Size, find_law, read_sizes

KNOWN = Path(__file__).with_name("known.txt")
BUDGET_S = 570.0
"""The whole table takes no longer on two cores."""
SIZES = (Size(0, 0.5, 400, 200, 4), Size(0, 0.5, 400, 200, 4), Size(0, 1, 400, 200, 4))
"""With new seeds; a run of one takes some ten to thirty seconds."""
WANTED = 0.88


@dataclass(frozen=True)
class Trial:
    """What became of one mutation; `law`: what `size` breaks with it, empty if no run that was tried does."""

    name: str
    size: Size | None
    seconds: float
    law: str

    def __str__(self) -> str:
        """A line of the table."""
        if self.size is None or not self.law:
            return f"{self.name:32} {self.seconds:6.1f} s  NOT FOUND"
        command = f"make simulate MUTATION={self.name} {self.size.variables}"
        return f"{self.name:32} {self.seconds:6.1f} s  found: {self.law}\n    {command}"


def read_known() -> dict[str, Size]:
    """A run for each mutation that has been found."""
    return {name: size for (name,), size in read_sizes(KNOWN, 1)}


def try_all(first: int, keep: bool = False, budget_s: float = BUDGET_S) -> int:
    """Try every mutation, and print a table. `first`: the first new seed; `keep`: write down what was found
    in `known.txt`. The exit code is 1 if a run breaks a law without a mutation, or fewer than `WANTED` of the
    mutations are found."""
    began = time.monotonic()
    search = _Search(began + budget_s)
    trials = search.try_known(read_known())
    trials |= search.try_new([name for name in DEFECTS if name not in trials], first)
    for name in DEFECTS:
        if name not in trials:
            print(Trial(name, None, search.spent[name], ""), flush=True)
    print(f"{len(trials)} of {len(DEFECTS)} found in {time.monotonic() - began:.0f} s")
    if keep:
        _keep(trials)
    return 1 if search.broken or len(trials) < WANTED * len(DEFECTS) else 0


class _Search:
    """Runs on as many cores as there are, until `end`."""

    def __init__(self, end: float) -> None:
        self._end = end
        self._pool = ThreadPoolExecutor(os.cpu_count())
        self._clean: dict[Size, Future[str]] = {}
        self.broken: set[Size] = set()
        """Runs that break a law without a mutation."""
        self.spent = dict.fromkeys(DEFECTS, 0.0)
        """Seconds, by mutation."""

    def try_known(self, known: Mapping[str, Size]) -> dict[str, Trial]:
        """The mutations that are found by the runs that are known to find them."""
        return self._try_each({name: known[name] for name in DEFECTS if name in known})

    def try_new(self, names: list[str], first: int) -> dict[str, Trial]:
        """Those of these that are found by new seeds."""
        found: dict[str, Trial] = {}
        for size in self._make_new(first):
            missing = [name for name in names if name not in found]
            if not missing or time.monotonic() > self._end:
                break
            sizes = {name: replace(size, database=DEFECTS[name].database) for name in missing}
            found |= self._try_each(sizes)
        return found

    @staticmethod
    def _make_new(first: int) -> Iterator[Size]:
        for seed, size in zip(itertools.count(first), itertools.cycle(SIZES), strict=False):
            yield replace(size, seed=seed)

    def _try_each(self, sizes: Mapping[str, Size]) -> dict[str, Trial]:
        """Try each mutation with its run. A run that breaks a law by itself finds nothing."""
        for size in dict.fromkeys(sizes.values()):
            if size not in self._clean:
                self._clean[size] = self._pool.submit(self._find_law, size, None)
        found = {}
        for trial in self._pool.map(self._try, sizes, sizes.values()):
            if trial.law and trial.size is not None and self._is_clean(trial.size):
                print(trial, flush=True)
                found[trial.name] = trial
        return found

    def _try(self, name: str, size: Size) -> Trial:
        began = time.monotonic()
        law = self._find_law(size, name)
        self.spent[name] += time.monotonic() - began
        return Trial(name, size, time.monotonic() - began, law)

    def _is_clean(self, size: Size) -> bool:
        law = self._clean[size].result()
        if law and size not in self.broken:
            print(f"{size.variables} breaks a law without a mutation: {law}", flush=True)
            self.broken.add(size)
        return not law

    def _find_law(self, size: Size, mutation: str | None) -> str:
        left_s = self._end - time.monotonic()
        if left_s <= 0:
            return ""
        try:
            return find_law(size, mutation, left_s)
        except subprocess.TimeoutExpired:
            return ""


def _keep(trials: Mapping[str, Trial]) -> None:
    """Write down the runs that find mutations, beside those that are known of the others."""
    sizes = read_known() | {name: trial.size for name, trial in trials.items() if trial.size is not None}
    comments = [line for line in KNOWN.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    lines = [f"{name} {sizes[name]}" for name in DEFECTS if name in sizes]
    KNOWN.write_text("\n".join([*comments, *lines]) + "\n", encoding="utf-8")
