"""How long processes have computed, as the system tells it."""

import contextlib

import psutil


def cpu_seconds(parent: psutil.Process) -> float:
    """Seconds that a process and all below it have computed so far."""
    total = 0.0
    for process in [parent, *parent.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:2])
    return total
