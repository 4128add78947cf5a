"""What stands in the queue and is no hint of ours, before a real worker process."""

import base64
import json
import pickle
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from ops.testbed.jobs import speechlike, write_wav
from ops.testbed.processes import Fleet, drained
from ops.testbed.waiting import until
from spool.broker.celery_app import TASK, celery_app, hint_message
from spool.domain.jobs import JobState
from spool.ids import new_id
from worker.service.hint_transport import hinted_job

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


def _client(url: str) -> Redis:
    return Redis(unix_socket_path=url.removeprefix("redis+socket://").partition("?")[0])


def _junk(chance: random.Random, bomb: Path) -> Iterator[bytes]:
    """Anything that a stranger could put there: no JSON, other JSON, hints with one part spoilt."""
    spoilt: list[object] = [None, 7, "x", [], {}, {"a": [1]}, "é" * 50, -1e300, [[[]]], True]
    pickled = base64.b64encode(pickle.dumps(Bomb(bomb))).decode()
    yield from (b"not json", b"", b"\xff\xfe", b"null", b"[]", b"{", b"[" * 100_000, b"9" * 5000)
    while True:
        message = hint_message(chance.choice(["job_1", 7, "../x", new_id("job")]), QUEUE)  # type: ignore[arg-type]
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


def test_no_message_ends_a_worker(fleet: Fleet, tmp_path: Path, redis_url: str) -> None:
    worker = fleet.start()
    bomb = tmp_path / "bomb"
    junk = _junk(random.Random(14), bomb)
    with _client(redis_url) as client:
        for _ in range(JUNK // 100):
            client.lpush(QUEUE, *(next(junk) for _ in range(100)))
        app = celery_app(fleet.settings)
        app.control.broadcast("shutdown")
        app.close()
        until(lambda: client.llen(QUEUE) == 0, "all taken off the queue")
    assert worker.poll() is None
    job_id = fleet.submit(write_wav(tmp_path / "a.wav", speechlike(5)))
    until(lambda: fleet.ended([job_id]), "the job ended")
    assert fleet.job(job_id).state is JobState.DONE
    until(lambda: fleet.worker_row(worker).counts.junk_messages > JUNK // 2, "junk is counted")
    assert not bomb.exists()
    assert drained(worker) == 0


def test_of_a_hint_its_job_is_all_that_counts() -> None:
    job_id = new_id("job")
    message = hint_message(job_id, QUEUE)
    assert hinted_job(message) == job_id
    message["headers"] |= {"eta": "yesterday", "timelimit": "no", "shadow": 7}
    assert hinted_job(message) == job_id
    assert hinted_job(message | {"headers": {"task": f"{TASK}s"}}) is None
    assert hinted_job(hint_message("job_1", QUEUE)) is None
