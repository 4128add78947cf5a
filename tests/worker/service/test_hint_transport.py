"""What stands in the queue and is no hint of ours, before a real worker process."""

import base64
import copy
import json
import pickle
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu.connection import Connection
from kombu.transport import virtual
from redis import Redis

from ops.testbed.jobs import speechlike, write_wav
from ops.testbed.processes import Fleet, drained
from ops.testbed.waiting import until
from spool.broker import TASK, send_hint
from spool.broker.celery_app import celery_app
from spool.domain import JobState
from spool.ids import new_id
from worker.service import DROPPED, Transport

QUEUE = "spool.cpu"
JUNK = 10_000


class Bomb:
    """Makes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self._path), "w")


@pytest.fixture
def fleet(tmp_path: Path, sqlite_url: str, redis_url: str) -> Iterator[Fleet]:
    models = {"SPOOL_MODELS": "plain=plain", "SPOOL_DEFAULT_MODEL": "plain", "SPOOL_LEASE_SECONDS": "30"}
    fleet = Fleet(tmp_path, sqlite_url, redis_url, **models)
    yield fleet
    fleet.close()


@pytest.fixture
def app(fleet: Fleet) -> Iterator[Celery]:
    app = celery_app(fleet.settings)
    yield app
    app.close()


def _client(url: str) -> Redis:
    return Redis(unix_socket_path=url.removeprefix("redis+socket://").partition("?")[0])


def _hint(client: Redis, app: Celery, job_id: object = None) -> dict[str, Any]:
    """A message as the broker holds it."""
    send_hint(app, job_id or new_id("job"), "spool.made")  # type: ignore[arg-type]
    message: dict[str, Any] = json.loads(client.rpop("spool.made"))  # type: ignore[arg-type]
    return message


def _junk(chance: random.Random, bomb: Path, hints: Sequence[dict[str, Any]]) -> Iterator[bytes]:
    """Anything that a stranger could put there: no JSON, other JSON, hints with one part spoilt."""
    spoilt: list[object] = [None, 7, "x", [], {}, {"a": [1]}, "é" * 50, -1e300, [[[]]], True]
    pickled = base64.b64encode(pickle.dumps(Bomb(bomb))).decode()
    yield from (b"not json", b"", b"\xff\xfe", b"null", b"[]", b"{", b"[" * 100_000, b"9" * 5000)
    while True:
        message = copy.deepcopy(chance.choice(hints))
        part = chance.choice([message, message["headers"], message["properties"]])
        name = chance.choice(sorted(part))
        if chance.random() < 0.5:
            part[name] = chance.choice(spoilt)
        else:
            del part[name]
        if chance.random() < 0.2:
            message |= {"content-type": "application/x-python-serialize", "body": pickled}
        data = json.dumps(message).encode()
        yield data[: chance.randrange(len(data))] if chance.random() < 0.2 else data


def test_no_message_ends_a_worker(fleet: Fleet, tmp_path: Path, redis_url: str, app: Celery) -> None:
    worker = fleet.start()
    bomb = tmp_path / "bomb"
    with _client(redis_url) as client:
        hints = [_hint(client, app, name) for name in ("job_1", 7, "../x", new_id("job"))]
        junk = _junk(random.Random(14), bomb, hints)
        for _ in range(JUNK // 100):
            client.lpush(QUEUE, *(next(junk) for _ in range(100)))
        app.control.broadcast("shutdown")
        until(lambda: client.llen(QUEUE) == 0, "all taken off the queue")
    assert worker.poll() is None
    job_id = fleet.submit(write_wav(tmp_path / "a.wav", speechlike(5)))
    until(lambda: fleet.ended([job_id]), "the job ended")
    assert fleet.job(job_id).state is JobState.DONE
    until(lambda: fleet.worker_row(worker).counts.junk_messages > JUNK // 2, "junk is counted")
    assert not bomb.exists()
    assert drained(worker) == 0


@pytest.fixture
def delivered(redis_url: str) -> Iterator[Callable[[dict[str, Any]], virtual.Message | None]]:
    """Puts a raw message into a queue, and gives what a worker's channel makes of it."""
    connection = Connection(redis_url)
    connection.transport_cls = Transport
    channel = connection.channel()
    came: list[virtual.Message] = []
    channel.basic_consume(QUEUE, False, came.append, QUEUE)

    def deliver(raw: dict[str, Any]) -> virtual.Message | None:
        with _client(redis_url) as client:
            client.lpush(QUEUE, json.dumps(raw))
        connection.drain_events(timeout=30)
        return came.pop() if came else None

    yield deliver
    connection.release()


def test_of_a_hint_its_job_is_all_that_counts(
    delivered: Callable[[dict[str, Any]], virtual.Message | None], redis_url: str, app: Celery
) -> None:
    job_id = new_id("job")
    with _client(redis_url) as client:
        raw, other = _hint(client, app, job_id), _hint(client, app, "job_1")
    raw["headers"] |= {"eta": "yesterday", "timelimit": "no", "shadow": 7, "replaced": "x"}
    raw["properties"]["reply_to"] = "elsewhere"
    message = delivered(raw)
    assert message is not None
    assert message.payload[0] == [job_id]
    assert set(message.headers) == {"task", "id", "argsrepr", "kwargsrepr"}
    assert message.headers["id"] != raw["headers"]["id"]
    assert set(message.properties) == {"delivery_tag", "delivery_info"}
    before = DROPPED.count
    assert delivered(raw | {"headers": {"task": f"{TASK}s"}}) is None
    assert delivered(other) is None
    assert DROPPED.count == before + 2


def test_a_compressed_message_is_not_unpacked(
    delivered: Callable[[dict[str, Any]], virtual.Message | None], redis_url: str, app: Celery
) -> None:
    with _client(redis_url) as client:
        raw = _hint(client, app)
    body = base64.b64decode(raw["body"])
    raw["body"] = base64.b64encode(zlib.compress(body + b" " * (1 << 24))).decode()
    raw["headers"]["compression"] = "application/x-gzip"
    with pytest.raises(ValueError, match="compressed"):
        delivered(raw)
