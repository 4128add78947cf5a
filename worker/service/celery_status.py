"""Shows in Celery's own tools which job a task is doing, even if that is not the one its message named.

`celery inspect active` reads the task's request, Flower the worker's events; both get the id of the job and
its attempt as the task's keyword arguments. Knows Celery; decides nothing.
"""

from typing import Any

import celery.worker.state
from celery import current_task
from celery.worker.request import Request

from spool.store.queue.leases import Claim


class TaskRequest(Request):  # type: ignore[misc]
    """A task's request that can say what the task is doing."""

    doing: dict[str, Any] | None = None

    def info(self, safe: bool = False) -> dict[str, Any]:
        """What `celery inspect` shows."""
        shown: dict[str, Any] = super().info(safe)
        if self.doing is not None:
            shown["kwargs"] = repr(self.doing) if safe else self.doing
        return shown


def show_claim(claim: Claim) -> None:
    """The task of this thread, if there is one, does this job from here on, and those that were claimed with
    it."""
    request = celery.worker.state.requests.get(current_task.request.id) if current_task else None
    if not isinstance(request, TaskRequest):
        return
    doing: dict[str, Any] = {"job_id": claim.job.id, "attempt": claim.attempt}
    if claim.others:
        doing["others"] = [other.job.id for other in claim.others]
    request.doing = doing
    request.send_event("task-started", kwargs=repr(doing))
