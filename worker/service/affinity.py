"""Which models' jobs a worker takes first: those in its memory, as long as others do not wait too long.

While the job whose turn it is wants a model that is not here, one behind it may go first, for a model's stay
and for longer if more work waits for what is here than for the other, up to `MOST_STAYS`. Then jobs are
taken in their order until one of them has brought another model. Knows names and a clock; the choice itself
is SQL's (`spool.store.queue.scheduler`), and which model leaves the memory is the engine's
(`worker.engine.model_cache`).
"""

from collections.abc import Callable, Mapping, Sequence

from spool import clock
from spool.store.queue.leases import Passed

STAY_SECONDS = 20.0
MOST_STAYS = 5.0
IN_ORDER = 16
"""Jobs claimed in order without a change of model, after which jobs may be passed over again."""


class ModelAffinity:
    """Which waiting work one worker has passed over, and for how long. Thread-safe."""

    def __init__(
        self, stay_seconds: float = STAY_SECONDS, read_clock: Callable[[], float] = clock.monotonic
    ) -> None:
        self._stay_seconds = stay_seconds
        self._clock = read_clock
        self._lock = clock.Lock()
        self._since: float | None = None
        self._stays = 1.0
        self._in_order = 0

    def first(self, loaded: Sequence[str]) -> frozenset[str]:
        """The models whose jobs may go before others now, of those `loaded`."""
        with self._lock:
            return frozenset() if self._is_over() else frozenset(loaded)

    def record_claim(self, passed: Passed | None, *, loaded: bool) -> None:
        """Note a claim: whether the job's model was already `loaded`, and what was `passed` over for it."""
        with self._lock:
            if passed is not None:
                self._since = self._clock() if self._since is None else self._since
                self._stays = min(MOST_STAYS, max(1.0, passed.own / max(1, passed.other)))
            elif self._is_over():
                self._in_order += 1
                if not loaded or self._in_order >= IN_ORDER:
                    self._since, self._in_order = None, 0

    def _is_over(self) -> bool:
        """Whether a job has been passed over for long enough."""
        if not self._stay_seconds:
            return True
        return self._since is not None and self._clock() - self._since >= self._stays * self._stay_seconds


def list_loaded(models: Mapping[str, str], paths: Sequence[str]) -> tuple[str, ...]:
    """The names that jobs use for the models in memory, in their order."""
    return tuple(name for path in paths for name in sorted(models) if models[name] == path)
