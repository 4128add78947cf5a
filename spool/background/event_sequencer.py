"""Numbers the events of the log in the order in which they became visible, and deletes old ones.

Any API process may do it; the store's lock lets one at a time (`spool.store.event_log`).
"""

from collections.abc import Callable

from spool import clock
from spool.store import Database
from spool.store.event_log import PLACED_AT_ONCE, any_unplaced, place_events, prune_events

_PRUNE_S = 600.0


class EventSequencer:
    """Keeps the log in order. `placed` is called after this process numbered events; events older than `days`
    are deleted."""

    def __init__(self, database: Database, days: float, placed: Callable[[], None]) -> None:
        self._database = database
        self._days = days
        self._placed = placed
        self._next_prune = 0.0

    def run_once(self, stopping: Callable[[], bool]) -> None:
        """Number new events and, every ten minutes, delete old ones. Raises StorageError."""
        with self._database.read() as tx:
            waiting = any_unplaced(tx)
        while waiting and not stopping():
            with self._database.begin() as tx:
                placed = place_events(tx)
            waiting = len(placed) >= PLACED_AT_ONCE
            if placed:
                self._placed()
        if clock.monotonic() >= self._next_prune:
            self._next_prune = clock.monotonic() + _PRUNE_S
            self._prune(stopping)

    def _prune(self, stopping: Callable[[], bool]) -> None:
        gone = 1
        while gone and not stopping():
            with self._database.begin() as tx:
                gone = prune_events(tx, self._days)
