"""Tries every mutation: whether the simulation finds it, with which seed, and how long that took."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.simulation.mutations.defects import DEFECTS

HOURS, JOBS, FAULTS = 3.0, 700.0, 240.0
SEEDS = 3


@dataclass(frozen=True)
class Trial:
    """What became of one mutation; `law`: what it was found by, empty if it was not."""

    name: str
    seed: int
    seconds: float
    law: str


def try_all(seed: int, names: list[str] | None = None) -> int:
    """Try these mutations, by default all, with `SEEDS` seeds from `seed` on, and print a table; the exit
    code is 1 if fewer than four of five are found."""
    began = time.monotonic()
    chosen = list(DEFECTS) if names is None else names
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        trials = []
        for trial in pool.map(lambda name: _try(name, seed), chosen):
            said = f"found by seed {trial.seed}: {trial.law}" if trial.law else "NOT FOUND"
            print(f"{trial.name:32} {trial.seconds:6.1f} s  {said}", flush=True)
            trials.append(trial)
    found = sum(bool(trial.law) for trial in trials)
    print(f"{found} of {len(trials)} found in {time.monotonic() - began:.0f} s")
    return 0 if found >= 0.8 * len(trials) else 1


def _try(name: str, first: int) -> Trial:
    began = time.monotonic()
    for seed in range(first, first + SEEDS):
        command = [sys.executable, "-m", "tests.simulation", "--mutation", name, "--seed", str(seed)]
        command += ["--hours", str(HOURS), "--jobs", str(JOBS), "--faults", str(FAULTS)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{name}: the run ended with {done.returncode}: {done.stderr[-1000:]}")
        laws = [line for line in done.stdout.splitlines() if "VIOLATION of" in line]
        if laws:
            law = laws[0].partition("VIOLATION of ")[2].partition(":")[0]
            return Trial(name, seed, time.monotonic() - began, law)
    return Trial(name, first, time.monotonic() - began, "")
