"""The access log: one line per request, with the id of the key and never the key.

Every request with a key is logged; without one, only those that change something. Answers 401 and 403 are
warnings. A request that changes something is a span of its client's trace. `auth` leaves the caller in the
request's state.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import structlog
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth.principal import ANYBODY, Principal
from api.middleware.log_context import get_subject, request_subject
from spool.tracing import Span, span

log = structlog.get_logger(__name__)

_READING = {"GET", "HEAD", "OPTIONS"}


class AccessLog:
    """ASGI middleware around the whole app."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, and log when the answer begins."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})
        began = time.perf_counter()

        async def send_logged(message: Message) -> None:
            if message["type"] == "http.response.start":
                _log(scope, message["status"], time.perf_counter() - began)
                status = int(message["status"])
                trace.note(**get_subject(), status=status)
                if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    trace.record_error(HTTPException(status))
            await send(message)

        with request_subject(), _trace(scope) as trace:
            await self._app(scope, receive, send_logged)


@contextmanager
def _trace(scope: Scope) -> Iterator[Span]:
    """The request's span in its client's trace; requests that only read have none."""
    if scope["method"] in _READING:
        yield Span()
        return
    parent = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
    name = f"{scope['method']} {scope['path']}"
    with span(name, parent=parent.decode("latin-1"), kind="server") as step:
        yield step
        if (route := scope.get("route")) is not None:
            step.rename(f"{scope['method']} {route.path}")


def _log(scope: Scope, status: int, seconds: float) -> None:
    caller: Principal | None = scope["state"].get("caller")
    refused = status in (401, 403, 421)
    named = caller is not None and caller != ANYBODY
    if not (refused or named or (caller is not None and scope["method"] not in _READING)):
        return
    write = log.warning if refused else log.info
    write(
        "refused" if refused else "answered",
        method=scope["method"],
        path=scope["path"],
        status=status,
        **get_subject(),
        key=caller.name if caller else None,
        project=caller.project if caller else None,
        address=scope["client"][0] if scope.get("client") else None,
        milliseconds=round(seconds * 1000, 1),
    )
