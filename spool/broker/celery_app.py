"""The queue's names and the Celery application, as client and as worker.

Celery only carries hints: messages hold a job's id, are acknowledged early and may be lost or duplicated. The
reason for each option is beside it.
"""

import base64
import json
import ssl
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from celery import Celery
from kombu.exceptions import ChannelError, OperationalError
from redis.exceptions import RedisError

from spool.domain.jobs import queue_name
from spool.errors import StorageError
from spool.settings import Settings

__all__ = ["TASK", "celery_app", "hint_message", "queue_depth", "queue_name", "send_hint", "send_hints"]

TASK = "spool.transcribe"
"""The one task; its one argument is a job id."""

SOCKET_TIMEOUT_S = 10


def celery_app(settings: Settings) -> Celery:
    """The application. Connects to nothing yet; the worker registers `TASK` on it."""
    app = Celery("spool", broker=settings.redis_url, set_as_current=False)
    app.conf.update(
        # The row is authoritative and the message a hint: acknowledge at once, keep no result, wait for
        # nothing.
        task_acks_late=False,
        task_ignore_result=True,
        result_backend=None,
        # A worker takes a message only when a thread is free for it.
        worker_disable_prefetch=True,
        worker_prefetch_multiplier=1,
        worker_pool="threads",
        worker_concurrency=settings.concurrency,
        task_serializer="json",
        accept_content=["json"],
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options=_transport_options(),
        # Celery's own default queue is never used; naming it keeps stray messages visible.
        task_default_queue=queue_name(settings.pool),
        task_create_missing_queues=True,
        # Anyone who reaches the broker could stop every worker by Celery's remote control.
        worker_enable_remote_control=settings.celery_remote_control,
        worker_send_task_events=settings.celery_events or settings.celery_remote_control,
        worker_hijack_root_logger=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        enable_utc=True,
        timezone="UTC",
    )
    if settings.redis_url.startswith("rediss:"):
        app.conf.broker_use_ssl = {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    return app


def send_hint(app: Celery, job_id: str, queue: str) -> None:
    """Put the job's id into the queue. Tries once; raises StorageError when Redis does not answer."""
    send_hints(app, [job_id], queue)


def send_hints(app: Celery, job_ids: Sequence[str], queue: str) -> None:
    """Like `send_hint` for several jobs, in this order, with one command: all are in Redis then, or none.
    Celery takes some fifteen times as long for each (ops/bench/LOG.md)."""
    if not job_ids:
        return
    messages = [json.dumps(hint_message(job_id, queue)) for job_id in job_ids]
    with (
        _redis_errors(),
        app.connection_or_acquire() as connection,
        connection.default_channel.conn_or_acquire() as client,
    ):
        client.lpush(queue, *messages)


def hint_message(job_id: str, queue: str) -> dict[str, Any]:
    """The message as kombu stores it in a list of Redis: Celery's protocol 2, which its tools can read."""
    task_id = str(uuid.uuid4())
    embedded = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    body = json.dumps([[job_id], {}, embedded]).encode()
    return {
        "body": base64.b64encode(body).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {
            "lang": "py",
            "task": TASK,
            "id": task_id,
            "root_id": task_id,
            "parent_id": None,
            "group": None,
            "eta": None,
            "expires": None,
            "retries": 0,
            "timelimit": [None, None],
            "argsrepr": repr((job_id,)),
            "kwargsrepr": "{}",
            "origin": "spool",
            "ignore_result": True,
        },
        "properties": {
            "correlation_id": task_id,
            "reply_to": "",
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": str(uuid.uuid4()),
        },
    }


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
