"""Shares that one process no longer sees: an empty tmpfs over a folder, in a mount namespace of its own.

For root on Linux only.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OWN_MOUNTS = ("unshare", "--mount")
"""A command that starts with this runs in a mount namespace of its own, under the same process id."""


def can_unmount() -> bool:
    """Whether this machine lets us run processes with mounts of their own."""
    if os.getuid() != 0 or not (shutil.which("unshare") and shutil.which("nsenter")):
        return False
    return subprocess.run([*OWN_MOUNTS, "true"], capture_output=True, check=False).returncode == 0


@contextmanager
def without_share(pid: int, folder: Path) -> Iterator[None]:
    """During the block the process, started with `OWN_MOUNTS`, sees the folder empty."""
    inside = ["nsenter", "--target", str(pid), "--mount"]
    subprocess.run([*inside, "mount", "-t", "tmpfs", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        # A process that has ended in between took its mounts with it.
        subprocess.run([*inside, "umount", "--lazy", str(folder)], check=False)
