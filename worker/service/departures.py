"""Workers that ended by themselves while the database was away, and so could neither hand back nor sign off.

Each leaves a file with its id in the worker's home. The next worker there says it in its place, before it
registers: otherwise the jobs that were held would look as if they had ended a process. Its row stays that of
a worker which is gone, since nobody knows what was billed in its last seconds.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path

import structlog
from sqlalchemy import Connection

from spool.domain.jobs import JobState
from spool.store.queue.crashes import release_jobs
from spool.store.rows import add_hints
from spool.store.workers import outlive_suspicion

log = structlog.get_logger(__name__)


class Departures:
    """The folder in which they leave their ids."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def note(self, worker_id: str) -> None:
        """This worker has ended by itself."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / worker_id).touch()
        except OSError as error:
            log.warning("departure not noted", error=str(error))

    def list(self) -> list[str]:
        """The ids of those that have ended and that the database may not know of."""
        try:
            return sorted(file.name for file in self._folder.iterdir())
        except OSError:
            return []

    def forget(self, worker_ids: Iterable[str]) -> None:
        """The database knows of these."""
        for worker_id in worker_ids:
            with contextlib.suppress(OSError):
                (self._folder / worker_id).unlink()


def record_departure(tx: Connection, worker_id: str, max_crashes: int) -> None:
    """Hand back what the worker held, as no crash."""
    hand_back_held(tx, worker_id, max_crashes)
    outlive_suspicion(tx, worker_id)


def hand_back_held(tx: Connection, worker_id: str, max_crashes: int) -> None:
    """Hand back what the worker holds. It is a suspect until it is seen once more."""
    released = release_jobs(tx, worker_id, max_crashes)
    add_hints(tx, [(job.id, job.queue) for job in released if job.state is JobState.QUEUED])
