"""Ends what comes too slowly: a connection whose request does not arrive, a body that drips.

Each would hold a connection, and an upload its file, for as long as somebody likes (slowloris). Knows bytes
and clocks; knows no route.
"""

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from api.problems import Problem

REQUEST_S = 20.0
"""How long the line and the headers of a request may take, from the connection or the last answer on."""
IDLE_S = 30.0
"""How long nothing of a body may come."""
SLOW_S = 60.0
"""After so much waiting for a body it has to have come with `BYTES_A_SECOND`."""
BYTES_A_SECOND = 1024


class SlowBody:
    """ASGI middleware: a body that comes too slowly is refused where it is read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on; within, `receive` raises `Problem` 408 for a body that is too slow."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await self._app(scope, _Body(receive), send)


class _Body:
    """`receive` of one request. What the server itself takes to write is not counted."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._more = True
        self._bytes = 0
        self._waited = 0.0

    async def __call__(self) -> Message:
        if not self._more:
            return await self._receive()  # waits for the client to go away, as long as it stays
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            message = await asyncio.wait_for(self._receive(), IDLE_S)
        except TimeoutError:
            raise _too_slow() from None
        self._waited += loop.time() - began
        self._bytes += len(message.get("body", b""))
        self._more = message["type"] == "http.request" and message.get("more_body", False)
        if self._more and self._waited > SLOW_S and self._bytes < self._waited * BYTES_A_SECOND:
            raise _too_slow()
        return message


def _too_slow() -> Problem:
    return Problem(408, "too_slow", "The request's body comes too slowly.", {"Connection": "close"})


class PatientProtocol(H11Protocol):
    """uvicorn's HTTP/1.1, which closes a connection that is between requests for too long.

    uvicorn itself waits without end for the first request, and starts its keep-alive anew with each byte.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(*args, **kwargs)
        self._until_request: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Read on; stop waiting once a request has begun."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if self.cycle is None or self.cycle.response_complete:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._stop_waiting()
        self._until_request = self.loop.call_later(REQUEST_S, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._until_request is not None:
            self._until_request.cancel()
            self._until_request = None
