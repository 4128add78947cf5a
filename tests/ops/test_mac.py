"""The service for Macs, on Linux: what only macOS has (tests/ops/mac) is stood in for, the rest is real."""

import hashlib
import json
import os
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ops.testbed.processes import ROOT, alive
from ops.testbed.waiting import until
from tests.ops.a_mac import DEMO, LABEL, Mac
from worker.service import log_into

MAC = ROOT / "ops/mac"
UNCHECKED = {"environment.sh"}  # uses test's -nt, which every sh has and POSIX has not
SCRIPTS = sorted(path for path in (ROOT / "ops").rglob("*.sh") if path.name not in UNCHECKED)


@pytest.fixture
def settings(tmp_path: Path, sqlite_url: str, redis_url: str) -> Path:
    """What a fleet's servers tell its Macs; Linux has no Metal."""
    file = tmp_path / "settings"
    lines = {"DATABASE_URL": sqlite_url, "REDIS_URL": redis_url, "POOL": "cpu", "WORKER_NAME": "mini-1"}
    lines |= {"OBJECTS": (tmp_path / "objects").as_uri(), "HEARTBEAT_SECONDS": "0.5"}
    lines |= {"RATE_CARD": '{"mini-1": {"purchase": 599, "years": 3, "watts": 40, "price_per_kwh": 0.30}}'}
    file.write_text("# of the fleet\n" + "".join(f"SPOOL_{name}={value}\n" for name, value in lines.items()))
    return file


def broken_source(folder: Path) -> Path:
    """This checkout, with a worker that does not pass its check."""
    source = folder / "source"
    names = ("spool", "kernels", "worker", "api", "migrations", "models", "ops/locks", "ops/mac")
    for name in names:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "NOTICE", "ops/environment.sh"):
        shutil.copy(ROOT / name, source / name)
    (source / "worker/cli/check.py").write_text("def check() -> None:\n    raise SystemExit('broken')\n")
    return source


@pytest.mark.timeout(400)  # three starts of a worker and a check, beside other tests
def test_installed_upgraded_gone_back_and_removed(
    mac: Mac, settings: Path, hub: Path, tmp_path: Path
) -> None:
    sha256 = hashlib.sha256((DEMO / "model.safetensors").read_bytes()).hexdigest()
    model = ("--model", "demo=owner/demo@v1", "--sha256", sha256, "--environment", sys.prefix)
    done = mac.script("install", "--settings", str(settings), *model, HF_ENDPOINT=hub.as_uri())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Apple M4, 16 GiB, macOS 15.1" in done.stdout
    assert "mini-1: ready" in done.stdout
    assert mac.calls("launchctl")[-1] == ["bootstrap", "system", str(mac.plist)]
    first = mac.pid
    assert mac.calls("caffeinate") == [[f"-i -s -w {first}"]], "it watches the worker itself"
    assert (mac.app / "var/worker.pid").read_text() == f"{first}\n"
    # The row says so first, and the log once the worker takes messages.
    until(lambda: "ready" in (mac.app / "log/worker.log").read_text(), "the worker's log")
    assert (mac.app / "etc/worker.env").stat().st_mode & 0o777 == 0o600
    release = (mac.app / "current").resolve()
    models = mac.worker("status", "--json")
    assert json.loads(models.stdout)["pid"] == first
    assert (mac.app / "models/demo/tokenizer.model").exists()

    failed = mac.script("upgrade", "--environment", sys.prefix, source=broken_source(tmp_path))
    assert failed.returncode == 1
    assert "draining" in failed.stdout
    assert "the old release is running again" in failed.stderr
    assert not alive(first)
    assert (mac.app / "current").resolve() == release
    assert [place.name for place in (mac.app / "releases").iterdir()] == [release.name]
    assert mac.script("status").stdout.startswith("mini-1: ready")
    second = mac.pid

    removed = mac.script("uninstall")
    assert removed.returncode == 0, removed.stderr
    assert not alive(second)
    assert not mac.plist.exists()
    assert not mac.rotation.exists()
    assert (mac.app / "etc/worker.env").exists()
    assert (mac.app / "models/demo/model.safetensors").exists()
    assert mac.script("status").returncode == 1
    mac.script("uninstall", "--purge")
    assert not mac.app.exists()


def test_a_dry_run_changes_nothing(mac: Mac, settings: Path) -> None:
    options = ("--settings", str(settings), "--model", "m=owner/name", "--sha256", "0" * 64, "--dry-run")
    done = mac.script("install", *options, PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    for words in ("environment.sh", "curl --fail", f"would write: {mac.plist}", "launchctl bootstrap system"):
        assert words in done.stdout
    assert not mac.root.exists()
    assert [words[0] for words in mac.calls("launchctl")] == ["print"]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({"MACHINE": "x86_64"}, "Apple silicon is required (this is x86_64)"),
        ({"MACOS": "13.6"}, "MLX requires macOS 14 or newer (this is 13.6)"),
    ],
)
def test_a_mac_that_cannot_work_is_refused(mac: Mac, told: dict[str, Any], sentence: str) -> None:
    done = mac.script("install", **told)
    assert (done.returncode, sentence in done.stderr) == (1, True)
    assert not mac.root.exists()


def without_python(folder: Path) -> Path:
    """The programs of this machine, but no Python."""
    folder.mkdir()
    for place in ("/usr/local/bin", "/usr/bin", "/bin"):
        for program in Path(place).iterdir():
            if not program.name.startswith("python") and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return folder


