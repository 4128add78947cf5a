"""Tries every mutation: whether the simulation finds it, with which seed, and how long that took."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.simulation.mutations.defects import DEFECTS

HOURS, JOBS, FAULTS = 2.0, 300.0, 150.0
SEEDS = 3
WANTED = 0.88


@dataclass(frozen=True)
class Trial:
    """What became of one mutation; `law`: what it was found by, empty if it was not."""

    name: str
    seed: int
    seconds: float
    law: str


def try_all(first: int, names: list[str] | None = None) -> int:
    """Try these mutations, by default all, with `SEEDS` seeds from `first` on, and print a table. Seeds that
    break a law without a mutation are left out and named. The exit code is 1 if there is one, or fewer than
    `WANTED` of the mutations are found."""
    began = time.monotonic()
    chosen = list(DEFECTS) if names is None else names
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        seeds = range(first, first + SEEDS)
        broken = {
            seed: law
            for seed, law in zip(seeds, pool.map(lambda seed: _find_law(seed, []), seeds), strict=True)
            if law
        }
        for seed, law in broken.items():
            print(f"seed {seed} breaks a law without a mutation: {law}", flush=True)
        sound = [seed for seed in seeds if seed not in broken]
        trials = []
        for trial in pool.map(lambda name: _try(name, sound), chosen):
            said = f"found by seed {trial.seed}: {trial.law}" if trial.law else "NOT FOUND"
            print(f"{trial.name:32} {trial.seconds:6.1f} s  {said}", flush=True)
            trials.append(trial)
    found = sum(bool(trial.law) for trial in trials)
    print(f"{found} of {len(trials)} found in {time.monotonic() - began:.0f} s")
    return 1 if broken or found < WANTED * len(trials) else 0


def _try(name: str, seeds: Sequence[int]) -> Trial:
    began, law, seed = time.monotonic(), "", 0
    for seed in seeds:
        law = _find_law(seed, ["--mutation", name, "--database", DEFECTS[name].database])
        if law:
            break
    return Trial(name, seed, time.monotonic() - began, law)


def _find_law(seed: int, planted: Sequence[str]) -> str:
    """The law that a run breaks, empty if it breaks none."""
    command = [sys.executable, "-m", "tests.simulation", *planted, "--seed", str(seed), "--stop-at-first"]
    command += ["--hours", str(HOURS), "--jobs", str(JOBS), "--faults", str(FAULTS)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONHASHSEED": "0"}
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-1000:]}")
    laws = [line for line in done.stdout.splitlines() if "VIOLATION of" in line]
    return laws[0].partition("VIOLATION of ")[2].partition(":")[0] if laws else ""
