"""The queues that an unwell worker leaves and takes up again. Knows Celery's consumer; knows no job."""

import threading
from collections.abc import Sequence
from typing import Any


class QueueIntake:
    """Pauses and resumes the consumption of `queues`. Thread-safe."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = tuple(queues)
        self._lock = threading.Lock()
        self._consumer: Any = None
        self._paused = False

    def attach(self, consumer: Any) -> None:  # noqa: ANN401 - Celery has no types
        """Celery's consumer, each time that it is ready."""
        with self._lock:
            self._consumer = consumer
            if self._paused:
                self._tell("cancel_task_queue")

    def pause(self) -> None:
        """Take no more messages. One that is on its way may still come."""
        with self._lock:
            if not self._paused:
                self._paused = True
                self._tell("cancel_task_queue")

    def resume(self) -> None:
        """Take messages again."""
        with self._lock:
            if self._paused:
                self._paused = False
                self._tell("add_task_queue")

    def _tell(self, operation: str) -> None:
        consumer = self._consumer
        if consumer is None:
            return  # it is told when it is ready
        for queue in self._queues:
            # It belongs to the thread that runs it.
            consumer.call_soon(getattr(consumer, operation), queue)
