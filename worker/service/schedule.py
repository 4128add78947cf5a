"""Whether this machine belongs to its person now: the hours of the settings, looked at from time to time.

Knows hours and the clock; what follows from a rest is decided in `worker.service.supervisor`.
"""

import threading
import time
from collections.abc import Callable

from spool.domain.work_hours import WorkHours, parse_hours, shown_until


class OffHours:
    """The rest that the hours ask for. Thread-safe. `clock` says the time in Unix seconds."""

    def __init__(self, hours: str = "", clock: Callable[[], float] = time.time) -> None:
        self._text = hours
        self._hours: WorkHours = parse_hours(hours)
        self._clock = clock
        self._lock = threading.Lock()
        self._reason: str | None = None

    @property
    def reason(self) -> str | None:
        """Why the worker rests, and until when; None while it may work. As of the last look."""
        with self._lock:
            return self._reason

    def look(self) -> bool:
        """Look at the clock; whether a rest has begun or ended since the last look."""
        now = self._clock()
        works = self._hours.at(now)
        with self._lock:
            was = self._reason is None
            if works:
                self._reason = None
            elif was:
                until = shown_until(self._hours.changes(now), now)
                self._reason = f"outside its hours ({self._text}) {until}"
        return was is not works
