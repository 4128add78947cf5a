"""Downloads over HTTPS that can be stopped whatever the server does.

A download runs in an event loop of its own in the job's thread: name lookup, connection, TLS, headers and
body are awaited, and twice a second the caller may stop them. Redirects must stay with https; which addresses
may be connected to is decided by `spool.net.pinned_http`. Knows no job.
"""

import asyncio
from collections.abc import Callable, Coroutine

import httpx

from spool.net.address_policy import AddressRules
from spool.net.pinned_http import CONNECT_SECONDS, PinnedTransport
from worker.sources.pace import POLL_SECONDS, Pace

REDIRECTS = 5


def web_client(rules: AddressRules, read_seconds: float) -> httpx.AsyncClient:
    """A client for https:// only, which follows redirects; raises `HostRefused` besides httpx's errors."""
    return httpx.AsyncClient(
        transport=PinnedTransport(rules),
        timeout=httpx.Timeout(read_seconds, connect=CONNECT_SECONDS),
        follow_redirects=True,
        max_redirects=REDIRECTS,
        trust_env=False,
    )


def download(
    address: str,
    rules: AddressRules,
    check: Callable[[], None],
    pace: Pace,
    *,
    each_request: Callable[[httpx.Request], None],
    answer: Callable[[httpx.Response], None],
    block: Callable[[bytes], None],
) -> None:
    """GET `address`: `each_request` sees every request, redirects included, `answer` the status and headers,
    `block` the body as it arrives. Each of them, and `check`, may raise to stop.

    Raises HostRefused, httpx.HTTPError, httpx.InvalidURL, and StorageError where the server is too slow.
    """

    async def see_request(request: httpx.Request) -> None:
        each_request(request)

    async def receive() -> None:
        async with web_client(rules, pace.limits.first_byte_seconds) as client:
            client.event_hooks = {"request": [see_request]}
            async with client.stream("GET", address, headers={"Accept-Encoding": "identity"}) as response:
                answer(response)
                pace.note(0)
                async for data in response.aiter_raw():
                    check()
                    pace.note(len(data))
                    block(data)

    asyncio.run(_watched(receive(), check, pace))


async def _watched(work: Coroutine[None, None, None], check: Callable[[], None], pace: Pace) -> None:
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=POLL_SECONDS))[0]:
            check()
            pace.check()
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
