"""The worker's output in a file that another program rotates: newsyslog on macOS, logrotate elsewhere.

Standard output and error go into the file. After SIGUSR1 they go into a new one of that name, those of the
engine's process from its next start on; the process id stands in `worker.pid` under the home for whoever
sends it. Knows files and descriptors; knows no log format.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

PID_FILE = "worker.pid"


@contextlib.contextmanager
def log_into(path: Path | None, home: Path) -> Iterator[None]:
    """Send the output of this process to `path` from now on; None changes nothing. Raises
    OSError when the file cannot be written."""
    if path is None:
        yield
        return
    _turn_to(path)

    def reopen(_number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):  # the old one is still there to write into
            _turn_to(path)

    signal.signal(signal.SIGUSR1, reopen)
    home.mkdir(parents=True, exist_ok=True)
    pid_file = home / PID_FILE
    pid_file.write_text(f"{os.getpid()}\n")
    try:
        yield
    finally:
        pid_file.unlink(missing_ok=True)


def _turn_to(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os.dup2(file, 1)
        os.dup2(file, 2)
    finally:
        os.close(file)
