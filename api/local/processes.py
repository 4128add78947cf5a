"""Child processes: started in separate groups, stopped, and searched for afterwards.

Each child leads a process group, so Ctrl-C in the terminal reaches only the parent, and a child's own
children are found by its group.
"""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from spool import clock
from spool.settings.home import make_private, make_private_file

_POLL_S = 0.1
_TAIL_LINES = 12


@dataclass(frozen=True)
class Survivor:
    """A process that should have ended."""

    pid: int
    group: int
    command: str


class Child:
    """A process that was started, and the log of its output."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        make_private(log.parent)
        make_private_file(log)
        self._log_start = log.stat().st_size
        with log.open("ab") as output:
            self._process = _start(command, env, output)
        self.group = self._process.pid
        self.command = " ".join(command)

    @property
    def pid(self) -> int:
        """The process id, which is also the id of the child's group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the process runs."""
        return self._process.poll()

    def stop(self, timeout: float) -> bool:
        """Send SIGTERM and wait at most `timeout` seconds, then kill the process. True if it ended by
        itself."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    def kill(self) -> None:
        """Kill the process and its whole group."""
        kill_group(self.group)
        self._process.wait()

    def log_tail(self) -> str:
        """The last lines of what this process wrote to the log."""
        return log_tail(self.log, self._log_start)


def log_tail(log: Path, start: int) -> str:
    """The last lines of a log, of those that were written from byte `start` on."""
    with contextlib.suppress(OSError):
        return "\n".join(log.read_bytes()[start:].decode(errors="replace").splitlines()[-_TAIL_LINES:])
    return ""


def record_children(record: Path, children: Sequence[Child]) -> None:
    """Record the children, for the next run in case this one is killed."""
    draft = record.with_name(f"{record.name}.draft")
    draft.write_text(json.dumps([[child.group, child.command] for child in children]))
    draft.replace(record)


def end_leftovers(record: Path, timeout: float) -> int:
    """End the recorded children that outlived their parent; returns how many there were.

    A process is one of them if it leads the group and runs the command on record.
    """
    try:
        recorded = {(int(group), str(command)) for group, command in json.loads(record.read_text())}
    except (FileNotFoundError, ValueError, TypeError):
        return 0
    groups = [group for group, _ in recorded]

    def leaders() -> list[Survivor]:
        return [
            process
            for process in survivors(groups)
            if process.pid == process.group and (process.group, process.command) in recorded
        ]

    left = leaders()
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
    deadline = clock.monotonic() + timeout
    while leaders() and clock.monotonic() < deadline:
        clock.sleep(_POLL_S)
    for process in left:
        kill_group(process.group)
    return len(left)


def _start(command: Sequence[str], env: Mapping[str, str], output: IO[bytes]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        list(command),
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def kill_group(group: int) -> None:
    """Kill every process of a group, if there is any."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def survivors(groups: Collection[int]) -> list[Survivor]:
    """Processes of these groups that still run; zombies do not count."""
    remaining = []
    for process in psutil.process_iter(["status", "cmdline"]):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            group = os.getpgid(process.pid)
            if group in groups and process.info["status"] != psutil.STATUS_ZOMBIE:
                command = " ".join(process.info["cmdline"] or ())
                remaining.append(Survivor(process.pid, group, command))
    return remaining


def is_alive(pid: int) -> bool:
    """Whether this process still runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
