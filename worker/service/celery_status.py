"""Shows in Celery's own tools which job a task is doing, also where it took another than its message named.

`celery inspect active` reads the task's request, Flower the worker's events; both get the id of the job and
its attempt as the task's keyword arguments. Knows Celery; decides nothing.
"""

import threading
from typing import Any

import celery.worker.state
import structlog

from spool.store.queue.leases import Claim

log = structlog.get_logger(__name__)


class CeleryStatus:
    """What runs in each of the pool's threads. `events`: whether to send them."""

    def __init__(self, *, events: bool) -> None:
        self._events = events
        self._thread = threading.local()

    def begin(self, task: Any) -> None:  # noqa: ANN401 - Celery has no types
        """This thread runs this task now."""
        self._thread.task = task

    def claimed(self, claim: Claim) -> None:
        """The task of this thread does this job from here on, and those that were claimed with it."""
        task = getattr(self._thread, "task", None)
        if task is None:
            return
        doing: dict[str, Any] = {"job_id": claim.job.id, "attempt": claim.attempt}
        if claim.others:
            doing["others"] = [other.job.id for other in claim.others]
        request = celery.worker.state.requests.get(task.request.id)
        if request is not None:
            # A new dictionary: the one of the message belongs to the task that is running.
            request._kwargs, request._kwargsrepr = doing, repr(doing)
        if self._events:
            try:
                task.send_event("task-started", retry=False, kwargs=repr(doing))
            except Exception as error:  # noqa: BLE001 - what is only shown must not end a job
                log.warning("no Celery event sent", error=repr(error))
