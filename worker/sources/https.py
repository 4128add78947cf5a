"""HTTPS to addresses that users name: each connection goes to an address that the rules have seen.

The name is resolved here, checked, and the connection pinned to the checked address, with the name kept for
TLS and for `Host`; so neither a redirect nor a name that changes its meaning leads inside. Proxy variables
and `.netrc` of the environment play no part: behind a proxy the check would be worth nothing. Knows no job.
"""

import httpx

from spool.net.address_policy import AddressRules, HostUnknown

TIMEOUT = httpx.Timeout(60.0, connect=5.0)
REDIRECTS = 5
_PORT = 443


def web_client(rules: AddressRules) -> httpx.Client:
    """A client for https:// alone that follows redirects; `HostRefused` is raised besides httpx's errors."""
    return httpx.Client(
        transport=PinnedTransport(rules),
        timeout=TIMEOUT,
        follow_redirects=True,
        max_redirects=REDIRECTS,
        trust_env=False,
    )


class PinnedTransport(httpx.BaseTransport):
    """Resolves, checks, connects to what was checked; an address that does not answer yields to the next."""

    def __init__(self, rules: AddressRules) -> None:
        self._rules = rules
        # No connection is kept: one to the same address would carry a request for another name.
        self._inner = httpx.HTTPTransport(
            # SSL_CERT_FILE and SSL_CERT_DIR are the operator's, and make nobody trusted but whom they name.
            verify=httpx.create_ssl_context(trust_env=True),
            trust_env=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The answer of the first address that takes the connection. Raises HostRefused, httpx.HTTPError."""
        if request.url.scheme != "https":
            raise httpx.UnsupportedProtocol("Only https is fetched.")
        host = request.url.raw_host.decode("ascii")
        try:
            addresses = self._rules.resolved(host, request.url.port or _PORT)
        except HostUnknown as error:
            raise httpx.ConnectError(str(error), request=request) from error
        for address in addresses[:-1]:
            try:
                return self._send(request, host, address)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return self._send(request, host, addresses[-1])

    def _send(self, request: httpx.Request, host: str, address: str) -> httpx.Response:
        pinned = httpx.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,  # `Host` among them
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host.strip("[]")},
        )
        return self._inner.handle_request(pinned)

    def close(self) -> None:
        """Let the connections go."""
        self._inner.close()
