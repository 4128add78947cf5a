"""`SPOOL_API_PROCESSES=2`: two processes on one port, replaced when one dies, none left at the end."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

import migrations
from api.server import process_pool
from api.server.process_pool import ProcessPool, ProcessPoolError
from api.server.run import bind
from ops.testbed.waiting import until
from spool.settings import Settings, load_settings
from tests.api.cli.commands import ROOT


def answering(process: "subprocess.Popen[bytes]") -> set[int]:
    """The children that serve: all but multiprocessing's own."""
    found = set()
    for child in psutil.Process(process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if "spawn_main" in " ".join(child.cmdline()):
                found.add(child.pid)
    return found


@pytest.fixture
def crew(tmp_path: Path, redis_url: str) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    home, announced = tmp_path / "home", tmp_path / "api.json"
    home.mkdir()
    migrations.upgrade(f"sqlite:///{home / 'spool.db'}")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOOL_")}
    told = {"SPOOL_HOME": str(home), "SPOOL_REDIS_URL": redis_url, "SPOOL_API_PROCESSES": "2"}
    command = [sys.executable, "-m", "api", "--port", "0", "--announce", str(announced)]
    process = subprocess.Popen(command, env=kept | told, cwd=ROOT)
    children: set[int] = set()
    try:
        until(lambda: announced.exists() or process.poll() is not None)
        found = json.loads(announced.read_text())
        assert found["pid"] == process.pid
        children = answering(process)
        yield process, found["url"]
    finally:
        process.kill()
        process.wait()
        until(
            lambda: not any(psutil.pid_exists(pid) for pid in children)
        )  # whoever starts them may be killed


def test_a_process_that_dies_is_replaced_and_sigterm_ends_all(
    crew: tuple["subprocess.Popen[bytes]", str],
) -> None:
    process, url = crew
    before = answering(process)
    assert len(before) == 2

    killed = min(before)
    os.kill(killed, signal.SIGKILL)
    until(lambda: len(answering(process)) == 2 and killed not in answering(process))
    after = answering(process)

    assert httpx.get(f"{url}/healthz", timeout=60).status_code == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert not any(psutil.pid_exists(pid) for pid in after)


def _falls_silent(settings: Settings, listener: socket.socket, alive: Callable[[], None]) -> None:
    """Answers once; the first of all stops then, as a frozen event loop does."""
    alive()
    with contextlib.suppress(FileExistsError):
        (settings.home / "frozen").touch(exist_ok=False)
        os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        time.sleep(0.1)
        alive()


@pytest.mark.integration
def test_a_process_that_freezes_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_pool, "_SILENT_S", 3.0)
    monkeypatch.setattr(process_pool, "_LOOK_S", 0.1)
    settings = load_settings({}, home=tmp_path)
    seen: list[set[int | None]] = []

    def ended_once_replaced() -> None:
        def look() -> None:
            before = {member.process.pid for member in pool._members}
            until(lambda: not before & {member.process.pid for member in pool._members}, "it is replaced")
            seen.append(before)
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=look).start()

    with bind("127.0.0.1", 0) as listener:
        pool = ProcessPool(settings, listener, _falls_silent, 1)
        pool.run(ended_once_replaced)
    assert len(seen) == 1
    assert not any(pid and psutil.pid_exists(pid) for pid in seen[0])


def _ends(*_: object) -> None:
    sys.exit(3)


@pytest.mark.integration
def test_what_ends_before_it_answers_is_not_started_again(tmp_path: Path) -> None:
    settings = load_settings({}, home=tmp_path)
    with bind("127.0.0.1", 0) as listener, pytest.raises(ProcessPoolError, match="exit code 3"):
        ProcessPool(settings, listener, _ends, 1).run(lambda: None)
