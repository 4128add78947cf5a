"""Requests under way are limited, reads before writes, and a client that does not read is cut off."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message, Scope

from api.middleware import slow_requests
from api.middleware.load import InFlight, LoadShedding
from api.problems import Problem
from ops.testbed.running_api import Live, Running, problem, start
from spool.settings import Settings


async def call(app: LoadShedding, method: str, path: str = "/v1/jobs", query: bytes = b"") -> int:
    """The status that the middleware answers a request with."""
    statuses: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
            if message["status"] == 503:
                assert dict(message["headers"])[b"retry-after"] == b"2"

    scope: Scope = {
        "type": "http", "method": method, "path": path, "query_string": query, "headers": [], "state": {},
        "scheme": "http", "server": ("localhost", 80),
    }  # fmt: skip
    await app(scope, receive, send)
    return statuses[0]


class Busy:
    """An application whose requests are under way until they are let go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.tickets: list[Any] = []

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if "ticket" in scope["state"]:
            self.tickets.append(scope["state"]["ticket"])
            await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})


def test_reads_are_refused_before_writes_and_health_never() -> None:
    async def run() -> None:
        busy, in_flight = Busy(), InFlight(10, 10)
        app = LoadShedding(busy, in_flight)
        under_way = [asyncio.create_task(call(app, "GET")) for _ in range(8)]
        await asyncio.sleep(0)
        assert await call(app, "GET") == 503
        under_way += [asyncio.create_task(call(app, "POST")) for _ in range(2)]
        await asyncio.sleep(0)
        assert await call(app, "POST") == 503
        assert await call(app, "GET", "/healthz") == 200
        assert await call(app, "GET", "/readyz") == 200
        busy.go.set()
        assert await asyncio.gather(*under_way) == [200] * 10
        assert in_flight.count == 0
        assert await call(app, "GET") == 200

    asyncio.run(run())


def test_one_caller_cannot_have_every_place() -> None:
    in_flight = InFlight(100, 2)
    tickets = [in_flight.admit(reads=True) for _ in range(4)]
    assert all(tickets)
    first, second, third, other = (ticket for ticket in tickets if ticket is not None)
    first.assign("key_a")
    second.assign("key_a")
    with pytest.raises(Problem, match="2 requests under way") as refused:
        third.assign("key_a")
    assert refused.value.status == 503
    other.assign("key_b")
    first.release()
    first.release()
    third.assign("key_a")
    for ticket in (second, third, other):
        ticket.release()
    assert in_flight.count == 0
    assert not in_flight.callers


@pytest.mark.parametrize(
    "path",
    ["/v1/jobs?batch=%00", "/v1/costs?group_by=tag&tag=a%00", "/v1/jobs/%00", "/v1/batches/a%00/results"],
)
def test_a_zero_byte_in_the_address_is_refused(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    assert answer.json()["code"] == "invalid_request"
    assert answer.status_code == 400


@pytest.fixture
def patient(settings: Settings) -> Iterator[Callable[..., Running]]:
    started = []

    def begin(**limits: int) -> Running:
        started.append(start(settings.model_copy(update=limits), http=slow_requests.PatientProtocol))
        return started[-1]

    yield begin
    for running in started:
        running.close()


def uploaded(live: Live, size: int) -> str:
    with httpx.Client(base_url=live.url, timeout=60) as client:
        job = client.post("/v1/jobs", files={"file": ("tape.wav", bytes(size))}).json()
        link = client.post(f"/v1/jobs/{job['id']}/audio-link").json()["url"]
    return str(link)


def unread(live: Live, path: str) -> socket.socket:
    """A connection that asks for `path` and reads nothing of the answer."""
    url = httpx.URL(live.url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((url.host, url.port or 0))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return connection


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_client_that_never_reads_is_cut_off(
    patient: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = patient(upload_max_bytes=64 * 2**20)
    audio = uploaded(running.live, 32 * 2**20)
    monkeypatch.setattr(slow_requests, "WRITE_S", 0.5)
    with unread(running.live, audio):
        eventually(lambda: bool(running.server.server_state.connections))
        eventually(lambda: not running.server.server_state.connections)
        eventually(lambda: not running.server.server_state.tasks)


def test_clients_that_do_not_read_keep_nobody_from_submitting(
    patient: Callable[..., Running], recordings: Path
) -> None:
    running = patient(concurrent_requests=10, concurrent_requests_per_key=100, upload_max_bytes=64 * 2**20)
    audio = uploaded(running.live, 32 * 2**20)
    silent = [unread(running.live, audio) for _ in range(30)]
    with httpx.Client(base_url=running.live.url, timeout=60) as client:
        eventually(lambda: client.get("/v1/jobs").status_code == 503)
        refused = client.get("/v1/jobs")
        problem(refused, 503, "overloaded")
        assert refused.headers["retry-after"]
        assert client.post("/v1/jobs", files={"file": ("a.wav", b"RIFF")}).status_code == 202
        assert client.get("/healthz").status_code == 200
        for connection in silent:
            connection.close()
        eventually(lambda: client.get("/v1/jobs").status_code == 200)
