"""The Python client: `Spool` for plain code, `AsyncSpool` for asyncio, with the same methods.

    with Spool("http://127.0.0.1:8700") as spool:
        job = spool.wait(spool.submit("reel-42.flac").id)
        print(spool.transcript(job.id, "srt"))

`sync`, `aio` and `base` have the two classes, `exchange` the steps of a call and its retries, `errors` its
exceptions; the other modules have the calls, written once for both classes. Answers are the server's models
(`spool.schemas`).
"""

from spool.client.aio import AsyncSpool
from spool.client.errors import (
    ClientError,
    Conflict,
    Deleted,
    Forbidden,
    InvalidRequest,
    NotFound,
    RateLimited,
    Refused,
    ServerFailed,
    TimedOut,
    TooLarge,
    Unauthorized,
    Unreachable,
)
from spool.client.exchange import Retries
from spool.client.sync import Spool

__all__ = [
    "AsyncSpool",
    "ClientError",
    "Conflict",
    "Deleted",
    "Forbidden",
    "InvalidRequest",
    "NotFound",
    "RateLimited",
    "Refused",
    "Retries",
    "ServerFailed",
    "Spool",
    "TimedOut",
    "TooLarge",
    "Unauthorized",
    "Unreachable",
]
