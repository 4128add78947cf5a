"""The broker as a worker reads it: of a message nothing counts but the id of a job in it (law 1).

Whoever reaches the broker can put anything into a queue. What is no hint of ours is dropped and counted here,
before kombu and Celery parse it; for a hint they get a newly built message that holds only its id. Knows
kombu's Redis transport; knows no job.
"""

import base64
import json
import threading
import time
from typing import Any, cast

import kombu.transport
import structlog
from kombu.transport import redis
from redis.exceptions import ResponseError

from spool.broker.celery_app import TASK, hint_message
from spool.ids import is_id

log = structlog.get_logger(__name__)

PREFIX = "spool."  # of our queues; others are those of Celery's remote control
MOST_BYTES = 16 << 10  # a hint of ours has less than one KiB
REPORT_SECONDS = 10.0
PAUSE_SECONDS = 1.0


class _Dropped:
    """How many messages were no hints. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reported = -REPORT_SECONDS
        self.count = 0

    def add(self, why: str) -> None:
        """Count one, and say so from time to time."""
        with self._lock:
            self.count += 1
            if time.monotonic() - self._reported < REPORT_SECONDS:
                return
            self._reported = time.monotonic()
        log.warning("message dropped that is no hint", reason=why, dropped=self.count)


DROPPED = _Dropped()


class Channel(redis.Channel):
    """kombu's channel, which lives through what cannot be parsed."""

    def _brpop_read(self, **options: Any) -> Any:  # noqa: ANN401 - kombu's
        try:
            return super()._brpop_read(**options)  # type: ignore[no-untyped-call]
        except ResponseError as error:  # the queue is no list: nothing comes until somebody repairs that
            DROPPED.add(str(error))
            time.sleep(PAUSE_SECONDS)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            DROPPED.add(type(error).__name__)  # it is off the queue already
        return True


class Transport(redis.Transport):
    """kombu's transport, which delivers hints alone from our queues."""

    Channel = Channel

    def _deliver(self, message: object, queue: str) -> None:
        if str(queue).startswith(PREFIX):
            job_id = hinted_job(message)
            if job_id is None:
                DROPPED.add("not a job's id")
                return
            message = hint_message(job_id, queue)
        super()._deliver(message, queue)  # type: ignore[no-untyped-call]


def install() -> None:
    """Let this process read its broker so, whatever the URL's scheme. Before the first connection."""
    for scheme in ("redis", "rediss"):
        kombu.transport.TRANSPORT_ALIASES[scheme] = f"{__name__}:Transport"


def hinted_job(message: object) -> str | None:
    """The id of the job that the message of `spool.broker.celery_app.send_hint` names; None for any other."""
    try:
        raw = cast("dict[str, Any]", message)
        body = raw["body"]
        if raw["headers"]["task"] != TASK or len(body) > MOST_BYTES:
            return None
        (job_id,), _keywords, _options = json.loads(base64.b64decode(body, validate=True))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return job_id if isinstance(job_id, str) and is_id(job_id, "job") else None