@pytest.mark.integration
@pytest.mark.parametrize("command", ["install", "upgrade"])
def test_without_a_suitable_python_it_stops_before_it_changes_anything(
    mac: Mac, settings: Path, tmp_path: Path, command: str
) -> None:
    if command == "upgrade":
        (mac.app / "releases/1").mkdir(parents=True)
        (mac.app / "current").symlink_to("releases/1")
    old = tmp_path / "python2"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    before = list(mac.root.rglob("*"))
    stand_ins = Path(mac.environment["PATH"].split(":")[0])
    path = f"{stand_ins}:{without_python(tmp_path / 'programs')}"
    for python in ("", str(old)):
        done = mac.script(command, "--settings", str(settings), PATH=path, PYTHON=python)
        assert (done.returncode, "Python 3.11 to 3.13 is required" in done.stderr) == (1, True), done.stderr
        assert list(mac.root.rglob("*")) == before


@pytest.mark.integration
def test_without_settings_nothing_is_installed(mac: Mac) -> None:
    done = mac.script("install", "--environment", sys.prefix)
    assert done.returncode == 1
    assert "--settings FILE" in done.stderr
    assert not mac.plist.exists()


def test_a_model_with_another_hash_is_not_used(mac: Mac, settings: Path, hub: Path) -> None:
    model = ("--model", "demo=owner/demo@v1", "--sha256", "0" * 64, "--environment", sys.prefix)
    before = os.umask(0o077)
    try:
        done = mac.script("install", "--settings", str(settings), *model, HF_ENDPOINT=hub.as_uri())
    finally:
        os.umask(before)
    assert done.returncode == 1
    assert f"instead of {'0' * 64}, and is not used" in done.stderr
    assert list((mac.app / "models").iterdir()) == []
    assert "SPOOL_MODELS" not in (mac.app / "etc/worker.env").read_text()
    # Others than root read the release, and nobody else the passwords, whatever umask root has.
    (release,) = (mac.app / "releases").iterdir()
    shared = [release, *release.parents[:3], *(each for each in release.rglob("*") if not each.is_symlink())]
    assert [each for each in shared if not each.stat().st_mode & 0o004 or each.stat().st_mode & 0o022] == []
    assert (mac.app / "etc/worker.env").stat().st_mode & 0o777 == 0o600


# --- the files ------------------------------------------------------------------------------------------


def filled(name: str) -> str:
    text = (MAC / name).read_text()
    return text.replace("@APP@", "/usr/local/spool").replace("@USER@", "ann")


@pytest.mark.integration
def test_the_property_list_is_one(tmp_path: Path) -> None:
    draft = tmp_path / "worker.plist"
    draft.write_text(filled(f"{LABEL}.plist"))
    _need("plistutil")
    binary = subprocess.run(["plistutil", "-i", draft, "-f", "bin"], check=True, capture_output=True).stdout
    properties: dict[str, Any] = plistlib.loads(binary)
    assert properties == plistlib.loads(draft.read_bytes())
    assert properties["Label"] == LABEL
    assert properties["ProgramArguments"] == ["/bin/sh", "/usr/local/spool/current/ops/mac/worker.sh", "run"]
    assert properties["UserName"] == "ann"
    assert properties["Umask"] == 0o27
    assert properties["KeepAlive"] is properties["RunAtLoad"] is True
    assert properties["ExitTimeOut"] >= 120, "time to hand the jobs back"
    assert not [name for name in properties["EnvironmentVariables"] if name != "SPOOL_APP"], (
        "everybody can read it"
    )
    draft.write_text("<plist><dict><key>Label</dict></plist>")
    refused = subprocess.run(["plistutil", "-i", draft, "-f", "bin"], check=False, capture_output=True)
    assert not refused.stdout.startswith(b"bplist"), "plistutil lets everything pass"


def test_the_log_is_put_away_and_the_worker_told() -> None:
    lines = [line.split() for line in filled("newsyslog.conf").splitlines() if line and line[0] != "#"]
    (log, owner, mode, count, size, when, flags, pid_file, number), before_it = lines
    assert (log, owner, mode) == ("/usr/local/spool/log/worker.log", "ann:", "640")
    assert (int(count) > 0, int(size) > 0, when, flags) == (True, True, "*", "J")
    assert (pid_file, number) == ("/usr/local/spool/var/worker.pid", "30")
    properties = plistlib.loads(filled(f"{LABEL}.plist").encode())
    assert before_it[0] == properties["StandardOutPath"] == properties["StandardErrorPath"]
    assert before_it[1:3] == ["ann:", "640"]
    assert (int(before_it[3]) > 0, int(before_it[4]) > 0, before_it[6]) == (True, True, "JN")


@pytest.mark.integration
def test_the_log_goes_on_in_a_new_file(tmp_path: Path) -> None:
    log, home = tmp_path / "log/worker.log", tmp_path / "home"
    code = f"""
import os, signal
from pathlib import Path
from worker.service.log_file import log_into
log = Path({str(log)!r})
with log_into(log, Path({str(home)!r})):
    os.write(1, b"before\\n")
    log.rename(log.with_suffix(".0"))
    os.kill(int((Path({str(home)!r}) / "worker.pid").read_text()), signal.SIGUSR1)
    os.write(2, b"after\\n")
    os.system("echo child")
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
    assert log.with_suffix(".0").read_text() == "before\n"
    assert log.read_text() == "after\nchild\n"
    assert not (home / "worker.pid").exists()
    with log_into(None, home):
        assert not (home / "worker.pid").exists()


@pytest.mark.integration
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_has_nothing_to_say(script: Path) -> None:
    _need("shellcheck")
    done = subprocess.run(["shellcheck", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def _need(program: str) -> None:
    """In CI a tool that lacks is a failure."""
    if shutil.which(program) is None and not os.environ.get("CI"):
        pytest.skip(f"{program} is not installed")
