"""Child processes by their commands: started in their own groups, stopped, and looked for afterwards.

Knows processes and their logs; knows nothing of what they do. Each child leads a group of its own, so a
Ctrl-C in the terminal reaches only the one who starts them, and a whole family can be found by its group.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from spool.settings.home import make_private, make_private_file

_POLL_S = 0.1


@dataclass(frozen=True)
class Survivor:
    """A process that should be gone."""

    pid: int
    group: int
    command: str


class Child:
    """One process that was started, with the log that its output goes to."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        make_private(log.parent)
        make_private_file(log)
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
        """How it ended; None while it runs."""
        return self._process.poll()

    def stop(self, patience: float) -> bool:
        """Ask it to end (SIGTERM) and wait, at most `patience` seconds. True: it ended by itself."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    def kill(self) -> None:
        """End it and its whole group at once."""
        kill_group(self.group)
        self._process.wait()

    def last_words(self, lines: int = 12) -> str:
        """The end of its log."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""


def remember(record: Path, children: Sequence[Child]) -> None:
    """Write down which children there are, for whoever comes after us if we are killed."""
    draft = record.with_name(f"{record.name}.draft")
    draft.write_text(json.dumps([[child.group, child.command] for child in children]))
    draft.replace(record)


def end_remains(record: Path, patience: float) -> int:
    """End the children that `record` tells of and that outlived who started them; how many there were.

    A process counts as one of them when it leads the group and runs the command that was written down.
    """
    try:
        told = {(int(group), str(command)) for group, command in json.loads(record.read_text())}
    except (FileNotFoundError, ValueError, TypeError):
        return 0
    groups = [group for group, _ in told]

    def leaders() -> list[Survivor]:
        return [one for one in survivors(groups) if one.pid == one.group and (one.group, one.command) in told]

    found = leaders()
    for one in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGTERM)
    deadline = time.monotonic() + patience
    while leaders() and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    for one in found:
        kill_group(one.group)
    return len(found)


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
    """End every process of a group at once; none left is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def survivors(groups: Collection[int]) -> list[Survivor]:
    """Processes of these groups that still run (the dead whom nobody has buried yet do not count)."""
    return [row for row in _all() if row.group in groups]


def is_alive(pid: int) -> bool:
    """Whether this process still runs."""
    return any(row.pid == pid for row in _all())


def _all() -> list[Survivor]:
    return _from_proc() if Path("/proc/self/stat").exists() else _from_ps()


def _from_proc() -> list[Survivor]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            stat = (entry / "stat").read_text()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended while we looked
            continue
        # The name in parentheses may hold anything; the fields after the last one are state, parent, group.
        state, _parent, group = stat.rpartition(")")[2].split()[:3]
        if state not in "ZX":
            found.append(Survivor(int(entry.name), int(group), command.strip()))
    return found


def _from_ps() -> list[Survivor]:
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,pgid=,stat=,command="], capture_output=True, text=True, check=True
    )
    found = []
    for line in listing.stdout.splitlines():
        pid, group, state, command = line.split(None, 3)
        if not state.startswith("Z"):
            found.append(Survivor(int(pid), int(group), command))
    return found
