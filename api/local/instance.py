"""Records where `spool up` is running, so that other commands find it: a file, and a lock beside it.

The process that runs the stack holds the lock for as long as it lives; a file whose lock is free was left by
a process that was killed. A file in the user's state folder names the home, for commands in other folders.
"""

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from spool.errors import Conflict
from spool.settings.home import make_private

_FILE = "up.json"
_LOCK = "up.lock"
_OWN_HOME = ("SPOOL_HOME", "SPOOL_DATABASE_URL")
"""Settings that say where the data are, so that no other stack is looked for."""


@dataclass(frozen=True)
class Running:
    """A stack that runs on this machine."""

    url: str
    pid: int
    home: str
    source_roots: tuple[str, ...]
    log_folder: str


class RunLock:
    """The lock of one home, as a context manager, so that only one stack runs in it. Raises `Conflict` if one
    does."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._fd = -1

    def __enter__(self) -> Self:
        make_private(self._home)
        # Not inherited: a child that outlives us must not appear to be us.
        self._fd = os.open(self._home / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise Conflict(
                f"A stack is already running in {self._home}; `{down_command(self._home)}` stops it."
            ) from None
        os.ftruncate(self._fd, 0)
        os.write(self._fd, str(os.getpid()).encode())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            _pointer_to(self._home).unlink(missing_ok=True)
        (self._home / _FILE).unlink(missing_ok=True)
        os.close(self._fd)

    def announce(self, running: Running) -> None:
        """Record where the stack runs, atomically."""
        draft = self._home / f"{_FILE}.draft"
        draft.write_text(json.dumps(asdict(running)))
        draft.replace(self._home / _FILE)
        # Only a convenience: the user's state folder may be read-only.
        with suppress(OSError):
            pointer = _pointer_to(self._home)
            make_private(pointer.parent)
            pointer.write_text(str(self._home.resolve()))


def spool_command() -> str:
    """The command that runs this `spool`: its name if the shell finds it, else its path."""
    started = Path(sys.argv[0])
    script = started if started.name == "spool" else Path(sys.executable).with_name("spool")
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m api.cli.main"
    on_path = shutil.which("spool")
    if on_path is not None and Path(on_path).samefile(script):
        return "spool"
    script = script.absolute()
    current = Path.cwd()
    return shlex.quote(str(script.relative_to(current) if script.is_relative_to(current) else script))


def down_command(home: Path | None) -> str:
    """The command that stops the stack of `home` (None: of this folder), as typed in this folder."""
    return (
        f"{spool_command()} down"
        if home is None
        else f"{spool_command()} down --home {shlex.quote(str(home))}"
    )


def lock_holder(home: Path) -> int | None:
    """The process that runs the stack of `home`; None if there is none."""
    try:
        fd = os.open(home / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        written = os.read(fd, 20)
        return int(written) if written.isdigit() else None
    finally:
        os.close(fd)
    return None


def find_running(home: Path) -> Running | None:
    """The stack that runs in `home`, once it has been announced."""
    if lock_holder(home) is None:
        return None
    try:
        state = json.loads((home / _FILE).read_text())
        return Running(**{**state, "source_roots": tuple(state["source_roots"])})
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def find_running_home() -> Path | None:
    """The home of the stack that this user started last, of those that run."""
    with suppress(OSError):
        pointers = sorted(_stacks_folder().iterdir(), key=lambda each: each.stat().st_mtime, reverse=True)
        for pointer in pointers:
            home = Path(pointer.read_text())
            if find_running(home) is not None:
                return home
    return None


@contextmanager
def from_any_folder() -> Iterator[None]:
    """Within the block, SPOOL_HOME is the home of the running stack, unless it is set or this folder has a
    home of its own."""
    elsewhere = not any(name in os.environ for name in _OWN_HOME) and not Path("var", _LOCK).exists()
    home = find_running_home() if elsewhere else None
    if home is None:
        yield
        return
    os.environ["SPOOL_HOME"] = str(home)
    try:
        yield
    finally:
        del os.environ["SPOOL_HOME"]


def _stacks_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state, "spool", "stacks")


def _pointer_to(home: Path) -> Path:
    return _stacks_folder() / hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:16]
