"""What the worker's process counts for monitoring; each heartbeat reports it.

Sums what the engine measured and what job threads report; knows no database and no job.
"""

from collections import Counter
from dataclasses import replace

from spool import clock
from spool.domain.worker_stats import WorkCounts
from worker.engine.client import Engine
from worker.service import hint_transport


class Counters:
    """Counts since the process started. Thread-safe."""

    def __init__(self) -> None:
        self._lock = clock.Lock()
        self._began_ns = clock.monotonic_ns()
        self._idle_ns = 0
        self._audio_samples = 0
        self._attempts: Counter[str] = Counter()

    def count_chunk(self, samples: int) -> None:
        """Count a saved chunk that covers `samples` samples."""
        with self._lock:
            self._audio_samples += samples

    def count_ending(self, ending: str, code: str) -> str:
        """Count an attempt that ended with `ending` and error `code` (empty if none); returns `ending`."""
        with self._lock:
            self._attempts[f"{ending.replace(' ', '_')}/{code}"] += 1
        return ending

    def counts(self, engine: Engine) -> WorkCounts:
        """The counts so far."""
        unbilled_ns = engine.unbilled_ns  # first: a batch that ends between the two is in both, not in none
        stats = engine.stats
        with self._lock:
            lived_ns = clock.monotonic_ns() - self._began_ns
            rest_ns = lived_ns - unbilled_ns - stats.busy_ns - stats.load_ns
            # A batch is measured when it ends, a model when it is loaded: what looked like idle time before
            # is taken back by not growing for a while, since a count must never fall.
            self._idle_ns = max(self._idle_ns, rest_ns)
            return replace(
                stats.shapes,
                idle_ns=self._idle_ns,
                load_ns=stats.load_ns,
                lost_ns=stats.lost_ns + stats.died_ns,
                restarts=stats.restarts,
                junk_messages=hint_transport.DROPPED.count,
                audio_samples=self._audio_samples,
                attempts=dict(self._attempts),
            )
