"""Runs Python in a child process and counts the bytes that it has written."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spool import clock

POLL_SECONDS = 0.1
KILL_SECONDS = 5.0


@dataclass(frozen=True)
class Finished:
    """How a child ended, and all that it printed on both streams."""

    code: int | None
    """The exit code; None when it ran out of time."""
    output: str


def run_child(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    scratch: Path,
    *,
    seconds: float,
    on_bytes: Callable[[int], None],
) -> Finished:
    """Runs this Python with these arguments and with `scratch` as its folder for temporary files.

    `on_bytes` gets the bytes below `scratch` several times a second; an exception from it ends the child and
    propagates, and so does KeyboardInterrupt. The child has ended when this returns.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    log = scratch / "output.txt"
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, **environ, "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            code = _watch(child, scratch, seconds, on_bytes)
        finally:
            _end(child)
    return Finished(code, log.read_text(encoding="utf-8", errors="replace"))


def _watch(
    child: subprocess.Popen[bytes], scratch: Path, seconds: float, on_bytes: Callable[[int], None]
) -> int | None:
    end = clock.monotonic() + seconds
    while clock.monotonic() < end:
        try:
            return child.wait(timeout=POLL_SECONDS)
        except subprocess.TimeoutExpired:
            on_bytes(bytes_below(scratch))
    return None


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(timeout=KILL_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def bytes_below(folder: Path) -> int:
    """The bytes of all files below a folder, which may change meanwhile."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                continue
    return total
