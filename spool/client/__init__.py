"""The Python client: `Spool` for plain code, `AsyncSpool` for asyncio, with the same methods.

    with Spool("http://127.0.0.1:8700") as spool:
        job = spool.wait(spool.submit("reel-42.flac").id)
        print(spool.transcript(job.id, "srt"))

    blocking, awaiting, session    the two classes, and what they share: they send, sleep and stream
    steps      what a call is made of, and when it is tried again
    jobs, batches, reports, webhooks    the calls, written once for both classes
    errors     what can go wrong

Answers are the models of `spool.schemas`, the server's own. Knows HTTP; no terminal, no settings but
`SPOOL_URL` and `SPOOL_API_KEY`.
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
