"""The gRPC server of one API process, on the event loop of its application."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import structlog
from grpc import aio
from starlette.types import ASGIApp

from api.live.grpc.bridge import Call
from api.live.grpc.messages import METHOD, SERVICE, Request, Response
from api.live.limits import MOST_OPENING, READ_FRAME_BYTES
from spool.errors import SettingsError
from spool.settings import Settings

log = structlog.get_logger(__name__)

_GRACE_SECONDS = 5.0


class GrpcServer:
    """Listens between `start` and `stop`."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        """Opens nothing until it is started."""
        assert settings.grpc_port is not None
        self._app, self._host, self._port = app, settings.api_host, settings.grpc_port
        self._most = settings.live_sessions + MOST_OPENING
        self._server: aio.Server | None = None
        self._calls: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start listening. Raises SettingsError if the port is not available."""
        self._server = aio.server(
            maximum_concurrent_rpcs=self._most,
            # All API processes share this port, as they share the HTTP port.
            options=[("grpc.max_receive_message_length", READ_FRAME_BYTES), ("grpc.so_reuseport", 1)],
        )
        handler = grpc.stream_stream_rpc_method_handler(
            self._recognize,
            request_deserializer=Request.FromString,
            response_serializer=Response.SerializeToString,
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),)
        )
        host = f"[{self._host}]" if ":" in self._host else self._host
        try:
            self._server.add_insecure_port(f"{host}:{self._port}")
        except RuntimeError:
            raise SettingsError(f"SPOOL_GRPC_PORT: cannot listen on {host}:{self._port}.") from None
        await self._server.start()
        log.info("listening", grpc=f"{host}:{self._port}")

    async def stop(self) -> None:
        """End all calls; what they have sent is kept."""
        if self._server is not None:
            await self._server.stop(_GRACE_SECONDS)
        if self._calls:
            await asyncio.wait(self._calls, timeout=_GRACE_SECONDS)

    async def _recognize(self, requests: AsyncIterator[Any], context: Any) -> None:  # noqa: ANN401 - gRPC's
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            await Call(self._app, requests, context).run()
        finally:
            self._calls.discard(task)
