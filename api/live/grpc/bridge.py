"""One `Recognize` call as a WebSocket of this process's own application.

The call goes through `/v1/listen/wenet` with its middleware, so keys, limits, log and session are the same as
for every live session. Answers are translated: JSON to messages, statuses and close codes to gRPC's.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
from starlette.types import ASGIApp, Message, Scope

from api.live.grpc.messages import Response

PATH = "/v1/listen/wenet"
QUERY = "spool-query"
"""The call's metadata with the session's parameters, written as a query: `model=stream&tag=room=7`."""

_AHEAD = 4
_STATUSES = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
_CLOSES = {
    1001: grpc.StatusCode.ABORTED,
    1003: grpc.StatusCode.INVALID_ARGUMENT,
    1007: grpc.StatusCode.INVALID_ARGUMENT,
    1008: grpc.StatusCode.RESOURCE_EXHAUSTED,
    1009: grpc.StatusCode.RESOURCE_EXHAUSTED,
    1011: grpc.StatusCode.INTERNAL,
    1012: grpc.StatusCode.UNAVAILABLE,
}
_END = '{"signal":"end"}'


class Call:
    """One call; `context` is gRPC's."""

    def __init__(
        self,
        app: ASGIApp,
        requests: AsyncIterator[Any],
        context: Any,  # noqa: ANN401 - gRPC's own
    ) -> None:
        self._app, self._requests, self._context = app, requests, context
        self._incoming: asyncio.Queue[Message] = asyncio.Queue(_AHEAD)
        self._gone = asyncio.Event()
        self._status, self._headers, self._body = 0, dict[str, str](), b""
        self._code, self._reason = 1000, ""

    async def run(self) -> None:
        """Serve the call to its end. A client that leaves ends the session as a client of a WebSocket
        does."""
        reading = asyncio.create_task(self._read())
        serving = asyncio.ensure_future(self._app(self._scope(), self._receive, self._send))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            self._gone.set()
            await serving
            raise
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
        await self._finish()

    async def _finish(self) -> None:
        """End the call with the status that the session ended with."""
        if self._status:
            try:
                sentence = str(json.loads(self._body)["detail"])
            except (ValueError, KeyError, TypeError):
                sentence = f"HTTP {self._status}"
            wait = self._headers.get("retry-after")
            code = _STATUSES.get(self._status, grpc.StatusCode.INTERNAL)
            await self._context.abort(code, sentence, (("retry-after", wait),) if wait else ())
        elif self._code != 1000:
            await self._context.abort(_CLOSES.get(self._code, grpc.StatusCode.INTERNAL), self._reason)

    def _scope(self) -> Scope:
        metadata = dict(self._context.invocation_metadata() or ())
        headers = [(b"host", b"localhost")]
        if (key := metadata.get("authorization")) is not None:
            headers.append((b"authorization", str(key).encode()))
        if (trace := metadata.get("traceparent")) is not None:
            headers.append((b"traceparent", str(trace).encode()))
        return {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "2",
            "scheme": "ws",
            "path": PATH,
            "raw_path": PATH.encode(),
            "root_path": "",
            "query_string": str(metadata.get(QUERY, "")).encode(),
            "headers": headers,
            "client": _address(self._context.peer()),
            "server": None,
            "subprotocols": [],
            "state": {},
            "extensions": {"websocket.http.response": {}},
        }

    # --- from the client ------------------------------------------------------------------------------------

    async def _read(self) -> None:
        await self._incoming.put({"type": "websocket.connect"})
        async for request in self._requests:
            await self._incoming.put(_message_of(request))
        await self._incoming.put({"type": "websocket.receive", "text": _END})

    async def _receive(self) -> Message:
        """The client's next message, or a disconnect."""
        message = asyncio.ensure_future(self._incoming.get())
        gone = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait({message, gone}, return_when=asyncio.FIRST_COMPLETED)
            if message.done():
                return message.result()
            return {"type": "websocket.disconnect", "code": 1006}
        finally:
            message.cancel()
            gone.cancel()

    # --- to the client --------------------------------------------------------------------------------------

    async def _send(self, message: Message) -> None:
        """Translate what the application sends. Raises OSError once the client has left."""
        if self._gone.is_set():
            raise OSError("the client has left")
        kind = message["type"]
        if kind == "websocket.accept":
            headers = {name.decode(): value.decode() for name, value in message.get("headers", ())}
            await self._context.send_initial_metadata(
                tuple((name, value) for name, value in headers.items() if name == "dg-request-id")
            )
        elif kind == "websocket.send":
            await self._context.write(_response_of(json.loads(message["text"])))
        elif kind == "websocket.close":
            self._code, self._reason = message.get("code", 1000), message.get("reason") or ""
        elif kind == "websocket.http.response.start":
            self._status = message["status"]
            self._headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        elif kind == "websocket.http.response.body":
            self._body += message.get("body", b"")


def _message_of(request: Any) -> Message:  # noqa: ANN401 - a message of protobuf
    if request.WhichOneof("RequestPayload") == "audio_data":
        return {"type": "websocket.receive", "bytes": request.audio_data}
    config = request.decode_config
    start = {
        "signal": "start",
        "nbest": config.nbest_config or 1,
        "continuous_decoding": config.continuous_decoding_config,
    }
    return {"type": "websocket.receive", "text": json.dumps(start)}


def _response_of(document: dict[str, Any]) -> Any:  # noqa: ANN401 - a message of protobuf
    """WeNet's JSON as a gRPC message."""
    if document["status"] != "ok":
        return Response(status="failed", nbest=[{"sentence": document["message"]}])
    best = [
        {"sentence": each["sentence"], "wordpieces": each.get("word_pieces", ())}
        for each in json.loads(document.get("nbest", "[]"))
    ]
    return Response(status="ok", type=document["type"], nbest=best)


def _address(peer: str) -> tuple[str, int] | None:
    """Host and port of what gRPC calls a peer: `ipv4:127.0.0.1:5`, `ipv6:[::1]:5` or `ipv6:%5B::1%5D:5`."""
    kind, _, rest = peer.replace("%5B", "[").replace("%5D", "]").partition(":")
    host, _, port = rest.rpartition(":")
    return (host.strip("[]"), int(port)) if kind in ("ipv4", "ipv6") and port.isdecimal() else None
