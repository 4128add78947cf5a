"""Children, their groups and what they leave; the file that says where a stack runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from api.local.instance import RunLock, Running, find_running, lock_holder
from api.local.processes import Child, kill_group, survivors
from ops.testbed.waiting import until
from spool.errors import Conflict

pytestmark = pytest.mark.integration

LEAVES_ONE_BEHIND = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("started", flush=True)
time.sleep(600)
"""

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("started", flush=True)
time.sleep(600)
"""


def child(tmp_path: Path, program: str) -> Child:
    started = Child("part", [sys.executable, "-c", program], dict(os.environ), tmp_path / "part.log")
    until(lambda: "started" in started.log_tail(), "the child's start")
    return started


def gone(group: int) -> bool:
    until(lambda: not survivors([group]), "the end of the group")
    return True


def test_what_a_child_leaves_behind_is_found_by_its_group(tmp_path: Path) -> None:
    one = child(tmp_path, LEAVES_ONE_BEHIND)
    assert one.stop(timeout=20)

    (left,) = survivors([one.group])
    assert left.pid != one.pid
    assert "time.sleep(600)" in left.command

    kill_group(one.group)
    assert gone(one.group)


def test_a_child_that_will_not_stop_is_ended(tmp_path: Path) -> None:
    one = child(tmp_path, STUBBORN)
    assert one.exit_code is None
    assert not one.stop(timeout=0.2)
    assert one.exit_code == -9
    assert gone(one.group)


def test_a_child_that_has_ended_leaves_the_end_of_its_log(tmp_path: Path) -> None:
    one = child(tmp_path, "print('started'); print('no disk'); raise SystemExit(3)")
    until(lambda: one.exit_code is not None, "the child's end")
    assert one.stop(timeout=20)
    assert one.exit_code == 3
    assert one.log_tail() == "started\nno disk"

    # A later one has the same log, and only its own lines are the end of it
    other = child(tmp_path, "print('started')")
    assert other.log_tail() == "started"
    assert other.stop(timeout=20)


# Where it runs


def test_a_home_has_one_stack_at_a_time_and_says_where(tmp_path: Path) -> None:
    assert find_running(tmp_path) is None
    running = Running("http://127.0.0.1:1", os.getpid(), str(tmp_path), ("/audio",), "/logs")
    with RunLock(tmp_path) as lock:
        assert lock_holder(tmp_path) == os.getpid()
        assert find_running(tmp_path) is None
        lock.announce(running)
        assert find_running(tmp_path) == running
        with pytest.raises(Conflict, match="already running"), RunLock(tmp_path):
            pass
        assert find_running(tmp_path) == running
    assert lock_holder(tmp_path) is None
    assert find_running(tmp_path) is None


def test_the_remains_of_a_killed_stack_are_not_taken_for_one(tmp_path: Path) -> None:
    # Given a process that held the lock and was killed
    program = (
        "import sys, time; from pathlib import Path; from api.local.instance import *;"
        f"lock = RunLock(Path({str(tmp_path)!r})).__enter__();"
        "lock.announce(Running('http://127.0.0.1:1', 1, '', (), '')); print('started', flush=True);"
        "time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert lock_holder(tmp_path) == process.pid
        process.kill()

    # Then its file is still there, and nobody is fooled
    assert (tmp_path / "up.json").exists()
    assert lock_holder(tmp_path) is None
    assert find_running(tmp_path) is None
    with RunLock(tmp_path):
        assert lock_holder(tmp_path) == os.getpid()
