"""Protection against other sites' pages, and the security headers of every answer.

If no key is required (`spool serve` always requires one), loopback is the only barrier, and any web page open
in a browser on this machine can get past it: with a name that resolves to 127.0.0.1 (DNS rebinding), or by
posting a form. So a request must name this machine in `Host`, and one that a browser sends for another site
is refused. No CORS header is ever sent.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import problem_response

_HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[^:\[\]@/]+)(?::\d{1,5})?")
_ALWAYS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
}
_DATA_POLICY = "default-src 'none'; frame-ancestors 'none'"
_PAGE_POLICY = "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; object-src 'none'"


class LocalOriginGuard:
    """ASGI middleware around the whole app."""

    def __init__(self, app: ASGIApp, own_host: str, asks_for_keys: Callable[[], bool]) -> None:
        self._app = app
        self._own = own_host.strip("[]").lower()
        self._asks_for_keys = asks_for_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or pass on and add headers to the answer."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return

        scope.setdefault("state", {})

        async def send_guarded(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                headers = MutableHeaders(scope=message)
                headers.update(scope["state"].get("rate_headers", {}))
                _add_headers(headers, str(scope["path"]))
            await send(message)

        refused = None if self._asks_for_keys() else self._refusal(Headers(scope=scope))
        if refused is None:
            await self._app(scope, receive, send_guarded)
            return
        status, code, detail = refused
        await problem_response(HTTPConnection(scope), status, code, detail)(scope, receive, send_guarded)

    def _refusal(self, headers: Headers) -> tuple[int, str, str] | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_this_machine(hosts[0]):
            return 421, "misdirected", "This server requires no key and answers only requests to localhost."
        if any(_is_elsewhere(origin, hosts[0]) for origin in headers.getlist("origin")) or _is_cross_site(
            headers.getlist("sec-fetch-site"), headers.get("sec-fetch-mode")
        ):
            return (
                403,
                "cross_origin",
                "This server requires no key and refuses requests from other sites' pages.",
            )
        return None

    def _is_this_machine(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match["name"].strip("[]").lower()
        if name in ("localhost", self._own):
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False


def _is_elsewhere(origin: str, host: str) -> bool:
    return urlsplit(origin).netloc.lower() != host.lower()


def _is_cross_site(sites: Iterable[str], mode: str | None) -> bool:
    # Following a link from another page to the documentation is a navigation, which reads nothing.
    return mode != "navigate" and any(site not in ("same-origin", "none") for site in sites)


def _add_headers(headers: MutableHeaders, path: str) -> None:
    for name, value in _ALWAYS.items():
        headers.setdefault(name, value)
    is_page = headers.get("content-type", "").startswith("text/html")
    headers.setdefault("content-security-policy", _PAGE_POLICY if is_page else _DATA_POLICY)
    if path.startswith("/v1/"):
        # No cache on the way may store transcripts.
        headers.setdefault("cache-control", "no-store")
