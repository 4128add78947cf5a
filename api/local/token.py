"""The token of an API on loopback, whose address other users of the machine can reach too.

It is in a file in the home that only its owner can read, as Jupyter's is. The servers of a home share it and
hold a lock on the file; the first one to start writes a new token. A command presents the token only while
the lock is held, so it never reveals it to whoever took over the address of a stopped server.
"""

import fcntl
import os
import secrets
from pathlib import Path
from types import TracebackType

FILE = "api-token"


class LocalToken:
    """The token of one home for a running server, as a context manager."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._fd = -1

    def __enter__(self) -> str:
        self._home.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(self._home / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.fchmod(self._fd, 0o600)
        if not _is_locked(self._fd):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, secrets.token_urlsafe(32).encode(), 0)
        fcntl.flock(self._fd, fcntl.LOCK_SH)
        return _read(self._fd)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)


def local_token(home: Path) -> str | None:
    """The token of the servers that run in `home`; None if there are none, or they belong to another user."""
    try:
        fd = os.open(home / FILE, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _read(fd) if _is_locked(fd) else None
    finally:
        os.close(fd)


def _is_locked(fd: int) -> bool:
    """Whether a server holds the file; if none does, this process locks it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _read(fd: int) -> str:
    return os.pread(fd, 200, 0).decode("ascii")
