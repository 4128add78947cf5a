"""How many short jobs a worker claims at once, from the engine time that the last ones took.

A device batch holds utterances of many jobs, so short recordings fill it only if many are in flight. A
thread therefore claims several at a time; as many as the engine does in `SECONDS`, so that a slow worker
takes no jobs that another one could do meanwhile. Knows durations; which jobs are short is SQL's to say
(`spool.store.queue.scheduler`).
"""

from spool import clock

SECONDS = 0.5
MOST_JOBS = 10
NEWEST = 0.1
"""How much the latest job counts in the mean."""


class Appetite:
    """The mean engine time of a job. Thread-safe."""

    def __init__(self) -> None:
        self._lock = clock.Lock()
        self._mean_ns: float | None = None

    def note_ending(self, engine_ns: int) -> None:
        """Note a job that is done and the engine time that it took."""
        with self._lock:
            mean = engine_ns if self._mean_ns is None else self._mean_ns
            self._mean_ns = mean + NEWEST * (engine_ns - mean)

    @property
    def jobs(self) -> int:
        """How many to claim at once, if they are short; 1 until the first has ended."""
        with self._lock:
            if self._mean_ns is None:
                return 1
            return max(1, min(MOST_JOBS, int(SECONDS * 1e9 / max(self._mean_ns, 1.0))))
