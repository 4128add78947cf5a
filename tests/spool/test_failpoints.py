"""Failpoints: harmless unless armed, each in the code exactly where the list says, once among processes."""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spool import failpoints
from spool.failpoints import NAMES, failpoint, parse_failpoints

ROOT = Path(__file__).parents[2]


def calls() -> list[str]:
    found: list[str] = []
    for path in sorted(path for floor in ("spool", "api", "worker") for path in (ROOT / floor).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "failpoint":
                (argument,) = node.args
                assert isinstance(argument, ast.Constant), f"{path}: a failpoint is named in words"
                assert isinstance(argument.value, str)
                found.append(argument.value)
    return found


def test_each_named_place_is_in_the_code() -> None:
    assert set(calls()) == set(NAMES)


def test_nothing_is_armed_here() -> None:
    assert failpoints._act is None
    for name in NAMES:
        failpoint(name)
    assert not failpoints._passes


def test_what_is_not_known_is_refused() -> None:
    assert parse_failpoints(" save.begun=kill:2; relay.sent=sleep:0.5 ;") == {
        "save.begun": ("kill", 2.0),
        "relay.sent": ("sleep", 0.5),
    }
    for text in ("save.began=kill", "save.begun=explode", "save.begun", "save.begun=kill:x"):
        with pytest.raises(ValueError, match=r"not a failpoint|float"):
            parse_failpoints(text)


def run(armed: str, *names: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    code = f"""
from spool.failpoints import failpoint
for name in {names!r}:
    try:
        failpoint(name)
        print(name)
    except Exception as error:
        print(type(error).__name__)
"""
    told = {"SPOOL_FAILPOINTS": armed} | ({"SPOOL_FAILPOINTS_FIRED": str(folder)} if folder else {})
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **told},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.integration
def test_a_process_is_killed_at_the_pass_that_was_asked_for() -> None:
    done = run("save.begun=kill:3", "save.begun", "save.written", "save.begun", "save.begun", "save.begun")
    assert done.returncode == -signal.SIGKILL


@pytest.mark.integration
def test_an_error_is_raised_once() -> None:
    done = run("save.begun=raise", "save.begun", "save.begun", "save.written")
    assert done.stdout.split() == ["StorageError", "save.begun", "save.written"]


@pytest.mark.integration
def test_a_file_arms_later_and_a_folder_lets_one_process_fire(tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    armed = f"@{plan}"
    fired = tmp_path / "fired"
    fired.mkdir()
    assert run(armed, "save.begun", folder=fired).returncode == 0, "the file is not there yet"
    plan.write_text("save.begun=kill")
    assert run(armed, "save.begun", folder=fired).returncode == -signal.SIGKILL
    assert (fired / "save.begun").exists()
    assert run(armed, "save.begun", folder=fired).stdout.split() == ["save.begun"]
