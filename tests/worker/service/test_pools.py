"""Which machine may serve which pool, and what `spool-worker check` says of this one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ops.testbed.fake_models import LOADER
from spool.errors import SettingsError
from spool.settings import Settings
from worker.diagnostics import check_machine
from worker.machine import Hardware, refuse_wrong_pool, this_machine

ROOT = Path(__file__).parents[3]
MAC = Hardware("studio", "Darwin", "arm64", "Apple M4 Max", 16, 64 * 2**30, apple_gpu=True)
LINUX = Hardware("box", "Linux", "x86_64", "AMD EPYC", 2, 8 * 2**30, apple_gpu=False)


def test_the_pool_metal_needs_an_apple_gpu() -> None:
    refuse_wrong_pool("metal", MAC)
    with pytest.raises(SettingsError, match=r"AMD EPYC.*has none; set SPOOL_POOL=cpu"):
        refuse_wrong_pool("metal", LINUX)


@pytest.mark.parametrize("hardware", [MAC, LINUX])
def test_other_pools_run_anywhere(hardware: Hardware) -> None:
    refuse_wrong_pool("cpu", hardware)
    refuse_wrong_pool("night", hardware)


def test_this_machine_says_what_it_is() -> None:
    hardware = this_machine()
    assert hardware.chip
    assert hardware.cores >= 1
    assert hardware.memory > 2**28
    assert hardware.apple_gpu == (sys.platform == "darwin" and hardware.machine == "arm64")


@pytest.mark.integration
def test_a_worker_for_metal_refuses_in_one_sentence() -> None:
    """The command as a user meets it, told that there is no GPU, so that a Mac runs this test too."""
    code = (
        "import dataclasses, worker.machine.hardware as h, worker.app as a, worker.cli.main as m\n"
        "machine = dataclasses.replace(h.this_machine(), apple_gpu=False)\n"
        "a.this_machine = lambda: machine\n"
        "m.main()"
    )
    env = {key: value for key, value in os.environ.items() if not key.startswith("SPOOL_")}
    answer = subprocess.run(
        [sys.executable, "-c", code, "run", "--pool", "metal"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=env,
    )
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert len(answer.stderr.strip().splitlines()) == 1
    assert "needs an Apple GPU" in answer.stderr


def test_the_check_finds_nothing_wrong_where_nothing_is(
    make_settings: Callable[..., Settings], sqlite_url: str, redis_url: str
) -> None:
    settings = make_settings(
        database_url=sqlite_url, redis_url=redis_url, models={"plain": "plain"}, default_model="plain"
    )
    findings = {finding.name: finding for finding in check_machine(settings, LOADER)}
    assert not [finding for finding in findings.values() if finding.level == "fail"]
    assert {"machine", "gpu", "mlx", "disk", "database", "broker", "object store", "engine"} <= set(findings)
    assert "tdt" in findings["model plain"].text


@pytest.mark.integration
def test_the_check_names_what_is_missing_and_what_to_do(
    make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    settings = make_settings(
        redis_url="redis+socket:///nowhere/redis.sock",
        models={"none": "load-fails"},
        default_model="none",
        pool="metal",
    )
    findings = {finding.name: finding for finding in check_machine(settings, LOADER)}
    for name in ("database", "broker", "model none"):
        assert findings[name].level == "fail"
        assert findings[name].advice
    if not this_machine().apple_gpu:
        assert findings["gpu"].level == "fail"


@pytest.mark.integration
def test_the_check_as_a_command_fails_with_json(tmp_path: Path) -> None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("SPOOL_")}
    answer = subprocess.run(
        [sys.executable, "-m", "worker.cli.main", "check", "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**env, "SPOOL_HOME": str(tmp_path), "SPOOL_MODELS": f"demo-tdt={ROOT}/models/demo"},
    )
    findings = {finding["name"]: finding for finding in json.loads(answer.stdout)}
    assert answer.returncode == 1
    assert findings["broker"]["level"] == "fail"
    assert findings["model demo-tdt"]["level"] == "ok"


def test_hardware_reads_as_one_line() -> None:
    assert str(replace(MAC, memory=2**34)) == "Apple M4 Max, 16 cores, 16 GiB, Darwin arm64"
