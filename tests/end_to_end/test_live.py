"""Live sessions through all of Spool: a WebSocket, the API's process, Redis, SQL, a worker's process."""

import base64
import json
import os
import signal
import threading
import wave
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from io import BytesIO
from shutil import copy
from socket import SHUT_RDWR
from typing import Any

import httpx
import numpy as np
import pytest
import soxr
from openai import OpenAI
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

import migrations
from ops.testbed.live.fleet import (
    GOLDEN,
    QUERY,
    TOKEN,
    LiveFleet,
    finals,
    next_message,
    pcm,
    pieces,
    rest_of,
    words_of,
)
from ops.testbed.processes import REAL, ROOT
from ops.testbed.waiting import DEADLINE, until
from spool.broker import EmbeddedRedis
from spool.client.live import LiveStream
from spool.domain import JobState, log_prefix
from spool.objects import object_store
from spool.store import JobFilter, list_jobs


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, redis_server: EmbeddedRedis) -> Iterator[LiveFleet]:
    home = tmp_path_factory.mktemp("live")
    url = f"sqlite:///{home / 'spool.db'}"
    migrations.upgrade(url)
    models = {"stream": str(home / "model.nemo"), "demo-tdt": f"{ROOT}/models/demo"}
    copy(GOLDEN / "model.nemo", models["stream"])
    with closing(LiveFleet(home, url, redis_server.url, models)) as fleet:
        fleet.serve()
        fleet.start(*REAL)
        yield fleet


def test_words_come_while_audio_goes_and_the_record_stays(fleet: LiveFleet) -> None:
    audio = pcm(1) + pcm(2)
    asked = {"interim_results": "true", "vad_events": "true", "name": "council", "tag": "room=7"}
    with fleet.connect(**asked, then="demo-tdt") as socket:
        for piece in pieces(pcm(1)):
            socket.send(piece)
        first = next_message(socket)
        assert first["type"] in {"Results", "SpeechStarted"}
        socket.send('{"type": "KeepAlive"}')
        socket.send('{"type": "Finalize"}')
        messages = [first]
        while not messages[-1].get("from_finalize"):
            messages.append(next_message(socket))
        for piece in pieces(pcm(2)):
            socket.send(piece)
        socket.send('{"type": "CloseStream"}')
        messages += rest_of(socket)
        assert socket.close_code == 1000
    metadata = messages[-1]
    assert metadata["type"] == "Metadata"
    assert metadata["duration"] == pytest.approx(len(audio) / 32_000)
    assert "SpeechStarted" in {message["type"] for message in messages}
    interim = next(each for each in messages if each.get("is_final") is False)
    [heard] = interim["channel"]["alternatives"]
    assert " ".join(word["word"] for word in heard["words"]) == heard["transcript"] != ""
    assert all(0 <= word["start"] <= word["end"] <= metadata["duration"] for word in heard["words"])
    job_id = metadata["request_id"]
    assert finals(messages) == words_of(fleet, job_id) != []
    job = fleet.get(f"/v1/jobs/{job_id}").json()
    assert (job["state"], job["name"], job["tags"], job["source"]["kind"]) == (
        "done",
        "council.wav",
        {"room": "7"},
        "upload",
    )
    with wave.open(BytesIO(fleet.get(f"/v1/jobs/{job_id}/audio").content)) as recording:
        assert recording.readframes(recording.getnframes()) == audio
    assert not list(object_store(fleet.settings).list(log_prefix(job_id)))
    with fleet.db.read() as tx:
        (following,) = list_jobs(tx, JobFilter(tag=("live", job_id))).items
    until(lambda: fleet.ended([following.id]), "the job on the recording")
    after = fleet.job(following.id)
    assert (after.state, after.options.model, after.project) == (JobState.DONE, "demo-tdt", "default")


