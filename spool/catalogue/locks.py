"""Locks between processes, one file each; the kernel releases them when their holder dies."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from spool import clock
from spool.errors import Conflict

POLL_SECONDS = 0.2


@contextmanager
def hold_lock(
    path: Path, *, shared: bool = False, seconds: float, on_wait: Callable[[], None] | None = None
) -> Iterator[None]:
    """Holds the lock, waiting up to `seconds` for it; `on_wait` is called at every try and may raise.

    Raises Conflict if another process holds it for all that time. On a read-only file system nothing can
    change, so no shared lock is needed or taken there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as cause:
        if shared and cause.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            yield
            return
        raise
    try:
        end = clock.monotonic() + seconds
        while not _try_lock(descriptor, shared):
            if clock.monotonic() >= end:
                raise Conflict(f"{path}: another process has held this lock for {seconds:g} s.")
            if on_wait is not None:
                on_wait()
            clock.sleep(POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, shared: bool) -> bool:
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
