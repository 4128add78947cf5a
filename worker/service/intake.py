"""Which queues Celery consumes: none while the worker is unwell or outside its hours."""

from collections.abc import Iterable, Sequence
from typing import Any

from spool import clock


class QueueIntake:
    """Pauses and resumes the consumption of `queues`, to which more can be added. Thread-safe."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = list(queues)
        self._lock = clock.Lock()
        self._consumer: Any = None
        self._paused = False

    def attach(self, consumer: Any) -> None:  # noqa: ANN401 - Celery has no types
        """Set Celery's consumer, which is the same one after a lost connection."""
        with self._lock:
            self._consumer = consumer
            self._call_consumer("cancel_task_queue" if self._paused else "add_task_queue")

    @property
    def queues(self) -> list[str]:
        """The queues that are consumed, or will be once it resumes."""
        with self._lock:
            return list(self._queues)

    def serve(self, queues: Iterable[str]) -> None:
        """Also consume these queues."""
        with self._lock:
            new = [queue for queue in queues if queue not in self._queues]
            self._queues += new
            if not self._paused:
                self._call_consumer("add_task_queue", new)

    def pause(self) -> None:
        """Stop taking messages; one already on its way may still arrive."""
        with self._lock:
            if not self._paused:
                self._paused = True
                self._call_consumer("cancel_task_queue")

    def resume(self) -> None:
        """Take messages again."""
        with self._lock:
            if self._paused:
                self._paused = False
                self._call_consumer("add_task_queue")

    def _call_consumer(self, operation: str, queues: Sequence[str] | None = None) -> None:
        consumer = self._consumer
        if consumer is None:
            return  # `attach` repeats this once the consumer is ready
        for queue in self._queues if queues is None else queues:
            # The consumer may only be changed from its own thread.
            consumer.call_soon(getattr(consumer, operation), queue)
