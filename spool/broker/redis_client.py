"""How redis-py reaches the broker, and whether the broker answers."""

from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError
from redis.retry import Retry

from spool.errors import StorageError
from spool.settings import Settings

_TIMEOUT_SECONDS = 5.0


def client_address(settings: Settings) -> str:
    """The broker's address as redis-py reads it."""
    address = settings.redis_url
    if address.startswith("redis+socket://"):
        parts = urlsplit(address)
        return f"unix://{parts.netloc}{parts.path}"
    return address


def open_client(settings: Settings) -> redis.Redis:
    """A client that tries once and fails soon."""
    options: dict[str, Any] = {
        "socket_timeout": _TIMEOUT_SECONDS,
        "socket_connect_timeout": _TIMEOUT_SECONDS,
        "retry": Retry(NoBackoff(), 0),
    }
    return redis.Redis.from_url(client_address(settings), **options)


def check_broker(settings: Settings) -> None:
    """Raise StorageError if the broker does not answer, or lets nobody in who has this address."""
    try:
        with open_client(settings) as client:
            client.ping()
    # Not the errors' own texts, which may contain the address with a password.
    except (AuthenticationError, NoPermissionError):
        raise StorageError("The broker refuses the user or password of SPOOL_REDIS_URL.") from None
    except (RedisError, OSError):
        raise StorageError("The broker of SPOOL_REDIS_URL does not answer.") from None
