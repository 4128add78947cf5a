"""The types of events about jobs and batches, and the event as the log keeps it.

Pure. `spool.store.event_log` writes, numbers and reads the log.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from spool.domain.columns import Id, Length, Name
from spool.domain.jobs import JobState

JOB_EVENTS: Mapping[JobState, str] = {
    JobState.QUEUED: "job.queued",
    JobState.RUNNING: "job.started",
    JobState.DONE: "job.done",
    JobState.FAILED: "job.failed",
    JobState.CANCELLED: "job.cancelled",
}
"""The event that a job's change to a state creates."""

JOB_EXPORTED = "job.exported"
"""A file of the job's output was written, or has failed for good."""

TRANSCRIPT_CORRECTED = "transcript.corrected"
"""A person edited the job's transcript, or undid an edit."""

BATCH_CREATED = "batch.created"
BATCH_RECEIVED = "batch.received"
BATCH_RETRIED = "batch.retried"
BATCH_CANCELLED = "batch.cancelled"
BATCH_DONE = "batch.done"

EVENT_TYPES = (
    *JOB_EVENTS.values(),
    JOB_EXPORTED,
    TRANSCRIPT_CORRECTED,
    BATCH_CREATED,
    BATCH_RECEIVED,
    BATCH_RETRIED,
    BATCH_CANCELLED,
    BATCH_DONE,
)
"""Every type that the log may hold."""

JOB_ENDS = frozenset(name for state, name in JOB_EVENTS.items() if state.terminal)
"""After these the job changes only if it is retried."""

REOPENS = frozenset({JOB_EVENTS[JobState.QUEUED], JOB_EVENTS[JobState.RUNNING], BATCH_RETRIED})
"""After one of these a job or batch that had ended has not."""


@dataclass(frozen=True)
class NewEvent:
    """One event, before it has a number in the log."""

    at: datetime
    type: Annotated[str, Length(32)]
    project: Name
    job_id: Id | None
    """Not a foreign key: events outlive their jobs."""
    batch_id: Id | None
    custom_id: Name | None
    data: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Event(NewEvent):
    """One event of the log. A reader that has seen a number has missed none below it."""

    id: int

    def document(self) -> dict[str, Any]:
        """The event as streams and webhooks send it."""
        return {
            "project": self.project,
            "job": self.job_id,
            "batch": self.batch_id,
            "custom_id": self.custom_id,
            "at": self.at.isoformat(),
            **self.data,
        }
