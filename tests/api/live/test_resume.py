"""A session that goes on in another connection: where, whose, and what becomes of the one before it.

The worker is only played.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from socket import SHUT_RDWR
from typing import Any
from urllib.parse import urlencode

import pytest
from sqlalchemy import update
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from ops.testbed.running_api import Live
from ops.testbed.waiting import until
from spool.domain import (
    ChunkSpan,
    DecodedChunk,
    Job,
    LogParts,
    Recognition,
    Word,
    decode_record,
    is_in_part,
    part_prefix,
)
from spool.ids import new_id
from spool.store import Claim, close_log, get_job, get_parts
from spool.tables import jobs
from tests.api.live.test_limits import claiming

pytestmark = pytest.mark.integration
PIECE = b"\1\0" * 1600


def address(live: Live, **query: str) -> str:
    return f"{live.url.replace('http', 'ws', 1)}/v1/listen?{urlencode(query)}"


@contextmanager
def opened(live: Live, **query: str) -> Iterator[tuple[ClientConnection, Claim]]:
    """A session that its client was let into, with the claim of the worker that is played."""
    asked = {"model": "demo-tdt", "acknowledge": "true", "resume": "60", **query}
    with (
        claiming(live, worker := live.work()) as claimed,
        connect(address(live, **asked), proxy=None) as socket,
    ):
        with live.services.database.read() as tx:
            job = get_job(tx, claimed[0])
        assert job.lease_owner == worker.info.id
        yield socket, Claim(job, job.attempt, worker.info.id)


def resumed(live: Live, job_id: str, **query: str) -> ClientConnection:
    return connect(address(live, session=job_id, acknowledge="true", **query), proxy=None)


def told(socket: ClientConnection, kind: str) -> dict[str, Any]:
    """The next message of this type."""
    while True:
        message: dict[str, Any] = json.loads(socket.recv(60))
        if message["type"] == kind:
            return message


def stored(socket: ClientConnection, size: int) -> None:
    while told(socket, "Stored")["bytes"] < size:
        pass


def records(live: Live, job_id: str, part: int) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for item in live.services.objects.list(part_prefix(job_id, part)):
        if is_in_part(item.key, job_id, part):
            with live.services.objects.open(item.key) as stream:
                record = decode_record(stream.read())
            found.append((record.kind, record.data))
    return found


def audio(live: Live, job_id: str, part: int) -> bytes:
    return b"".join(data for kind, data in records(live, job_id, part) if kind == "audio")


def job_of(live: Live, job_id: str) -> Job:
    with live.services.database.read() as tx:
        return get_job(tx, job_id)


def parts_of(live: Live, job_id: str) -> LogParts:
    with live.services.database.read() as tx:
        return get_parts(tx, job_id)


def test_a_session_goes_on_behind_what_is_stored(live: Live) -> None:
    with opened(live) as (lost, claim):
        job_id = claim.job.id
        first = told(lost, "Stored")
        assert (first["request_id"], first["bytes"]) == (job_id, 0), "for browsers, which read no header"
        lost.send(PIECE)
        stored(lost, len(PIECE))
        lost.socket.shutdown(SHUT_RDWR)
        with resumed(live, job_id) as socket:
            assert socket.response is not None
            assert socket.response.headers["dg-request-id"] == job_id
            first = told(socket, "Resumed")
            assert (first["request_id"], first["bytes"], first["duration"]) == (job_id, len(PIECE), 0.1)
            socket.send(PIECE * 2)
            stored(socket, 3 * len(PIECE))
            socket.send('{"type": "CloseStream"}')
            until(lambda: records(live, job_id, 1)[-1:] == [("end", b"closed")], "the end of the log")
            live.work().finish(job_id, claim=claim)
            assert told(socket, "Metadata")["request_id"] == job_id
    assert audio(live, job_id, 0) == PIECE
    assert "end" not in {kind for kind, _ in records(live, job_id, 0)}
    assert audio(live, job_id, 1) == PIECE * 2
    assert parts_of(live, job_id) == LogParts((len(PIECE),))


def test_the_connection_that_is_still_open_is_closed_with_a_sentence(live: Live) -> None:
    with opened(live) as (old, claim), resumed(live, claim.job.id) as socket:
        assert told(socket, "Resumed")["bytes"] == 0
        assert told(old, "Error")["description"] == "The session continues on another connection."
        with pytest.raises(ConnectionClosed):
            old.recv(60)
        assert old.close_code == 1008
        socket.send(PIECE)
        stored(socket, len(PIECE))
    assert parts_of(live, claim.job.id) == LogParts((0,))


def test_a_client_that_resumes_is_told_the_finals_that_it_has_not(live: Live) -> None:
    with opened(live) as (lost, claim):
        for number in range(3):
            words = (Word(text=f"w{number}", start=number, end=number + 0.5, confidence=0.9),)
            first, last = number * 16_000, (number + 1) * 16_000
            live_worker = live.work()
            span = ChunkSpan(0, number, first, last, first, last)
            live_worker.save(claim, DecodedChunk(span, Recognition(words=words, engine_ns=1)))
        heard = told(lost, "Results")
        assert heard["channel"]["alternatives"][0]["transcript"] == "w0"
        lost.socket.shutdown(SHUT_RDWR)
        with resumed(live, claim.job.id, **{"from": str(heard["start"] + heard["duration"])}) as socket:
            texts = [told(socket, "Results")["channel"]["alternatives"][0]["transcript"] for _ in range(2)]
    assert texts == ["w1", "w2"]


def test_a_client_that_says_goodbye_or_asked_for_no_patience_ends_its_session(live: Live) -> None:
    with opened(live) as (socket, claim):
        socket.send(PIECE)
        stored(socket, len(PIECE))
        socket.close(1000)
        until(lambda: records(live, claim.job.id, 0)[-1:] == [("end", b"left")], "the end of the log")
    with pytest.raises(InvalidStatus) as caught:
        resumed(live, claim.job.id)
    assert caught.value.response.status_code == 409
    assert claim.job.id in caught.value.response.body.decode()


def refusal(live: Live, job_id: str, **query: str) -> int:
    with pytest.raises(InvalidStatus) as caught:
        resumed(live, job_id, **query)
    return caught.value.response.status_code


def test_what_cannot_be_resumed_is_refused(live: Live) -> None:
    with opened(live) as (_, claim):
        job_id = claim.job.id
        assert refusal(live, job_id, model="demo-tdt") == 422
        assert refusal(live, job_id, **{"from": "yesterday"}) == 422
        assert refusal(live, new_id("job")) == 404
        assert parts_of(live, job_id) == LogParts()
        with live.services.database.begin() as tx:
            assert close_log(tx, claim, LogParts())
        assert refusal(live, job_id) == 409, "the worker has taken the session for abandoned"
        with live.services.database.begin() as tx:
            tx.execute(update(jobs).where(jobs.c.id == job_id).values(key_id=new_id("key"), live_parts=None))
        assert refusal(live, job_id) == 404, "another key's session"
    with pytest.raises(InvalidStatus) as caught:
        connect(address(live, model="demo-tdt", resume="5"), proxy=None)
    assert caught.value.response.status_code == 422
