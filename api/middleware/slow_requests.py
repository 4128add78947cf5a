"""Disconnects slow clients: those that send no request, trickle a body, or do not read the answer.

Each would otherwise hold a connection, and an upload its file, indefinitely (slowloris).
"""

import asyncio
from typing import Any

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from api.problems import Problem

REQUEST_S = 20.0
"""How long a connection may take to send a request's headers, from its start or the last answer."""
IDLE_S = 30.0
"""How long a body may pause."""
SLOW_S = 60.0
"""After this long a body must have arrived at `BYTES_A_SECOND` on average."""
BYTES_A_SECOND = 1024
WRITE_S = 30.0
"""How long a client may read nothing of an answer that fills the socket's buffers."""


class SlowBody:
    """ASGI middleware: a body that arrives too slowly is refused where it is read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, with a `receive` that raises `Problem` 408 for a body that is too slow."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await self._app(scope, _Body(receive), send)


class _Body:
    """`receive` of one request. The time that the server takes between calls does not count."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._more = True
        self._bytes = 0
        self._waited = 0.0

    async def __call__(self) -> Message:
        if not self._more:
            return await self._receive()  # waits until the client disconnects
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
    return Problem(408, "too_slow", "The request body arrives too slowly.", {"Connection": "close"})


class PatientProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 with deadlines for the next request and for reading an answer.

    uvicorn itself waits indefinitely for the first request and for a client that does not read, and restarts
    its keep-alive timer with each byte.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(*args, **kwargs)
        self._until_request: asyncio.TimerHandle | None = None
        self._until_read: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Stop waiting once a request has begun."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Leave the connection to another protocol, which has its own deadlines."""
        self._stop_waiting()
        self._stop_timer()
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        """Start waiting for the next request."""
        super().on_response_complete()
        if self.cycle is None or self.cycle.response_complete:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limits of the connection."""
        self._stop_waiting()
        self._stop_timer()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._stop_waiting()
        self._until_request = self.loop.call_later(REQUEST_S, self._end)

    def _stop_waiting(self) -> None:
        if self._until_request is not None:
            self._until_request.cancel()
            self._until_request = None

    def pause_writing(self) -> None:
        """The buffers are full: the client has `WRITE_S` to read some."""
        super().pause_writing()
        self._stop_timer()
        self._until_read = self.loop.call_later(WRITE_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._stop_timer()

    def _end(self) -> None:
        # Closing waits until the rest of an answer is sent, which may never happen.
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._until_read is not None:
            self._until_read.cancel()
            self._until_read = None


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, except that a refusal completes the handshake; uvicorn would log an error."""

    async def send(self, message: ASGISendEvent) -> None:
        """Send, and note that nothing more is to be sent."""
        await super().send(message)
        if self.close_sent:
            self.handshake_complete = True
