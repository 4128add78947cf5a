"""Retries of transient failures, within an attempt and between attempts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from spool import clock
from spool.errors import StorageError

Result = TypeVar("Result")

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0

RETRIES = 20
FIRST_RETRY_SECONDS = 5.0
LONGEST_RETRY_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a transient error is retried, and after which pause (seconds, doubling each time)."""

    attempts: int = RETRIES
    first_pause: float = FIRST_RETRY_SECONDS
    longest_pause: float = LONGEST_RETRY_SECONDS

    def pause(self, transient_failures: int) -> float | None:
        """The pause before the next attempt after `transient_failures` in a row; None to give up."""
        return None if transient_failures >= self.attempts else self.endless_pause(transient_failures)

    def endless_pause(self, failures: int) -> float:
        """The pause of a job that is never given up."""
        return float(min(self.longest_pause, self.first_pause * 2 ** min(max(failures - 1, 0), 30)))


def retry_storage(
    action: Callable[[], Result], seconds: float | Callable[[], float], stop: clock.Event | None = None
) -> Result:
    """Do `action`, again after each StorageError, until `seconds` have passed or `stop` is set; then the
    error stands. `seconds` may change while this waits.

    The action must be safe to do twice: a commit whose answer was lost looks like one that failed.
    """
    began = clock.monotonic()
    stop = stop or clock.Event()
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return action()
        except StorageError:
            most = seconds() if callable(seconds) else seconds
            if clock.monotonic() + pause > began + most or stop.wait(pause):
                raise
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
