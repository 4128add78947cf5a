"""A disk of a few megabytes that can be filled to the last byte and freed again: a tmpfs, where this machine
lets us mount one (as root on Linux)."""

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BLOCK = b"\0" * 65536


class SmallDisk:
    """Mounted at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> None:
        """Leave no space."""
        for size in (len(BLOCK), 4096, 1):
            with open(self._filler, "ab", buffering=0) as file:
                try:
                    while file.write(BLOCK[:size]) == size:
                        pass
                except OSError:
                    continue

    @contextmanager
    def full(self, seconds: float) -> Iterator[None]:
        """Full during the block and for so long at least, whatever is removed from it meanwhile."""
        ending, over = time.monotonic() + seconds, threading.Event()

        def keep() -> None:
            while not over.is_set() or time.monotonic() < ending:
                self.fill()
                time.sleep(0.02)

        self.fill()
        thread = threading.Thread(target=keep)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.free()

    def free(self) -> None:
        """Make room again."""
        self._filler.unlink()


def can_mount() -> bool:
    """Whether this machine lets us mount a tmpfs."""
    with tempfile.TemporaryDirectory() as folder:
        if os.getuid() != 0 or _mount(Path(folder), 1):
            return False
        subprocess.run(["umount", folder], check=True)
        return True


@contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Mount one at `path` for the time of the block."""
    path.mkdir(parents=True, exist_ok=True)
    assert _mount(path, megabytes) == 0, "a tmpfs can be mounted"
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def _mount(path: Path, megabytes: int) -> int:
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode
    except FileNotFoundError:
        return -1
