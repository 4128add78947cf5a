"""Benches that run a small fleet of real processes: an upgrade under work, models that change places."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.long


def ran(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_upgrade_under_work_loses_no_job() -> None:
    output = ran("ops.bench.queue.rolling", "HEAD", "--seconds", "40")
    jobs, states, lost = re.findall(r"^(\d+) jobs, (\{.*\}), (\d+) lost$", output, re.MULTILINE)[0]
    assert (states, lost) == (f"{{'done': {jobs}}}", "0")
    interrupted = re.findall(r"old worker stopped \(exit 0\) after (\d+) chunks, new one goes on", output)
    assert len(interrupted) == 1


def test_models_that_may_stay_are_loaded_less_often() -> None:
    rows = re.findall(
        r"^\| (\d+) \| (\d+) \| .* \| done \|$", ran("ops.bench.queue.placement", "--jobs", "8"), re.MULTILINE
    )
    loads = {int(stay): int(count) for stay, count in rows}
    assert set(loads) == {20, 0}
    assert 2 <= loads[20] < loads[0]
