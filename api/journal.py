"""Who asked for what, and what came of it: one log line a request, with the key's id and never the key.

Every request that came with a key is told; without keys, where nobody knows who asks, what changed something
is. Answers with 401 and 403 are told as warnings. Knows what `auth` left in the request's state.
"""

import time

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.caller import ANYBODY, Caller

log = structlog.get_logger(__name__)

_READING = {"GET", "HEAD", "OPTIONS"}


class Journal:
    """ASGI middleware around the whole app."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, and tell when the answer begins."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})
        began = time.perf_counter()

        async def send_told(message: Message) -> None:
            if message["type"] == "http.response.start":
                _tell(scope, message["status"], time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, send_told)


def _tell(scope: Scope, status: int, seconds: float) -> None:
    caller: Caller | None = scope["state"].get("caller")
    refused = status in (401, 403, 421)
    named = caller is not None and caller != ANYBODY
    if not (refused or named or (caller is not None and scope["method"] not in _READING)):
        return
    tell = log.warning if refused else log.info
    tell(
        "refused" if refused else "answered",
        method=scope["method"],
        path=scope["path"],
        status=status,
        key=caller.name if caller else None,
        project=caller.project if caller else None,
        address=scope["client"][0] if scope.get("client") else None,
        milliseconds=round(seconds * 1000, 1),
    )
