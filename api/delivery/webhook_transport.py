"""HTTP to addresses that users name: each connection goes to an address that the rules have seen.

As `worker.sources.https` does for recordings, without threads: the name is resolved, checked, and the
connection pinned to what was checked, under the name for TLS and `Host`. Plain http goes only to hosts that
the settings name. Knows no webhook.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import httpx

from spool.net.address_policy import AddressRules, HostRefused, HostUnknown, matches

_PORTS = {"https": 443, "http": 80}
# Resolving blocks; names that nobody answers for must not hold up the others.
_RESOLVERS = 32


class PinnedTransport(httpx.AsyncBaseTransport):
    """Resolves, checks, connects to what was checked; an address that does not answer yields to the next."""

    def __init__(self, rules: AddressRules) -> None:
        self._rules = rules
        self._resolvers = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="spool-resolve")
        self._inner = httpx.AsyncHTTPTransport(
            verify=httpx.create_ssl_context(trust_env=True),
            trust_env=False,
            # No connection is kept: one to the same address would carry a request for another name.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The answer of the first address that takes the connection. Raises HostRefused, httpx.HTTPError."""
        host = request.url.raw_host.decode("ascii")
        check_scheme(self._rules, request.url.scheme, host)
        port = request.url.port or _PORTS[request.url.scheme]
        loop = asyncio.get_running_loop()
        try:
            addresses = await loop.run_in_executor(self._resolvers, self._rules.resolved, host, port)
        except HostUnknown as error:
            raise httpx.ConnectError(str(error), request=request) from error
        for address in addresses[:-1]:
            try:
                return await self._send(request, host, address)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await self._send(request, host, addresses[-1])

    async def _send(self, request: httpx.Request, host: str, address: str) -> httpx.Response:
        pinned = httpx.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,  # `Host` among them
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host.strip("[]")},
        )
        return await self._inner.handle_async_request(pinned)

    async def aclose(self) -> None:
        """Let the connections go."""
        self._resolvers.shutdown(wait=False, cancel_futures=True)
        await self._inner.aclose()


def check_scheme(rules: AddressRules, scheme: str, host: str) -> None:
    """Raise HostRefused for anything but https, and for http to hosts that are not named as private."""
    normal = rules.check_name(host)
    if scheme == "https" or (scheme == "http" and any(matches(normal, one) for one in rules.private)):
        return
    raise HostRefused(f"{normal} is reached by https alone.")
