"""The API as fixtures: over SQLite, a folder store and a real Valkey; see `ops.testbed.running_api`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import structlog

from ops.testbed.running_api import Live, start
from spool.settings import Settings


@pytest.fixture(scope="session", autouse=True)
def _plain_logs() -> Iterator[None]:
    """structlog's own default prints the local variables of tracebacks, which takes many seconds."""
    structlog.configure(
        # As in a server: stdout is for what commands print.
        logger_factory=structlog.stdlib.LoggerFactory(),
        processors=[structlog.processors.format_exc_info, structlog.processors.JSONRenderer()],
    )
    yield
    structlog.reset_defaults()


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """A folder that jobs may read from."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    (folder / "reel 1.wav").write_bytes(b"RIFF" + bytes(40))
    return folder


@pytest.fixture
def settings(
    make_settings: Callable[..., Settings], recordings: Path, sqlite_url: str, redis_url: str
) -> Settings:
    return make_settings(
        database_url=sqlite_url, redis_url=redis_url, source_roots=(recordings,), upload_max_bytes=300_000
    )


@pytest.fixture
def live(settings: Settings) -> Iterator[Live]:
    running = start(settings)
    try:
        yield running.live
    finally:
        running.close()


@pytest.fixture
def start_api() -> Iterator[Callable[[Settings], Live]]:
    """Starts one API after another, each with settings of its own."""
    started = []

    def begin(settings: Settings) -> Live:
        started.append(start(settings))
        return started[-1].live

    yield begin
    for running in started:
        running.close()


@pytest.fixture
def http(live: Live) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=live.url, timeout=60, verify=False) as client:
        yield client
