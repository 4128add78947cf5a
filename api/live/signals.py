"""Receives in the event loop what workers publish about live sessions, over one Redis client per process."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import redis.asyncio
from redis.exceptions import RedisError

from spool.broker.redis_client import client_address
from spool.settings import Settings

_PAUSE_SECONDS = 0.5
_CONNECT_SECONDS = 5.0
_MOST_MESSAGES = 20
"""Messages that are taken at once."""


class AsyncSignals:
    """A client of the channels of `spool.broker.live_signals`, for the event loop that created it."""

    def __init__(self, settings: Settings) -> None:
        self._client = redis.asyncio.Redis.from_url(
            client_address(settings), socket_connect_timeout=_CONNECT_SECONDS
        )

    @contextlib.asynccontextmanager
    async def listening(self, channel: str) -> AsyncIterator["AsyncSubscription"]:
        """Listen to the channel while the block runs."""
        subscription = AsyncSubscription(self._client, channel)
        try:
            yield subscription
        finally:
            await subscription.close()

    async def close(self) -> None:
        """Close the connections."""
        with contextlib.suppress(RedisError, OSError):
            await self._client.aclose()


class AsyncSubscription:
    """Waits for messages of one channel."""

    def __init__(self, client: "redis.asyncio.Redis", channel: str) -> None:
        self._channel = channel
        self._pubsub = client.pubsub(ignore_subscribe_messages=True)
        self._is_subscribed = False

    async def messages(self, seconds: float) -> list[dict[str, Any]]:
        """The messages received, after waiting up to so many seconds for the first; none without Redis."""
        try:
            if not self._is_subscribed:
                await self._pubsub.subscribe(self._channel)
                self._is_subscribed = True
            messages: list[dict[str, Any]] = []
            wait = seconds
            while len(messages) < _MOST_MESSAGES:
                message = await self._pubsub.get_message(timeout=wait)
                if message is None:
                    break
                messages.append(json.loads(message["data"]))
                wait = 0.0
        except (RedisError, OSError):
            self._is_subscribed = False
            with contextlib.suppress(RedisError, OSError):
                await self._pubsub.reset()
            await asyncio.sleep(min(seconds, _PAUSE_SECONDS))
            return []
        return messages

    async def close(self) -> None:
        """Stop the thread that listens."""
        with contextlib.suppress(RedisError, OSError):
            await self._pubsub.aclose()  # type: ignore[no-untyped-call]
