"""Whether the worker is within the working hours of its settings.

Knows hours and the clock; `worker.service.supervisor` acts on the answer.
"""

from collections.abc import Callable

from spool import clock
from spool.domain.work_hours import WorkHours, format_until, parse_hours


class OffHours:
    """The hours in which the worker takes no jobs. Thread-safe. `read_clock` returns Unix seconds."""

    def __init__(self, hours: str = "", read_clock: Callable[[], float] = clock.time) -> None:
        self._text = hours
        self._hours: WorkHours = parse_hours(hours)
        self._clock = read_clock
        self._lock = clock.Lock()
        self._reason: str | None = None

    @property
    def reason(self) -> str | None:
        """Why the worker rests, and until when; None while it may work. As of the last `look`."""
        with self._lock:
            return self._reason

    def look(self) -> bool:
        """Check the clock; True if a rest has begun or ended since the last check."""
        now = self._clock()
        works = self._hours.at(now)
        with self._lock:
            was = self._reason is None
            if works:
                self._reason = None
            elif was:
                until = format_until(self._hours.changes(now), now)
                self._reason = f"outside its hours ({self._text}) {until}"
        return was is not works