def test_a_worker_killed_in_mid_session_loses_no_word(fleet: LiveFleet) -> None:
    with fleet.connect() as unbroken:
        for piece in pieces(pcm(1) + pcm(2)):
            unbroken.send(piece)
        unbroken.send('{"type": "CloseStream"}')
        expected = finals(rest_of(unbroken))

    with fleet.connect() as socket:
        for piece in pieces(pcm(1)):
            socket.send(piece)
        heard = [next_message(socket)]
        job_id = heard[0]["metadata"]["request_id"]
        worker = next(each for each in fleet.workers() if each.alive)
        os.kill(worker.pid, signal.SIGKILL)
        for piece in pieces(pcm(2)):
            socket.send(piece)
        socket.send('{"type": "CloseStream"}')
        fleet.start(*REAL, name="beta")
        heard += rest_of(socket)
        assert socket.close_code == 1000
    assert finals(heard) == words_of(fleet, job_id) == expected
    assert fleet.job(job_id).attempt == 2


def test_a_session_goes_on_when_its_api_is_killed(fleet: LiveFleet) -> None:
    audio = pcm(1) + pcm(2)
    port = str(httpx.URL(fleet.url).port)
    told: list[dict[str, Any]] = []
    with LiveStream(fleet.url, TOKEN, resume=600, **QUERY) as stream:
        reader = threading.Thread(target=lambda: told.extend(stream))
        reader.start()
        for piece in pieces(pcm(1)):
            stream.send(piece)
        until(lambda: fleet.chunks(stream.job), "a final")
        fleet.api.kill()
        fleet.api.wait(DEADLINE)
        for piece in pieces(pcm(2)):
            stream.send(piece)
        fleet.serve("--port", port)
        stream.finish()
        reader.join(DEADLINE)
    assert (told[-1]["type"], stream.resumed) == ("Metadata", 1)
    job = fleet.job(stream.job)
    assert (job.state, job.attempt) == (JobState.DONE, 1)
    with wave.open(BytesIO(fleet.get(f"/v1/jobs/{job.id}/audio").content)) as recording:
        assert recording.readframes(recording.getnframes()) == audio, "no sample lost, none doubled"
    assert finals(told) == words_of(fleet, job.id) != []


def test_a_client_that_vanishes_leaves_its_record(fleet: LiveFleet) -> None:
    with fleet.connect(name="vanished") as socket:
        for piece in pieces(pcm(1)):
            socket.send(piece)
        assert socket.response is not None
        job_id = socket.response.headers["dg-request-id"]
        until(lambda: fleet.chunks(job_id), "a final")
        socket.socket.shutdown(SHUT_RDWR)
    until(lambda: fleet.ended([job_id]), "the session's job")
    assert fleet.job(job_id).state is JobState.DONE


UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def refused(fleet: LiveFleet, **query: str) -> httpx.Response:
    """The answer to a session that is not opened."""
    headers = {**UPGRADE, "Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=fleet.url, headers=headers, trust_env=False, timeout=60) as client:
        return client.get("/v1/listen", params={**QUERY, **query})


def test_models_that_cannot_stream_are_known_and_refused(fleet: LiveFleet) -> None:
    def known() -> dict[str, bool | None]:
        return {model["name"]: model["streams"] for model in fleet.get("/v1/models").json()["items"]}

    path = fleet.home / "short.wav"
    with wave.open(str(path), "wb") as recording:
        recording.setparams((1, 2, 16_000, 0, "NONE", ""))
        recording.writeframes(pcm(2))
    for model in ("demo-tdt", "stream"):
        fleet.send(fleet.submit(path, model))  # what loads it
    expected = {"demo-tdt": False, "stream": True}
    until(lambda: expected.items() <= known().items(), "a heartbeat has said which streams")
    answer = refused(fleet, model="demo-tdt")
    assert answer.status_code == 422
    assert "demo-tdt cannot stream" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"sample_rate": "7"}, "greater than or equal to 8000"),
        ({"sample_rate": "quick"}, "valid integer"),
        ({"encoding": "opus"}, "linear16"),
        ({"model": "nobody"}, "no model 'nobody'"),
        ({"diarise": "true"}, "not a parameter"),
        ({"att_context": "wide"}, "LEFT,RIGHT"),
        ({"then": "nobody"}, "no model 'nobody'"),
        ({"tag": "loose"}, "key=value"),
        ({"interim_results": "perhaps"}, "true or false"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_upgrade(
    fleet: LiveFleet, query: dict[str, str], said: str
) -> None:
    answer = refused(fleet, **query)
    assert answer.status_code == 422
    assert said in answer.json()["detail"]


def test_a_session_needs_a_key(fleet: LiveFleet) -> None:
    address = f"{fleet.url.replace('http', 'ws', 1)}/v1/listen?model=stream"
    with pytest.raises(InvalidStatus) as caught:
        connect(address, proxy=None)
    assert caught.value.response.status_code == 401
    with connect(address, subprotocols=["token", TOKEN], proxy=None) as socket:  # type: ignore[list-item]
        assert socket.subprotocol == "token"


def closed(socket: ClientConnection) -> tuple[int | None, str | None]:
    """How the server ends the session."""
    rest_of(socket)
    return socket.close_code, socket.close_reason


@pytest.mark.parametrize(
    ("frames", "code", "said"),
    [
        ([b"\0" * 3201], 1007, "not a whole number of samples"),
        (["this is what was said"], 1003, "binary frames"),
        (["[" * 100_000], 1003, "binary frames"),
        (['{"type": "Applaud"}'], 1003, "KeepAlive, Finalize, CloseStream"),
        ([b"RIFF" + b"\0" * 40], 1003, "without the header"),
        ([b"\0" * 640_000] * 3, 1008, "ten times real time"),
        ([b"\0" * (1 << 21)], 1009, "at most 1,048,576 bytes"),
    ],
)
def test_bad_input_ends_its_own_session_with_a_sentence(
    fleet: LiveFleet, frames: list[str | bytes], code: int, said: str
) -> None:
    with fleet.connect() as good, fleet.connect() as bad:
        for piece in pieces(pcm(1)):
            good.send(piece)
        with suppress(ConnectionClosed):
            for frame in frames:
                bad.send(frame)
        ended, reason = closed(bad)
        assert ended == code
        assert said in (reason or "")
        good.send('{"type": "CloseStream"}')
        assert finals(rest_of(good)), "another session notices nothing"


def test_wenets_clients_are_understood(fleet: LiveFleet) -> None:
    with fleet.connect("/v1/listen/wenet") as socket:
        socket.send('{"signal": "start", "nbest": 1, "continuous_decoding": true}')
        for piece in pieces(pcm(1)):
            socket.send(piece)
        socket.send('{"signal": "end"}')
        messages = rest_of(socket)
    kinds = [message["type"] for message in messages]
    assert (kinds[0], kinds[-1]) == ("server_ready", "speech_end")
    assert {"partial_result", "final_result"} <= set(kinds)
    best = json.loads(next(each for each in messages if each["type"] == "final_result")["nbest"])[0]
    assert best["sentence"] == " ".join(piece["word"] for piece in best["word_pieces"])


@pytest.mark.filterwarnings("ignore:websockets:DeprecationWarning")  # its client imports an old name
def test_deepgrams_own_client_is_understood(fleet: LiveFleet) -> None:
    from deepgram import DeepgramClient
    from deepgram.environment import DeepgramClientEnvironment

    here = fleet.url.replace("http", "ws", 1)
    places = {
        field: here for field in DeepgramClientEnvironment.__init__.__annotations__ if field != "return"
    }
    client = DeepgramClient(api_key=TOKEN, environment=DeepgramClientEnvironment(**places))
    with client.listen.v1.connect(model="stream", encoding="linear16", sample_rate="16000") as session:
        for piece in pieces(pcm(1)):
            session.send_media(piece)
        session.send_close_stream()
        kinds = [type(message).__name__ for message in session]
    assert kinds[-1] == "ListenV1Metadata"
    assert "ListenV1Results" in kinds


def _completed(events: list[Any]) -> list[Any]:
    kind = "conversation.item.input_audio_transcription.completed"
    return [event for event in events if event.type == kind]


@pytest.mark.filterwarnings("ignore:connect:DeprecationWarning")  # its client opens sockets the old way
def test_openais_own_client_is_understood(fleet: LiveFleet) -> None:
    """Its Realtime transcription: 24 kHz in base64, deltas that are never taken back."""
    samples = np.frombuffer(pcm(1), "<i2").astype(np.float32)
    wide = soxr.resample(samples, 16_000, 24_000).clip(-32768, 32767).astype("<i2").tobytes()
    client = OpenAI(api_key=TOKEN, base_url=f"{fleet.url}/v1", max_retries=0)
    query = {"intent": "transcription", "head": "rnnt", "att_context": "70,1"}
    heard: dict[str, Any] = {
        "format": {"type": "audio/pcm", "rate": 24_000},
        "transcription": {"model": "stream", "language": "en"},
        "turn_detection": {"type": "server_vad", "silence_duration_ms": 240},
    }
    straight: Any = {"proxy": None}  # which the type of its options lacks
    asked: Any = {"type": "transcription", "audio": {"input": heard}}
    with client.realtime.connect(extra_query=query, websocket_connection_options=straight) as session:
        session.session.update(session=asked)
        for at in range(0, len(wide), 9600):
            session.input_audio_buffer.append(audio=base64.b64encode(wide[at : at + 9600]).decode())
        session.input_audio_buffer.commit()
        events: list[Any] = []
        seconds = 0.0
        while seconds < len(pcm(1)) / 32_000 - 1e-3:
            events.append(session.recv())
            seconds = sum(event.usage.seconds for event in _completed(events))
    job = events[1].session.id
    assert [event.type for event in events[:2]] == ["session.created", "session.updated"]
    until(lambda: fleet.ended([job]), "the session's job")
    spoken: dict[str, str] = {}
    for event in events:
        if event.type == "conversation.item.input_audio_transcription.delta":
            spoken[event.item_id] = spoken.get(event.item_id, "") + event.delta
    completed = {event.item_id: event.transcript for event in _completed(events)}
    assert {item: text for item, text in completed.items() if text} == spoken != {}
    assert " ".join(text for text in completed.values() if text).split() == words_of(fleet, job)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ('{"type": "input_audio_buffer.append", "audio": ""}', "Send session.update "),
        ('{"type": "session.update", "session": {"type": "realtime"}}', "must be transcription"),
        (
            '{"type": "session.update", "session": {"type": "transcription", "audio": {"input": '
            '{"format": {"type": "audio/pcmu"}}}}}',
            "audio/pcm",
        ),
        (
            '{"type": "session.update", "session": {"type": "transcription", "audio": {"input": '
            '{"transcription": {"model": "nobody"}}}}}',
            "no model 'nobody'",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_openais_way(fleet: LiveFleet, message: str, said: str) -> None:
    address = f"{fleet.url.replace('http', 'ws', 1)}/v1/realtime"
    with connect(address, additional_headers={"Authorization": f"Bearer {TOKEN}"}, proxy=None) as socket:
        socket.send(message)
        created, error = rest_of(socket)
        assert created["type"] == "session.created"
        assert said in error["error"]["message"]
        assert socket.close_code in {1003, 1008}


@pytest.mark.long
def test_a_worker_that_drains_hands_its_sessions_on(fleet: LiveFleet) -> None:
    fleet.start(*REAL, name="gamma")
    with fleet.connect() as socket:
        for piece in pieces(pcm(1)):
            socket.send(piece)
        first = next_message(socket)
        owner = fleet.job(first["metadata"]["request_id"]).lease_owner
        pid = next(each.pid for each in fleet.workers() if each.id == owner)
        process = next(each for each in fleet._workers if each.pid == pid)
        process.send_signal(signal.SIGTERM)

        def drained() -> bool:
            socket.send('{"type": "KeepAlive"}')
            return process.poll() is not None

        until(drained, "it drained")
        assert process.returncode == 0
        socket.send('{"type": "CloseStream"}')
        rest = rest_of(socket)
        assert rest[-1]["type"] == "Metadata"
    assert finals([first, *rest]) == words_of(fleet, rest[-1]["request_id"])


def test_too_many_sessions_are_refused_with_the_time_to_wait(fleet: LiveFleet) -> None:
    fleet.api.terminate()
    fleet.api.wait(DEADLINE)
    fleet.serve(SPOOL_LIVE_SESSIONS_PER_KEY="2")
    with ExitStack() as open_sockets:
        for _ in range(2):
            open_sockets.enter_context(fleet.connect())
        with pytest.raises(InvalidStatus) as caught:
            fleet.connect()
        refusal = caught.value.response
        assert refusal.status_code == 503
        assert int(refusal.headers["Retry-After"]) > 0
        assert "live session" in refused(fleet).json()["detail"], "and at once, without a job"
