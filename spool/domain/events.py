"""What happens to jobs and batches, by name: the types of events, and which of them end something.

Pure: knows no SQL. The log itself is written by `spool.store.event_log`.

The log of what happened to jobs and batches: written with it, read by number, forgotten after some days.

`note_jobs` and `note_batch` write to an inbox in the commit of the change itself. From there
`spool.store.event_log` moves events into the log under numbers that grow with visibility, so that who has
read up to a number has missed nothing below it. Knows no reader.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spool.domain.jobs import JobState

JOB_EVENTS: Mapping[JobState, str] = {
    JobState.QUEUED: "job.queued",
    JobState.RUNNING: "job.started",
    JobState.DONE: "job.done",
    JobState.FAILED: "job.failed",
    JobState.CANCELLED: "job.cancelled",
}
"""The event that tells of a job's coming into a state."""

BATCH_CREATED = "batch.created"
BATCH_RECEIVED = "batch.received"
BATCH_RETRIED = "batch.retried"
BATCH_CANCELLED = "batch.cancelled"
BATCH_DONE = "batch.done"

EVENT_TYPES = (
    *JOB_EVENTS.values(),
    BATCH_CREATED,
    BATCH_RECEIVED,
    BATCH_RETRIED,
    BATCH_CANCELLED,
    BATCH_DONE,
)
"""Every type that the log may hold."""

JOB_ENDS = frozenset(name for state, name in JOB_EVENTS.items() if state.terminal)
"""After these only a person moves the job on."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `id` is its number in the log."""

    id: int
    at: datetime
    type: str
    project: str
    job_id: str | None
    batch_id: str | None
    custom_id: str | None
    data: dict[str, Any]

    def told(self) -> dict[str, Any]:
        """As streams and webhooks tell it."""
        return {
            "project": self.project,
            "job": self.job_id,
            "batch": self.batch_id,
            "custom_id": self.custom_id,
            "at": self.at.isoformat(),
            **self.data,
        }
