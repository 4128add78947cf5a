"""The loop of a background thread: wake it, stop it, and back off while something is down.

Subclasses define a round, and how long to wait after it.
"""

import random

import structlog

from spool import clock
from spool.errors import SpoolError

BACK_OFF_FIRST_S, BACK_OFF_MAX_S = 0.5, 30.0

log = structlog.get_logger(__name__)


class BackgroundLoop(clock.Thread):
    """A daemon thread that calls `run_once` until stopped, first after `delay` seconds.

    A round that raises is logged and repeated after a pause that doubles with each consecutive failure: no
    exception ends the thread.
    """

    def __init__(self, name: str, delay: float = 0.0) -> None:
        super().__init__(name=name, daemon=True)
        self._delay = delay
        self._woken = clock.Event()
        self._stopped = clock.Event()

    def run_once(self) -> float:
        """Do one round; return the seconds until the next one."""
        raise NotImplementedError

    def finish(self) -> None:
        """Called after the last round."""

    @property
    def stopping(self) -> bool:
        """Whether a long round should end early."""
        return self._stopped.is_set()

    def wake(self) -> None:
        """Begin the next round now."""
        self._woken.set()

    def stop(self, timeout: float = 30.0) -> None:
        """End after the current round; wait up to `timeout` seconds for it."""
        self._stopped.set()
        self._woken.set()
        if self.is_alive():
            self.join(timeout)

    def run(self) -> None:
        """Repeat rounds until stopped."""
        failures = 0
        self._woken.wait(self._delay)
        while not self.stopping:
            self._woken.clear()
            try:
                pause = self.run_once()
                failures = 0
            except Exception as error:  # noqa: BLE001 - law 1 rests on these threads
                failures += 1
                pause = jitter(min(BACK_OFF_MAX_S, BACK_OFF_FIRST_S * 2 ** (failures - 1)))
                log.warning(
                    f"{self.name} failed",
                    error=repr(error),
                    failures=failures,
                    again_in_seconds=round(pause, 1),
                )
                self._stopped.wait(pause)
            else:
                if not self.stopping:
                    self._woken.wait(pause)
        try:
            self.finish()
        except SpoolError as error:
            log.warning(f"{self.name} failed", error=repr(error))


def jitter(seconds: float) -> float:
    """The interval, randomly up to a quarter shorter or longer, so that processes spread out."""
    return seconds * random.uniform(0.75, 1.25)  # noqa: S311 - spreads load, guards nothing
