"""A whole worker process for tests: `spool-worker run` with the tiny model, or with TEST_LOADER.

Where TEST_CLOCK names a file, its hours go by the time in it, in Unix seconds.

A recording whose name is TEST_HANGS never gives its samples, one whose name is TEST_SEGFAULT ends the
process once the file TEST_GO is there, as holes in a decoder would.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # nothing of the worker is imported before its BLAS
    from worker.audio.base import Samples


def break_readers() -> None:
    """Put the holes into the reader."""
    from worker.audio import stream

    read = stream.AudioStream.blocks

    def blocks(self: stream.AudioStream) -> "Iterator[Samples]":
        if self._name == os.environ.get("TEST_HANGS"):
            threading.Event().wait()
        if self._name == os.environ.get("TEST_SEGFAULT"):
            while not Path(os.environ["TEST_GO"]).exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGSEGV)
        return read(self)

    stream.AudioStream.blocks = blocks  # type: ignore[method-assign]


def set_clock() -> None:
    """Let the hours go by a clock that a test sets."""
    from worker import app
    from worker.service.schedule import OffHours

    clock = Path(os.environ["TEST_CLOCK"])
    vars(app)["OffHours"] = lambda hours: OffHours(hours, lambda: float(clock.read_text()))


def main() -> int:
    from ops.testbed.fake_models import LOADER
    from spool.logs import configure_logs
    from spool.settings import load_settings
    from worker.jobs.retry import RetryPolicy
    from worker.tasks import run_worker

    break_readers()
    if "TEST_CLOCK" in os.environ:
        set_clock()
    settings = load_settings()
    configure_logs(settings.log_json)
    return run_worker(settings, loader=os.environ.get("TEST_LOADER", LOADER), retry=RetryPolicy(3, 0.2, 0.5))


if __name__ == "__main__":
    sys.exit(main())
