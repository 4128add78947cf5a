"""Waiting out a store that does not answer, for as long as waiting makes sense. Knows no store."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from spool.errors import StorageError

Result = TypeVar("Result")

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0


def patiently(action: Callable[[], Result], seconds: float, stop: threading.Event | None = None) -> Result:
    """Do `action`, again after each StorageError, until `seconds` have passed or `stop` is set; then the
    error stands.

    The action must be safe to do twice: a commit whose answer was lost looks like one that failed.
    """
    deadline = time.monotonic() + seconds
    stop = stop or threading.Event()
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return action()
        except StorageError:
            if time.monotonic() + pause > deadline or stop.wait(pause):
                raise
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
