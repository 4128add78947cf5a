"""Connections that drip are ended: before the headers, in the body, and after an early answer."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api.middleware import slow_requests
from ops.testbed.running_api import Live, Running, start
from ops.testbed.waiting import until
from spool.settings import Settings

FORM = (
    b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    b"Content-Length: 100000\r\n\r\n"
)
PART = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF'


@pytest.fixture
def running(settings: Settings) -> Iterator[Running]:
    running = start(settings, http=slow_requests.PatientProtocol)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def live(running: Running) -> Live:
    return running.live


def connected(live: Live) -> socket.socket:
    url = httpx.URL(live.url)
    return socket.create_connection((url.host, url.port or 0), timeout=60)


def protocol_of(running: Running, connection: socket.socket) -> slow_requests.PatientProtocol:
    """The server's side of this connection, once it has accepted it."""

    def accepted() -> list[slow_requests.PatientProtocol]:
        return [
            protocol
            for protocol in list(running.server.server_state.connections)
            if isinstance(protocol, slow_requests.PatientProtocol)
            and protocol.client == connection.getsockname()
        ]

    until(accepted, "the connection")
    return accepted()[0]


def rest(connection: socket.socket) -> bytes:
    """All that comes until the server closes; a server that never does is a timeout."""
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionError:  # it closed over bytes that it had not read
        pass
    return received


def test_a_connection_that_asks_nothing_is_closed(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_requests, "REQUEST_S", 0.2)
    for begun in (b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: "):
        with connected(live) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(begun)
            assert rest(connection) == b""


def test_a_second_request_may_not_drip_either(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with connected(running.live) as connection:
        protocol_of(running, connection)
        monkeypatch.setattr(slow_requests, "REQUEST_S", 0.2)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea")
        answer = rest(connection)
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.count(b"HTTP/1.1") == 1


def test_a_request_is_not_ended_by_the_wait_for_it(running: Running) -> None:
    with connected(running.live) as connection:
        protocol = protocol_of(running, connection)
        assert protocol._until_request is not None
        # When the headers are there, and only a part of the body
        connection.sendall(FORM.replace(b"100000", b"%d" % (len(PART) + 9)) + PART[:20])
        until(lambda: left_in(running.live.services.upload_folder), "a part of the upload")
        # Then nothing waits to close the connection
        assert protocol._until_request is None
        connection.sendall(PART[20:] + b"\r\n--x--\r\n")
        assert b" 202 " in connection.recv(65536)


def test_a_body_that_stops_is_refused_and_leaves_nothing(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_requests, "IDLE_S", 0.2)
    with connected(live) as connection:
        connection.sendall(FORM + PART)
        answer = rest(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"too_slow"' in answer
    assert left_in(live.services.upload_folder) == []


def test_a_body_that_drips_is_refused(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_requests, "SLOW_S", 0.0)
    monkeypatch.setattr(slow_requests, "BYTES_A_SECOND", 10**12)
    with connected(live) as connection:
        connection.sendall(FORM + PART)
        assert rest(connection).startswith(b"HTTP/1.1 408 ")


def test_who_goes_on_sending_after_the_answer_is_cut_off(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(running.live) as connection:
        protocol_of(running, connection)
        monkeypatch.setattr(slow_requests, "REQUEST_S", 0.2)
        connection.sendall(FORM.replace(b"multipart/form-data; boundary=x", b"audio/wav"))
        answer = rest(connection)
    assert answer.startswith(b"HTTP/1.1 415 ")


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.exists() else []
