"""Runs the API under uvicorn.

The socket is bound first, so that port 0 means a free port and the address is known. `announce` names a file
that appears, complete, once requests are answered. On loopback without SPOOL_API_TOKEN the API requires the
home's local token (`api.local.token`).
"""

import asyncio
import errno
import importlib.util
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import structlog
import uvicorn
from fastapi import FastAPI
from pydantic import SecretStr

from api.app import create_app
from api.live.limits import READ_FRAME_BYTES
from api.local.token import LocalToken
from api.middleware.slow_requests import PatientProtocol, WebSocketProtocol
from api.server.process_pool import ProcessPool
from spool.errors import SettingsError
from spool.loading import finish_loading
from spool.logs import configure_logs
from spool.settings import Settings, unknown_variables
from spool.settings.home import keep_private
from spool.settings.validation import is_loopback
from spool.store import Database
from spool.store.api_keys import any_key
from spool.tracing import refuse_without_opentelemetry, start_traces

log = structlog.get_logger(__name__)

_CONNECTIONS = 4000
_OTHER_FILES = 200  # descriptors for databases, logs, uploads and recordings
_GRACE_S = 20  # how long a request may go on after SIGTERM
# The interpreter's switch interval: how long a parsing thread may hold up the event loop, which asks for the
# lock many times for each request.
SWITCH_SECONDS = 0.0002
_TICKS_A_SECOND = 10  # uvicorn's


class _Server(uvicorn.Server):
    """uvicorn's server, which reports when it answers requests (`ready`), and every second from then on
    (`beat`)."""

    def __init__(
        self,
        app: FastAPI,
        config: uvicorn.Config,
        drain_s: float,
        ready: Callable[[], None],
        beat: Callable[[], None] | None,
    ) -> None:
        super().__init__(config)
        self._app = app
        self._drain_s = drain_s
        self._ready = ready
        self._beat = beat

    async def on_tick(self, counter: int) -> bool:
        if self._beat is not None and counter % _TICKS_A_SECOND == 0:
            self._beat()
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            finish_loading()
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        services = getattr(self._app.state, "services", None)
        if services is not None:
            services.stopping.set()
            await asyncio.sleep(self._drain_s)
            # Event streams never end by themselves.
            services.feed.close_streams()
        await super().shutdown(sockets)


def serve(settings: Settings, announce: Path | None = None) -> None:
    """Answer requests until SIGTERM or SIGINT; requests under way are finished first.

    Raises SettingsError and ProcessPoolError.
    """
    _refuse_open_doors(settings)
    keep_private(settings.home)
    refuse_without_opentelemetry(settings.otlp_endpoint)
    _refuse_without_grpc(settings)
    listener = bind(settings.api_host, settings.api_port)
    url = _url(settings.api_host, listener)
    configure_logs(settings.log_json)
    with ExitStack() as stack:
        if settings.api_token is None and is_loopback(settings.api_host):
            token = SecretStr(stack.enter_context(LocalToken(settings.home)))
            settings = settings.model_copy(update={"api_token": token})
        _serve(settings, listener, url, announce)


def _serve(settings: Settings, listener: socket.socket, url: str, announce: Path | None) -> None:
    for sentence in unknown_variables():
        log.warning("unknown variable", reason=sentence)
    log.info("listening", url=url, processes=settings.api_processes)

    def ready() -> None:
        if announce is not None:
            _write_whole(announce, json.dumps({"url": url, "pid": os.getpid()}))

    try:
        if settings.api_processes > 1:
            ProcessPool(settings, listener, _answer_and_beat, settings.api_processes).run(ready)
        else:
            _answer(settings, listener, ready)
    finally:
        listener.close()
        if announce is not None:
            announce.unlink(missing_ok=True)


def _answer_and_beat(settings: Settings, listener: socket.socket, alive: Callable[[], None]) -> None:
    """Answer requests in a process of the pool."""
    _answer(settings, listener, alive, alive)


def _answer(
    settings: Settings,
    listener: socket.socket,
    ready: Callable[[], None],
    beat: Callable[[], None] | None = None,
) -> None:
    """Answer requests in this process."""
    configure_logs(settings.log_json)
    sys.setswitchinterval(SWITCH_SECONDS)
    stop_traces = start_traces(settings.otlp_endpoint, "spool-api")
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=_GRACE_S,
        server_header=False,
        http=PatientProtocol,
        ws=WebSocketProtocol,
        ws_max_size=READ_FRAME_BYTES,
        ws_per_message_deflate=False,
        limit_concurrency=_connection_limit(),
    )
    # uvicorn raises the signal again after its own shutdown; ignored here, so that ours can finish.
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        _Server(app, config, settings.api_drain_seconds, ready, beat).run(sockets=[listener])
    finally:
        stop_traces()


def _connection_limit() -> int:
    """How many connections the file descriptors allow, once their limit is raised as far as permitted.

    Beyond it uvicorn answers every request with 503, health checks included; `api.middleware.load` refuses
    earlier.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _CONNECTIONS + _OTHER_FILES
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(_CONNECTIONS, soft - _OTHER_FILES))


def _refuse_open_doors(settings: Settings) -> None:
    """Raise SettingsError if other machines would reach an API without keys."""
    if is_loopback(settings.api_host) or settings.api_token is not None:
        return
    database = Database(settings.database_url)
    try:
        with database.read() as tx:
            known = any_key(tx)
    finally:
        database.close()
    if not known:
        raise SettingsError(
            f"SPOOL_API_HOST {settings.api_host} admits other machines. Create a key first with "
            "`spool keys create`, or set SPOOL_API_TOKEN."
        )


def _refuse_without_grpc(settings: Settings) -> None:
    """Raise SettingsError if gRPC's port is set and taken, or if its packages are missing."""
    if settings.grpc_port is None:
        return
    if not all(importlib.util.find_spec(name) for name in ("grpc", "google", "google.protobuf")):
        raise SettingsError(
            "SPOOL_GRPC_PORT is set, but gRPC is not installed: pip install 'spool-transcribe[grpc]'."
        )
    bind(settings.api_host, settings.grpc_port).close()


def bind(host: str, port: int) -> socket.socket:
    """The socket to listen on. Raises SettingsError where the address is not to be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns off Nagle's algorithm only if TCP is named; with it, the body of an answer would wait some
    # 40 ms for the client to acknowledge the headers.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        problem = f"The API cannot listen on {host}:{port}: {error.strerror or error}."
        if error.errno == errno.EADDRINUSE:
            problem += " Another program uses this port: stop it, or set SPOOL_API_PORT to a free one."
        raise SettingsError(problem) from None
    return listener


def _url(host: str, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (compared, not bound)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def _write_whole(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    draft.write_text(text)
    draft.replace(path)
