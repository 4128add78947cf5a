"""The command that is printed for stopping a stack is the one that works where it is printed."""

import sys
from pathlib import Path

import pytest

from api.local.instance import down_command, spool_command


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script of ours in an environment's folder below the current one, not on the shell's path."""
    script = tmp_path / "a b" / "bin" / "spool"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return script


@pytest.mark.usefixtures("installed")
def test_below_this_folder_it_is_a_short_path() -> None:
    assert spool_command() == "'a b/bin/spool'"
    assert down_command(Path("my data")) == "'a b/bin/spool' down --home 'my data'"


def test_elsewhere_it_is_the_whole_path(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert spool_command() == f"'{installed.relative_to('/')}'"
    monkeypatch.chdir("/usr")
    assert spool_command() == f"'{installed}'"


def test_the_name_is_enough_where_the_shell_finds_this_one(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(installed.parent))
    assert down_command(None) == "spool down"
    another = tmp_path / "spool"
    another.write_text("#!/bin/sh\n")
    another.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert spool_command() == "'a b/bin/spool'", "the shell would start another one"


def test_without_a_script_it_is_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["main.py"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    assert down_command(None) == f"{tmp_path}/python3 -m api.cli.main down"
