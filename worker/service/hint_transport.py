"""The broker as a worker reads it: all that counts in a message is a job's id (law 1).

Whoever reaches the broker can put anything into a queue. What is no hint of ours is dropped and counted here,
before Celery sees it; of a hint Celery gets the job's id and a new task id. kombu's Redis transport would let
what it cannot parse end the worker; only its public methods are overridden, and kombu is pinned to its minor
version.
"""

import json
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import kombu.transport
import structlog
from kombu.transport import redis, virtual
from redis.exceptions import DataError, ResponseError

from spool import clock
from spool.broker.celery_app import TASK
from spool.ids import is_id

log = structlog.get_logger(__name__)

PREFIX = "spool."  # of our queues; others are those of Celery's remote control
MOST_BYTES = 16 << 10  # a hint of ours has less than one KiB
REPORT_SECONDS = 10.0
PAUSE_SECONDS = 1.0

_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError, DataError)


class _Dropped:
    """Counts messages that are not hints. Thread-safe."""

    def __init__(self) -> None:
        self._lock = clock.Lock()
        self._reported = -REPORT_SECONDS
        self.count = 0

    def add(self, why: str) -> None:
        """Count one, and say so from time to time."""
        with self._lock:
            self.count += 1
            if clock.monotonic() - self._reported < REPORT_SECONDS:
                return
            self._reported = clock.monotonic()
        log.warning("dropped a message that is not a hint", reason=why, dropped=self.count)


DROPPED = _Dropped()


class Message(virtual.Message):
    """kombu's message, which unpacks nothing: a compressed body may become of any size."""

    def __init__(self, payload: dict[str, Any], *args: object, **kwargs: object) -> None:
        if "compression" in (payload["headers"] or {}):
            raise ValueError("compressed")
        super().__init__(payload, *args, **kwargs)  # type: ignore[no-untyped-call]


class Channel(redis.Channel):
    """kombu's channel, which delivers only hints from our queues."""

    Message = Message

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], None], *args: object, **kwargs: object
    ) -> object:
        """Consume from the queue."""
        if queue.startswith(PREFIX):
            callback = partial(_deliver_hint, queue, callback)
        return super().basic_consume(queue, no_ack, callback, *args, **kwargs)  # type: ignore[no-untyped-call]


class Transport(redis.Transport):
    """kombu's transport, which survives messages that it cannot parse."""

    Channel = Channel

    def on_readable(self, fileno: int) -> object:  # type: ignore[override]
        """Read what has arrived."""
        try:
            return super().on_readable(fileno)  # type: ignore[no-untyped-call]
        except ResponseError as error:  # the queue is no list: nothing comes until somebody repairs that
            DROPPED.add(str(error))
            clock.sleep(PAUSE_SECONDS)
        except _UNREADABLE as error:
            DROPPED.add(type(error).__name__)  # it is off the queue already
        return None


def install() -> None:
    """Let this process read its broker so. Before the first connection. Celery's `broker_transport` would not
    reach addresses such as `redis+socket://`, which name theirs."""
    for scheme in ("redis", "rediss"):
        kombu.transport.TRANSPORT_ALIASES[scheme] = f"{__name__}:Transport"


def find_job_id(message: virtual.Message) -> str | None:
    """The id of the job that the message of `spool.broker.celery_app.send_hint` names; None for any other."""
    try:
        if message.headers["task"] != TASK or len(message.body) > MOST_BYTES:
            return None
        (job_id,), _keywords, _options = json.loads(message.body)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return job_id if isinstance(job_id, str) and is_id(job_id, "job") else None


def _deliver_hint(queue: str, callback: Callable[[Any], None], message: virtual.Message) -> None:
    """Pass on a message with the job's id and nothing else of the one that came."""
    job_id = find_job_id(message)
    if job_id is None:
        DROPPED.add("not a job's id")
        message.reject()  # type: ignore[no-untyped-call]
        return
    headers = {"task": TASK, "id": str(uuid.uuid4()), "argsrepr": repr((job_id,)), "kwargsrepr": "{}"}
    delivery = {"exchange": "", "routing_key": queue}
    hint = {
        "body": json.dumps([[job_id], {}, {}]),
        "headers": headers,
        "properties": {"delivery_tag": message.delivery_tag, "delivery_info": delivery},
        "content-type": "application/json",
        "content-encoding": "utf-8",
    }
    callback(Message(hint, message.channel))
