"""What happens to jobs and batches, by name: the types of events, and which of them end something.

Pure: knows no SQL. The log itself is written by `spool.store.events`.
"""

from collections.abc import Mapping

from spool.jobs import JobState

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
