"""Redis messages between API and workers about live sessions: hints, which may be lost (law 1).

`WAITING` announces that a session waits for a worker, `audio_channel` that a job's log has a new record,
`words_channel` the worker's messages: partials, which are stored nowhere, and saved finals. Without them
listeners look into SQL or the object store, only less often. Nothing here raises: without Redis there are no
partials.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping

import redis
from pydantic import JsonValue
from redis.exceptions import RedisError

from spool import clock
from spool.broker.redis_client import open_client
from spool.settings import Settings

WAITING = "spool.live"
LOOK_SECONDS = 1.0
"""The longest that a listener waits for a hint."""
_PAUSE_SECONDS = 0.25

Message = Mapping[str, JsonValue]


def audio_channel(job_id: str) -> str:
    """The channel that announces new records of the session's log."""
    return f"{WAITING}.{job_id}.heard"


def words_channel(job_id: str) -> str:
    """The channel of the worker's messages."""
    return f"{WAITING}.{job_id}.said"


class LiveSignals:
    """A client of the channels for threads. Thread-safe, except for what `listening` yields."""

    def __init__(self, settings: Settings) -> None:
        self._client = open_client(settings)

    def tell(self, channel: str, message: Message | None = None) -> None:
        """Publish the message to current listeners."""
        with contextlib.suppress(RedisError, OSError):
            self._client.publish(channel, json.dumps(message or {}))

    @contextlib.contextmanager
    def listening(self, channel: str) -> Iterator["Subscription"]:
        """Listen to the channel while the block runs."""
        subscription = Subscription(self._client, channel)
        try:
            yield subscription
        finally:
            subscription.close()

    def close(self) -> None:
        """Close the connections."""
        with contextlib.suppress(RedisError, OSError):
            self._client.close()


class Subscription:
    """Waits for messages of one channel. Used from one thread."""

    def __init__(self, client: "redis.Redis", channel: str) -> None:
        self._channel = channel
        self._pubsub = client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self._is_subscribed = False

    def wait(self, seconds: float) -> bool:
        """Whether a message came within so many seconds, or before the call. Without Redis it waits a
        moment."""
        try:
            if not self._is_subscribed:
                self._pubsub.subscribe(self._channel)
                self._is_subscribed = True
            if self._pubsub.get_message(timeout=seconds) is None:
                return False
            while self._pubsub.get_message(timeout=0) is not None:
                pass
        except (RedisError, OSError):
            self._is_subscribed = False
            with contextlib.suppress(RedisError, OSError):
                self._pubsub.reset()
            clock.sleep(min(seconds, _PAUSE_SECONDS))
            return False
        return True

    def close(self) -> None:
        """Leave the channel and close the connection."""
        with contextlib.suppress(RedisError, OSError):
            self._pubsub.close()
