"""HTTP to addresses that users name: each connection goes to an address that the rules have checked.

The name is resolved, checked, and the connection pinned to the checked address, with the name for TLS and
`Host`, so neither a redirect nor a changing name leads inside. Proxy variables and `.netrc` of the
environment are ignored: behind a proxy the check would be worthless. Every wait is an await, so callers can
cancel it.
"""

import asyncio
import ssl
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httpx

from spool.net.address_policy import AddressRules, HostRefused, HostUnknown, matches, normal_host

CONNECT_SECONDS = 5.0
_PORTS = {"https": 443, "http": 80}


class PinnedTransport(httpx.AsyncBaseTransport):
    """Resolves, checks, and connects to a checked address; one that does not answer is skipped for the
    next."""

    def __init__(self, rules: AddressRules, *, plain_http: bool = False, resolvers: int = 1) -> None:
        """`plain_http`: whether hosts that the rules name as private may be reached without TLS. `resolvers`:
        how many names are resolved at once, each in a thread, so that an unanswered one delays no other."""
        self._rules = rules
        self._plain_http = plain_http
        self._resolvers = ThreadPoolExecutor(resolvers, thread_name_prefix="spool-resolve")
        self._inner = httpx.AsyncHTTPTransport(
            verify=_authorities(ssl.get_default_verify_paths()),
            trust_env=False,
            # No connection is kept: one to the same address would carry a request for another name.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The answer of the first address that accepts the connection. Raises HostRefused,
        httpx.HTTPError."""
        host = request.url.raw_host.decode("ascii")
        if self._plain_http:
            check_scheme(self._rules, request.url.scheme, host)
        elif request.url.scheme != "https":
            raise httpx.UnsupportedProtocol("Only https:// is allowed.")
        port = request.url.port or _PORTS[request.url.scheme]
        loop = asyncio.get_running_loop()
        try:
            addresses = await loop.run_in_executor(self._resolvers, self._rules.resolve, host, port)
        except HostUnknown as error:
            raise httpx.ConnectError(str(error), request=request) from error
        for address in addresses[:-1]:
            try:
                return await self._send(request, host, address)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await self._send(request, host, addresses[-1])

    async def _send(self, request: httpx.Request, host: str, address: str) -> httpx.Response:
        connections: list[Any] = []

        async def trace(event: str, info: dict[str, Any]) -> None:
            if event == "connection.connect_tcp.complete":
                connections.append(info["return_value"])

        pinned = httpx.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,  # `Host` among them
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host.strip("[]"), "trace": trace},
        )
        try:
            return await self._inner.handle_async_request(pinned)
        except asyncio.CancelledError:
            for connection in connections:  # httpcore forgets a connection that is still in its TLS handshake
                await connection.aclose()
            raise

    async def aclose(self) -> None:
        """Close the connections."""
        self._resolvers.shutdown(wait=False, cancel_futures=True)
        await self._inner.aclose()


@lru_cache(maxsize=1)
def _authorities(_paths: ssl.DefaultVerifyPaths) -> ssl.SSLContext:
    """Reading them takes 40 ms, and each job from the web has a client of its own. SSL_CERT_FILE and
    SSL_CERT_DIR are the operator's, and only add the authorities that they name."""
    return httpx.create_ssl_context(trust_env=True)


def split_address(address: str) -> SplitResult:
    """The parts of a web address that can be connected to, without its fragment.

    Raises ValueError, with a message that follows the name of the field, if `httpx` could not send a request
    there, or if it has a user name or password.
    """
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        if not host or "\\" in address or " " in address:
            raise ValueError("it needs a host and no spaces or backslashes")
        normal_host(host)
        _port, _host = parts.port, httpx.URL(address).host
    except (ValueError, httpx.InvalidURL) as error:
        raise ValueError(f"is not a web address: {str(error).removesuffix('.')}.") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not contain a user name or password.")
    return parts._replace(fragment="")


def check_scheme(rules: AddressRules, scheme: str, host: str) -> None:
    """Raise HostRefused for anything but https, and for http to hosts that are not named as private."""
    normal = rules.check_name(host)
    is_private = any(matches(normal, pattern) for pattern in rules.private)
    if scheme == "https" or (scheme == "http" and is_private):
        return
    raise HostRefused(f"{normal} may only be reached over https.")
