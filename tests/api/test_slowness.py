"""Connections that drip are ended: before the headers, in the body, and after an early answer."""

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api import slowness
from spool.settings import Settings
from tests.api.running import Live, start

FORM = (
    b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    b"Content-Length: 100000\r\n\r\n"
)
PART = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF'


@pytest.fixture
def live(settings: Settings) -> Iterator[Live]:
    running = start(settings, http=slowness.PatientProtocol)
    try:
        yield running.live
    finally:
        running.close()


def connected(live: Live) -> socket.socket:
    url = httpx.URL(live.url)
    return socket.create_connection((url.host, url.port or 0), timeout=60)


def rest(connection: socket.socket) -> bytes:
    """All that comes until the server closes; a server that never does is a timeout."""
    received = b""
    while piece := connection.recv(65536):
        received += piece
    return received


def test_a_connection_that_asks_nothing_is_closed(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slowness, "REQUEST_S", 0.2)
    for begun in (b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: "):
        with connected(live) as connection:
            connection.sendall(begun)
            assert rest(connection) == b""


def test_a_second_request_may_not_drip_either(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slowness, "REQUEST_S", 0.5)
    with connected(live) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea")
        answer = rest(connection)
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.count(b"HTTP/1.1") == 1


def test_a_request_is_not_ended_by_the_wait_for_it(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a body that takes longer than headers may
    monkeypatch.setattr(slowness, "REQUEST_S", 0.05)
    with connected(live) as connection:
        connection.sendall(FORM.replace(b"100000", b"%d" % (len(PART) + 9)) + PART[:20])
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(60)
        connection.sendall(PART[20:] + b"\r\n--x--\r\n")
        assert b" 202 " in connection.recv(65536)


def test_a_body_that_stops_is_refused_and_leaves_nothing(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slowness, "IDLE_S", 0.2)
    with connected(live) as connection:
        connection.sendall(FORM + PART)
        answer = rest(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"too_slow"' in answer
    assert left_in(live.services.upload_folder) == []


def test_a_body_that_drips_is_refused(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slowness, "SLOW_S", 0.0)
    monkeypatch.setattr(slowness, "BYTES_A_SECOND", 10**12)
    with connected(live) as connection:
        connection.sendall(FORM + PART)
        assert rest(connection).startswith(b"HTTP/1.1 408 ")


def test_who_goes_on_sending_after_the_answer_is_cut_off(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slowness, "REQUEST_S", 0.2)
    with connected(live) as connection:
        connection.sendall(FORM.replace(b"multipart/form-data; boundary=x", b"audio/wav"))
        answer = rest(connection)
    assert answer.startswith(b"HTTP/1.1 415 ")


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.exists() else []
