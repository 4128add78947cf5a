"""Clients that say nothing and clients that read nothing, before a worker that is only played."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from socket import create_connection
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from api.live.limits import MOST_OPENING, Seats
from api.problems import Problem
from ops.testbed.running_api import FakeWorker, Live
from ops.testbed.waiting import until
from spool.broker import LiveSignals, words_channel
from spool.domain import JobState, LogRecord, decode_record, log_prefix
from spool.settings import Settings
from spool.store import JobFilter, list_jobs

pytestmark = pytest.mark.integration


PATH = "/v1/listen?model=demo-tdt&interim_results=true"
UPGRADE = (
    f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@contextmanager
def claiming(live: Live, worker: FakeWorker) -> Iterator[list[str]]:
    """The worker claims the job that comes next; it is in the list once it has."""

    def claim() -> None:
        waiting = JobFilter(state=JobState.QUEUED)
        while not claimed:
            with live.services.database.read() as tx:
                claimed.extend(job.id for job in list_jobs(tx, waiting).items)
        worker.claim(claimed[0])

    claimed: list[str] = []
    thread = threading.Thread(target=claim)
    thread.start()
    yield claimed
    thread.join()


@contextmanager
def session(live: Live) -> Iterator[tuple[ClientConnection, str]]:
    """An open session and its job."""
    with (
        claiming(live, live.work()) as claimed,
        connect(f"{live.url.replace('http', 'ws', 1)}{PATH}", proxy=None) as socket,
    ):
        yield socket, claimed[0]


def log_of(live: Live, job_id: str) -> list[LogRecord]:
    objects, records = live.services.objects, []
    for item in objects.list(log_prefix(job_id)):
        with objects.open(item.key) as stream:
            records.append(decode_record(stream.read()))
    return records


def test_a_client_that_says_nothing_is_disconnected_and_what_it_sent_is_kept(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.live.session.IDLE_SECONDS", 0.2)
    with session(live) as (socket, job_id):
        socket.send(b"\1\0" * 800)
        error = json.loads(socket.recv())
        assert error["type"] == "Error"
        with pytest.raises(ConnectionClosed):
            socket.recv()
        assert socket.close_code == 1011
        assert "KeepAlive" in (socket.close_reason or "")
    until(lambda: log_of(live, job_id)[-1].kind == "end", "the end of the log")
    assert b"".join(each.data for each in log_of(live, job_id)[:-1]) == b"\1\0" * 800


def test_only_so_many_wait_for_a_worker_at_once() -> None:
    seats = Seats(100, 100)
    with ExitStack() as stack:
        for _ in range(MOST_OPENING):
            stack.enter_context(seats.opening())
        with pytest.raises(Problem, match="being opened now"), seats.opening():
            pass
    with seats.opening():
        pass


def test_a_client_that_reads_nothing_is_disconnected(
    live: Live, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.live.session.SEND_SECONDS", 0.2)
    signals = LiveSignals(settings)
    partial: dict[str, Any] = {
        "type": "partial",
        "number": 0,
        "start": 0.0,
        "end": 1.0,
        "text": "x" * 500_000,
    }
    partial |= {"stable": "", "words": []}
    host, _, port = live.url.removeprefix("http://").partition(":")
    with claiming(live, live.work()) as claimed, create_connection((host, int(port))) as mute:
        mute.sendall(UPGRADE.encode())
        assert mute.recv(12) == b"HTTP/1.1 101"

        def is_over() -> bool:
            signals.tell(words_channel(claimed[0]), partial)
            return any(b"read nothing" in each.data for each in log_of(live, claimed[0]))

        until(is_over, "the session is over")
    signals.close()


def test_without_a_worker_a_session_is_refused_at_once(live: Live) -> None:
    address = f"{live.url.replace('http', 'ws', 1)}/v1/listen?model=demo-tdt"
    with pytest.raises(InvalidStatus) as caught, connect(address, proxy=None):
        pass
    assert caught.value.response.status_code == 503
    assert caught.value.response.headers["Retry-After"]


def test_another_sites_page_cannot_listen(live: Live) -> None:
    address = f"{live.url.replace('http', 'ws', 1)}/v1/listen?model=demo-tdt"
    elsewhere = Origin("https://example.org")
    with pytest.raises(InvalidStatus) as caught, connect(address, proxy=None, origin=elsewhere):
        pass
    assert caught.value.response.status_code == 403
