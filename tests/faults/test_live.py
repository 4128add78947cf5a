"""Live sessions on PostgreSQL and S3: deployments, and an API process that is killed in mid-session."""

import json
import signal
import wave
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

import migrations
from ops.testbed.live.fleet import GOLDEN, LiveFleet, finals, pcm, pieces, rest_of, words_of
from ops.testbed.postgres import PostgresServer
from ops.testbed.processes import REAL
from ops.testbed.s3 import S3Server
from ops.testbed.waiting import DEADLINE, until
from spool.audit import Grace, audit
from spool.broker import EmbeddedRedis
from spool.domain import JobState
from spool.objects import object_store
from tests.faults.conftest import s3_settings

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def fleet(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: PostgresServer,
    broker: EmbeddedRedis,
    s3_server: S3Server,
) -> Iterator[LiveFleet]:
    url = postgres.create_database("spool-live")
    migrations.upgrade(url)
    home: Path = tmp_path_factory.mktemp("live")
    copy(GOLDEN / "model.nemo", home)
    settings = s3_settings(s3_server, "spool-live")
    with closing(LiveFleet(home, url, broker.url, {"stream": f"{home / 'model.nemo'}"}, **settings)) as fleet:
        fleet.serve()
        fleet.start(*REAL)
        yield fleet


def recording_of(fleet: LiveFleet, job_id: str) -> bytes:
    with wave.open(BytesIO(fleet.get(f"/v1/jobs/{job_id}/audio").content)) as recording:
        return recording.readframes(recording.getnframes())


def assert_lawful(fleet: LiveFleet) -> None:
    report = audit(fleet.db, object_store(fleet.settings), Grace(grace_seconds=30.0))
    assert report.clean, report.breaches


def speak(fleet: LiveFleet, audio: bytes) -> list[dict[str, Any]]:
    """A session without any fault."""
    with fleet.connect() as socket:
        for piece in pieces(audio):
            socket.send(piece)
        socket.send('{"type": "CloseStream"}')
        return rest_of(socket)


def stored_bytes(socket: ClientConnection, least: int) -> int:
    """Wait until so much is acknowledged; how much is."""
    while True:
        message = json.loads(socket.recv(DEADLINE))
        if message["type"] == "Stored" and message["bytes"] >= least:
            return int(message["bytes"])


def test_no_acknowledged_byte_goes_with_the_api(fleet: LiveFleet) -> None:
    audio = pcm(1) + pcm(2)
    sent = len(pcm(1))
    with fleet.connect(acknowledge="true") as socket:
        assert socket.response is not None
        first = socket.response.headers["dg-request-id"]
        for piece in pieces(audio[:sent]):
            socket.send(piece)
        acknowledged = stored_bytes(socket, sent // 2)
        fleet.api.send_signal(signal.SIGKILL)
        fleet.api.wait(DEADLINE)
        with pytest.raises(ConnectionClosed):  # noqa: PT012 - it may have said more before it died
            while True:
                message = json.loads(socket.recv(DEADLINE))
                acknowledged = message.get("bytes", acknowledged)
    fleet.serve()
    with fleet.connect(acknowledge="true") as socket:
        for piece in pieces(audio[acknowledged:]):
            socket.send(piece)
        socket.send('{"type": "CloseStream"}')
        rest = rest_of(socket)
    until(lambda: fleet.ended([first]), "the session that lost its API")
    assert fleet.job(first).state is JobState.DONE
    kept = recording_of(fleet, first)
    assert len(kept) >= acknowledged
    assert audio.startswith(kept)
    second = rest[-1]["request_id"]
    assert recording_of(fleet, second) == audio[acknowledged:]
    assert finals(rest) == words_of(fleet, second)
    assert_lawful(fleet)


def test_a_deployment_of_workers_changes_no_word(fleet: LiveFleet) -> None:
    """Every worker drains and is followed by another, twice, while two people speak."""
    audio = pcm(1) + pcm(2) + pcm(1)
    expected = finals(speak(fleet, audio))
    third = len(audio) // 3 // 2 * 2
    with fleet.connect() as one, fleet.connect() as other:
        for number, name in enumerate(("beta", "gamma", "")):
            for socket in (one, other):
                for piece in pieces(audio[number * third :][: third if name else None]):
                    socket.send(piece)
            if name:
                _deploy(fleet, name, (one, other))
        for socket in (one, other):
            socket.send('{"type": "CloseStream"}')
        heard = [rest_of(socket) for socket in (one, other)]
        assert [socket.close_code for socket in (one, other)] == [1000, 1000]
    for messages in heard:
        job_id = messages[-1]["request_id"]
        assert finals(messages) == words_of(fleet, job_id) == expected
        assert recording_of(fleet, job_id) == audio
        assert fleet.job(job_id).attempt == 3
    assert_lawful(fleet)


def _deploy(fleet: LiveFleet, name: str, sockets: tuple[ClientConnection, ...]) -> None:
    """Another worker starts, and those that ran before drain."""
    before = [process for process in fleet._workers if process.poll() is None]
    fleet.start(*REAL, name=name)
    for process in before:
        process.send_signal(signal.SIGTERM)

    def drained() -> bool:
        for socket in sockets:
            socket.send('{"type": "KeepAlive"}')
        return all(process.poll() is not None for process in before)

    until(drained, "the old workers drained")
    assert [process.returncode for process in before] == [0] * len(before)


def test_an_api_that_is_stopped_leaves_what_it_was_sent(fleet: LiveFleet) -> None:
    """Its clients are disconnected with 1012 (service restart), and their jobs end at once."""
    with fleet.connect(acknowledge="true") as socket:
        assert socket.response is not None
        job_id = socket.response.headers["dg-request-id"]
        for piece in pieces(pcm(1)):
            socket.send(piece)
        acknowledged = stored_bytes(socket, len(pcm(1)))
        fleet.api.terminate()
        rest_of(socket)
        assert socket.close_code == 1012
    assert fleet.api.wait(DEADLINE) == 0
    fleet.serve()
    until(lambda: fleet.ended([job_id]), "the session's job")
    assert len(recording_of(fleet, job_id)) == acknowledged == len(pcm(1))
    assert_lawful(fleet)
