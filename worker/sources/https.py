"""Downloads over HTTPS that can be stopped at any point.

A download runs in its own event loop in the job's thread: name lookup, connection, TLS, headers and body are
awaited, and twice a second the caller may stop them. Redirects must stay with https; `spool.net.pinned_http`
decides which addresses may be connected to.
"""

import asyncio
from collections.abc import Callable, Coroutine

import httpx

from spool.net.address_policy import AddressRules
from spool.net.pinned_http import CONNECT_SECONDS, PinnedTransport
from worker.sources.pace import POLL_SECONDS, Pace

REDIRECTS = 5


def web_client(rules: AddressRules, read_seconds: float) -> httpx.AsyncClient:
    """A client for https:// only that follows redirects; raises `HostRefused` as well as httpx's errors."""
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
    on_request: Callable[[httpx.Request], None],
    on_response: Callable[[httpx.Response], None],
    on_block: Callable[[bytes], None],
) -> None:
    """GET `address`: `on_request` gets every request, redirects included, `on_response` the status and
    headers, `on_block` the body as it arrives. Each of them, and `check`, may raise to stop.

    Raises HostRefused, httpx.HTTPError, httpx.InvalidURL, and StorageError where the server is too slow.
    """

    async def send_request_event(request: httpx.Request) -> None:
        on_request(request)

    async def receive() -> None:
        async with web_client(rules, pace.limits.first_byte_seconds) as client:
            client.event_hooks = {"request": [send_request_event]}
            async with client.stream("GET", address, headers={"Accept-Encoding": "identity"}) as response:
                on_response(response)
                pace.note(0)
                async for data in response.aiter_raw():
                    check()
                    pace.note(len(data))
                    on_block(data)

    asyncio.run(_run_checked(receive(), check, pace))


async def _run_checked(work: Coroutine[None, None, None], check: Callable[[], None], pace: Pace) -> None:
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=POLL_SECONDS))[0]:
            check()
            pace.check()
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
