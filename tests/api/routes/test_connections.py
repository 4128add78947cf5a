"""Sources that are read with a named connection: listed, watched, heard, and refused by name."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from ops.testbed.running_api import Live, problem
from ops.testbed.s3 import S3Server
from ops.testbed.waiting import until
from spool.ids import new_id
from spool.settings import Settings
from tests.api.auth.keys import post
from tests.live.guarded_s3 import Account, GuardedS3

pytestmark = pytest.mark.integration
AUDIO = b"RIFF" + bytes(4) + b"WAVE" + bytes(32)
SECRET = "their-secret-access-key"


@pytest.fixture
def live(settings: Settings, start_api: Callable[[Settings], Live], monkeypatch: pytest.MonkeyPatch) -> Live:
    monkeypatch.setattr("api.watching.watcher.LOOK_S", 0.02)
    return start_api(settings)


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    name = new_id("in").lower().replace("_", "-")
    client = s3_server.client()
    client.create_bucket(Bucket=name)
    for key in ("in/1974/reel 1.wav", "in/reel 2.wav", "else/reel 3.wav"):
        client.put_object(Bucket=name, Key=key, Body=AUDIO)
    manifest = "".join(f'{{"source": "s3://{name}/{key}"}}\n' for key in ("in/reel 2.wav", "else/reel 3.wav"))
    client.put_object(Bucket=name, Key="in/all.jsonl", Body=manifest.encode())
    return name


@pytest.fixture
def store(s3_server: S3Server, bucket: str) -> Iterator[GuardedS3]:
    with GuardedS3(s3_server.endpoint, Account("THEIRKEY", SECRET, frozenset({bucket}))) as proxy:
        yield proxy


@pytest.fixture
def connect(live: Live, store: GuardedS3, bucket: str) -> Callable[..., None]:
    def connect(**changes: Any) -> None:
        request = {"name": "film", "endpoint": store.url, "prefix": f"s3://{bucket}/in", "access": "read"}
        request |= {"key_id": "THEIRKEY", "secret": SECRET} | changes
        answer = post(f"{live.url}/v1/connections", json=request)
        assert answer.status_code == 201, answer.text

    return connect


def test_a_prefix_a_manifest_and_one_object_are_submitted_with_a_connection(
    live: Live, http: httpx.Client, bucket: str, connect: Callable[..., None]
) -> None:
    connect()
    body = {"source": f"s3://{bucket}/in/", "connection": "film"}
    batch = post(f"{live.url}/v1/batches", json=body)
    assert batch.status_code == 202, batch.text
    jobs = http.get(f"/v1/jobs?batch={batch.json()['id']}").json()["items"]
    assert sorted(job["source"]["uri"] for job in jobs) == [
        f"s3://{bucket}/in/1974/reel 1.wav",
        f"s3://{bucket}/in/reel 2.wav",
    ]
    assert {job["source"]["connection"] for job in jobs} == {"film"}
    assert SECRET not in http.get(f"/v1/jobs/{jobs[0]['id']}").text

    listed = post(f"{live.url}/v1/batches", json=body | {"source": f"s3://{bucket}/in/all.jsonl"}).json()
    assert listed["lines"]["accepted"] == 1
    assert "reads below" in listed["bad_lines"][0]["message"]

    one = post(f"{live.url}/v1/jobs", json=body | {"source": f"s3://{bucket}/in/reel 2.wav"})
    assert one.status_code == 202, one.text
    job = f"/v1/jobs/{one.json()['id']}"
    live.work().finish(one.json()["id"])
    heard = http.get(f"{job}/audio", headers={"Range": "bytes=0-3"})
    assert (heard.status_code, heard.content) == (206, b"RIFF")
    again = post(f"{live.url}{job}/rerun", json={})
    assert (again.status_code, again.json()["source"]["connection"]) == (202, "film")

    assert http.delete("/v1/connections/film").status_code == 204
    gone = problem(http.get(f"{job}/audio"), 409, "not_here")
    assert "no connection film" in str(gone["detail"])
    problem(post(f"{live.url}{job}/rerun", json={}), 422, "invalid_request")


def test_what_a_connection_may_not_read_is_refused_before_there_is_a_job(
    live: Live, http: httpx.Client, bucket: str, connect: Callable[..., None]
) -> None:
    def refused(route: str, source: str, status: int, code: str, connection: str = "film") -> str:
        body = {"source": source, "connection": connection}
        return str(problem(post(f"{live.url}/v1/{route}", json=body), status, code)["detail"])

    connect()
    connect(name="out", access="write")
    connect(name="wrong", secret="another secret")
    for route in ("jobs", "batches", "sources"):
        below = f"s3://{bucket}/in/" + ("reel 2.wav" if route == "jobs" else "")
        assert "no connection" in refused(route, below, 422, "invalid_request", "nobody")
        assert "only writes" in refused(route, below, 403, "source_forbidden", "out")
        assert "reads below" in refused(route, f"s3://{bucket}/else/reel 3.wav", 403, "source_forbidden")
        if route != "sources":
            assert "s3://" in refused(route, "file:///tmp/", 422, "invalid_request")
    said = refused("batches", f"s3://{bucket}/in/", 403, "source_forbidden", "wrong")
    assert "Connection wrong" in said
    assert "credentials" in said
    output = {"prefix": f"s3://{bucket}/in/", "formats": ["txt"], "connection": "film"}
    body = {"source": f"s3://{bucket}/in/reel 2.wav", "connection": "film", "output": output}
    answer = problem(post(f"{live.url}/v1/jobs", json=body), 403, "source_forbidden")
    assert "only reads" in str(answer["detail"])
    assert http.get("/v1/jobs").json()["items"] == []


def test_their_bucket_is_watched_until_the_connection_is_revoked(
    live: Live, http: httpx.Client, bucket: str, connect: Callable[..., None], s3_server: S3Server
) -> None:
    connect()
    created = post(f"{live.url}/v1/sources", json={"source": f"s3://{bucket}/in/", "connection": "film"})
    assert created.status_code == 201, created.text
    assert created.json()["connection"] == "film"
    source = f"/v1/sources/{created.json()['id']}"
    until(lambda: http.get(source).json()["counts"]["taken"] == 2)
    jobs = http.get("/v1/jobs").json()["items"]
    assert {job["source"]["connection"] for job in jobs} == {"film"}

    assert http.delete("/v1/connections/film").status_code == 204
    s3_server.client().put_object(Bucket=bucket, Key="in/reel 4.wav", Body=AUDIO)
    assert post(f"{live.url}{source}/check").status_code == 200
    until(lambda: http.get(source).json()["state"] == "failing")
    assert "no connection film" in http.get(source).json()["error"]
    connect()
    assert post(f"{live.url}{source}/check").status_code == 200
    until(lambda: http.get(source).json()["counts"]["taken"] == 3)
    until(lambda: http.get(source).json()["state"] == "watching")
