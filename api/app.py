"""The FastAPI application: middleware, OpenAPI description, and the lifespan of its services.

The routes are in `api.routing`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from starlette.types import ASGIApp

from api import problems
from api.auth.key_cache import is_key_required
from api.middleware.access_log import AccessLog
from api.middleware.load import InFlight, LoadShedding
from api.middleware.local_origin import LocalOriginGuard
from api.middleware.slow_requests import SlowBody
from api.openapi.document import DESCRIPTION, complete
from api.routes.metrics import Metrics
from api.routing import add_routes
from api.services import Services, open_services
from api.watching.watcher import SourceWatcher
from spool import __version__
from spool.settings import Settings

if TYPE_CHECKING:
    from api.live.grpc.server import GrpcServer


class _App(FastAPI):
    """FastAPI behind our middleware, with the schema of problems in its OpenAPI description."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            page = super().openapi()
            self.openapi_schema = complete(page, requires_key=is_key_required(self.state.settings))
        return super().openapi()

    def build_middleware_stack(self) -> ASGIApp:
        # The log is outermost: it also sees the answers to unexpected errors.
        settings: Settings = self.state.settings
        in_flight = InFlight(settings.concurrent_requests, settings.concurrent_requests_per_key)
        inner = LoadShedding(SlowBody(super().build_middleware_stack()), in_flight)
        return AccessLog(LocalOriginGuard(inner, settings.api_host, self._requires_key))

    def _requires_key(self) -> bool:
        services: Services | None = getattr(self.state, "services", None)
        return services is not None and services.key_cache.requires_key


def create_app(settings: Settings) -> FastAPI:
    """The application for these settings. Opens no connection until it is started."""
    app = _App(
        title="Spool",
        version=__version__,
        description=DESCRIPTION,
        lifespan=_lifespan,
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.metrics = Metrics()
    problems.install(app)
    add_routes(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services = open_services(app.state.settings)
    app.state.services = services
    # Not one of the services, since it submits jobs through them as a request does.
    app.state.watcher = watcher = SourceWatcher(services)
    watcher.start()
    grpc_server: GrpcServer | None = None
    try:
        grpc_server = await _grpc_server(app)
        yield
    finally:
        if grpc_server is not None:
            await grpc_server.stop()
        await services.live.async_signals.close()
        await run_in_threadpool(watcher.stop)
        await run_in_threadpool(services.close)


async def _grpc_server(app: FastAPI) -> "GrpcServer | None":
    """WeNet's gRPC service, if a port is set for it. Its packages are an optional extra."""
    settings: Settings = app.state.settings
    if settings.grpc_port is None:
        return None
    from api.live.grpc.server import GrpcServer

    server = GrpcServer(app, settings)
    await server.start()
    return server
