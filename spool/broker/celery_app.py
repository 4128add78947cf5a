"""The queue's names, and the Celery application that sends hints and receives them.

Celery only carries hints: messages hold a job's id, are acknowledged early and may be lost or duplicated. The
reason for each option is beside it. The task itself is in `worker.tasks`.
"""

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from celery import Celery
from kombu.exceptions import ChannelError, OperationalError
from redis.exceptions import RedisError

from spool.domain.jobs import queue_name
from spool.errors import StorageError
from spool.settings import Settings

__all__ = ["TASK", "celery_app", "celery_options", "queue_depth", "queue_name", "send_hint", "send_hints"]

TASK = "spool.transcribe"
"""The one task, `worker.tasks.transcribe`; its one argument is a job id."""

SOCKET_TIMEOUT_S = 10


def celery_app(settings: Settings) -> Celery:
    """The application. Connects to nothing yet."""
    app = Celery("spool", set_as_current=False)
    app.conf.update(celery_options(settings))
    return app


def celery_options(settings: Settings) -> dict[str, Any]:
    """Celery's configuration."""
    options = {
        "broker_url": settings.redis_url,
        # The row is authoritative and the message a hint: acknowledge at once, keep no result, wait for
        # nothing.
        "task_acks_late": False,
        "task_ignore_result": True,
        "result_backend": None,
        # A worker takes a message only when a thread is free for it.
        "worker_disable_prefetch": True,
        "worker_prefetch_multiplier": 1,
        "worker_pool": "threads",
        "worker_concurrency": settings.concurrency,
        "task_serializer": "json",
        "accept_content": ["json"],
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_transport_options": _transport_options(),
        # Celery's own default queue is never used; naming it keeps stray messages visible.
        "task_default_queue": queue_name(settings.pool),
        "task_create_missing_queues": True,
        # Anyone who reaches the broker could stop every worker by Celery's remote control.
        "worker_enable_remote_control": settings.celery_remote_control,
        "worker_send_task_events": settings.celery_events or settings.celery_remote_control,
        "worker_hijack_root_logger": False,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "enable_utc": True,
        "timezone": "UTC",
    }
    if settings.redis_url.startswith("rediss:"):
        options["broker_use_ssl"] = {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    return options


def send_hint(app: Celery, job_id: str, queue: str) -> None:
    """Put the job's id into the queue. Tries once; raises StorageError when Redis does not answer."""
    send_hints(app, [job_id], queue)


def send_hints(app: Celery, job_ids: Sequence[str], queue: str) -> None:
    """Like `send_hint` for several jobs, in this order, over one connection. If it raises, the first ones may
    have been sent."""
    if not job_ids:
        return
    with _redis_errors(), app.producer_or_acquire() as producer:
        for job_id in job_ids:
            app.send_task(TASK, (job_id,), queue=queue, ignore_result=True, retry=False, producer=producer)


def queue_depth(app: Celery, queue: str) -> int:
    """How many messages wait in the queue. Raises StorageError when Redis does not answer."""
    with _redis_errors(), app.connection_or_acquire() as connection:
        try:
            return int(connection.default_channel.queue_declare(queue, passive=True).message_count)
        except ChannelError:  # Redis has no empty lists
            return 0


@contextmanager
def _redis_errors() -> Iterator[None]:
    try:
        yield
    except (OperationalError, RedisError, OSError) as error:
        # Not the error's own text, which may contain the address with a password.
        raise StorageError("Redis does not answer.") from error


def _transport_options() -> dict[str, Any]:
    return {
        # A half-open connection would otherwise hold a worker forever.
        "socket_timeout": SOCKET_TIMEOUT_S,
        "socket_connect_timeout": SOCKET_TIMEOUT_S,
        "socket_keepalive": True,
        "health_check_interval": 25,
        # Publishing: fail soon, since the outbox keeps unsent hints.
        "max_retries": 1,
        "interval_start": 0,
        "interval_step": 0.2,
        "interval_max": 0.2,
    }
