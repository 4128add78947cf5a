"""Uploads past the API: begun here, sent to the bucket in parts, put together, named by a job, swept."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select, update

from api.submission import direct
from ops.testbed.running_api import Live, problem
from ops.testbed.s3 import S3Server
from spool.audit import Grace, audit
from spool.background import delete_once, find_strays, sweep_uploads
from spool.domain import Scope
from spool.ids import new_id
from spool.objects import S3Receiver
from spool.settings import Settings
from spool.store import create_key, get_job, hashes_of_source, keep_source_hashes, seconds_from_now
from spool.tables import uploads
from tests.live.past_the_api import PART, past_the_api

BODY = os.urandom(1024) * (2 * 1024 * 5 + 100)
SHA256 = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def settings(settings: Settings, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(direct, "PART_BYTES", PART)
    return with_bucket(settings, s3_server)


def with_bucket(settings: Settings, s3_server: S3Server) -> Settings:
    """With a bucket of this test's own, to which clients may send."""
    bucket = new_id("direct").lower().replace("_", "-")
    s3_server.client().create_bucket(Bucket=bucket)
    return past_the_api(settings, s3_server, f"s3://{bucket}/archive", s3_server.endpoint)


@pytest.fixture
def sender(live: Live) -> Iterator[httpx.Client]:
    live.services.deleter.stop()  # moto dates every upload to 2010, so that a young one would be a stray
    with live.services.database.begin() as tx:
        key = create_key(tx, "sender", "tapes", [Scope.READ, Scope.SUBMIT])
    live.services.key_cache.check_required()
    headers = {"Authorization": f"Bearer {key.text}"}
    with httpx.Client(base_url=live.url, timeout=60, verify=False, headers=headers) as client:
        yield client


def begin(client: httpx.Client, body: bytes = BODY, **fields: Any) -> dict[str, Any]:
    asked = {"name": "reel.wav", "bytes": len(body), "content_type": "audio/wav", **fields}
    answer = client.post("/v1/uploads", json=asked)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def send(client: httpx.Client, upload: dict[str, Any], body: bytes = BODY, only: tuple[int, ...] = ()) -> int:
    """PUT what is missing, as anybody would; how many parts that were."""
    page = client.get(f"/v1/uploads/{upload['id']}/parts").json()
    wanted = [part for part in page["items"] if part["url"] and (not only or part["number"] in only)]
    for part in wanted:
        block = body[part["offset"] : part["offset"] + part["bytes"]]
        assert httpx.put(part["url"], content=block).status_code == 200
    return len(wanted)


def test_a_recording_that_never_passes_the_api_is_a_job_like_others(
    sender: httpx.Client, live: Live, s3_server: S3Server
) -> None:
    upload = begin(sender, sha256=SHA256)
    assert (upload["state"], upload["parts"], upload["project"]) == ("open", 3, "tapes")
    first = sender.get(f"/v1/uploads/{upload['id']}/parts", params={"limit": 2}).json()
    assert [(part["number"], part["offset"], part["bytes"]) for part in first["items"]] == [
        (1, 0, PART),
        (2, PART, PART),
    ]
    assert first["next"] == 3
    address = first["items"][0]["url"]
    assert address.startswith(f"{s3_server.endpoint}/direct-")
    assert "X-Amz-SignedHeaders=content-length%3Bhost" in address, "the store refuses other sizes"
    assert "hecksum" not in address
    named = {"source": upload["source"], "options": {"model": "demo-tdt"}}
    problem(sender.post("/v1/jobs", json=named), 409, "conflict")

    # One part alone, then an interruption: the same request goes on where it was left
    assert send(sender, upload, only=(2,)) == 1
    missing = problem(sender.post(f"/v1/uploads/{upload['id']}/complete"), 409, "parts_missing")
    assert missing["missing"] == [1, 3]
    again = sender.post("/v1/uploads", json={"name": "reel.wav", "bytes": len(BODY), "sha256": SHA256})
    assert (again.status_code, again.json()["id"]) == (200, upload["id"])
    assert send(sender, upload) == 2
    for _ in range(2):  # an answer may be lost
        done = sender.post(f"/v1/uploads/{upload['id']}/complete")
        assert (done.status_code, done.json()["state"]) == (200, "complete")
    problem(sender.get(f"/v1/uploads/{upload['id']}/parts"), 409, "conflict")

    # The job has its project, its name and its bytes; one upload is one job
    repeated = {"Idempotency-Key": "reel"}
    job = sender.post("/v1/jobs", json=named, headers=repeated).json()
    assert (job["name"], job["project"], job["source"]["kind"], job["source"]["size"]) == (
        "reel.wav",
        "tapes",
        "upload",
        len(BODY),
    )
    answer = sender.post("/v1/jobs", json=named, headers=repeated)
    assert (answer.status_code, answer.json()["id"]) == (200, job["id"])
    problem(sender.post("/v1/jobs", json=named), 409, "conflict")
    shown = sender.get(f"/v1/uploads/{upload['id']}").json()
    assert (shown["state"], shown["job"]) == ("used", job["id"])
    problem(sender.delete(f"/v1/uploads/{upload['id']}"), 409, "conflict")
    database = live.services.database
    with database.read() as tx:
        kept = get_job(tx, job["id"])
        assert (kept.content_sha256, hashes_of_source(tx, job["id"])) == (SHA256, None)
    assert sender.get(f"/v1/jobs/{job['id']}/audio").content == BODY
    assert audit(database, live.services.objects, Grace(upload_seconds=-60)).clean

    # Who reads it first records the hashes of its blocks, while it runs the job and not after
    with database.begin() as tx:
        keep_source_hashes(tx, kept, b"0" * 32)
        assert hashes_of_source(tx, job["id"]) is None
    claim = live.work().claim(job["id"])
    with database.begin() as tx:
        keep_source_hashes(tx, claim.job, b"1" * 32)
        keep_source_hashes(tx, claim.job, b"2" * 32)
        assert hashes_of_source(tx, job["id"]) == b"1" * 32


def test_what_is_given_up_or_expires_leaves_nothing(sender: httpx.Client, live: Live) -> None:
    services, objects = live.services, live.services.objects
    receiver = objects.receiver()
    assert receiver is not None

    def left() -> list[str]:
        return [item.key for item in objects.list("jobs/")] + [
            item.key for item in receiver.list_unfinished("jobs/")
        ]

    def rows() -> int:
        with services.database.read() as tx:
            return tx.execute(select(func.count()).select_from(uploads)).scalar_one()

    given_up, whole, open_one = begin(sender), begin(sender, b"RIFF"), begin(sender)
    send(sender, given_up, only=(1,))
    send(sender, open_one, only=(1,))
    send(sender, whole, b"RIFF")
    assert sender.post(f"/v1/uploads/{whole['id']}/complete").status_code == 200
    assert audit(services.database, objects, Grace(upload_seconds=-60)).clean, "each waits for its job"
    assert sender.delete(f"/v1/uploads/{given_up['id']}").status_code == 204
    problem(sender.get(f"/v1/uploads/{given_up['id']}"), 404, "not_found")
    assert (len(left()), rows()) == (2, 2)
    with services.database.begin() as tx:
        tx.execute(update(uploads).values(expires_at=seconds_from_now(-30 * 86_400)))
    assert audit(services.database, objects).counts["upload"] == 2
    delete_once(services.database, objects, services.settings, "dlr_test")
    assert (left(), rows()) == ([], 0)


def test_parts_that_no_row_knows_are_dropped_after_a_day(
    sender: httpx.Client, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = live.services
    receiver = services.objects.receiver()
    assert receiver is not None
    known = begin(sender)
    stray = receiver.begin("jobs/job_01JD5T9Q4X8K2M6N0P3R7S1V5W/source", "audio/wav")
    # moto says that every upload was begun in 2010
    assert list(find_strays(services.database, services.objects, 1e9)) == []
    assert [item.upload for item in find_strays(services.database, services.objects, -60)] == [stray]
    for user in ("audit.runner", "background.upload_sweeper"):
        monkeypatch.setattr(f"spool.{user}.STRAY_SECONDS", -86_400)
    assert audit(services.database, services.objects).counts == {"orphan": 1}
    sweep_uploads(services.database, services.objects)
    assert len(list(receiver.list_unfinished("jobs/"))) == 1
    assert len(sender.get(f"/v1/uploads/{known['id']}/parts").json()["items"]) == 3


def test_uploads_are_a_projects_own_and_as_large_as_others(
    sender: httpx.Client, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    too_large = {"name": "reel.wav", "bytes": 20 * 2**20 + 1}
    problem(sender.post("/v1/uploads", json=too_large), 413, "too_large")
    theirs = {"name": "reel.wav", "bytes": 1, "project": "court"}
    problem(sender.post("/v1/uploads", json=theirs), 403, "forbidden")
    upload = begin(sender, b"RIFF", sha256=hashlib.sha256(b"RIFF").hexdigest())
    send(sender, upload, b"RIFF")
    sender.post(f"/v1/uploads/{upload['id']}/complete").raise_for_status()
    with live.services.database.begin() as tx:
        key = create_key(tx, "other", "court", [Scope.READ, Scope.SUBMIT])
    live.services.key_cache.check_required()
    other = httpx.Client(base_url=live.url, headers={"Authorization": f"Bearer {key.text}"}, timeout=60)
    with other:
        named = {"source": upload["source"], "options": {"model": "demo-tdt"}}
        problem(other.post("/v1/jobs", json=named), 404, "not_found")
        problem(other.delete(f"/v1/uploads/{upload['id']}"), 404, "not_found")
    monkeypatch.setattr("spool.store.archive.uploads.MOST_OPEN", 1)
    problem(sender.post("/v1/uploads", json={"name": "b", "bytes": 1}), 409, "conflict")


@pytest.mark.parametrize("on_postgresql", [False, True], ids=["sqlite", "postgresql"])
def test_requests_at_once_do_not_pass_the_limit(
    settings: Settings,
    start_api: Callable[[Settings], Live],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    *,
    on_postgresql: bool,
) -> None:
    if on_postgresql:
        url = request.getfixturevalue("postgres_url")
        settings = settings.model_copy(update={"database_url": url})
    live = start_api(settings)
    monkeypatch.setattr("spool.store.archive.uploads.MOST_OPEN", 3)
    began, begin_multipart = threading.Barrier(8), S3Receiver.begin

    def begin_together(self: S3Receiver, key: str, content_type: str) -> str:
        began.wait(60)  # all have been counted before the first is written
        return begin_multipart(self, key, content_type)

    monkeypatch.setattr(S3Receiver, "begin", begin_together)

    def ask(number: int) -> int:
        body = {"name": f"{number}.wav", "bytes": 1}
        return httpx.post(f"{live.url}/v1/uploads", json=body, timeout=60, verify=False).status_code

    with ThreadPoolExecutor(8) as pool:
        answers = sorted(pool.map(ask, range(8)))
    assert answers == [201] * 3 + [409] * 5
    with live.services.database.read() as tx:
        assert tx.scalar(select(func.count()).select_from(uploads)) == 3
    receiver = live.services.objects.receiver()
    assert receiver is not None
    assert len(list(receiver.list_unfinished("jobs/"))) == 3, "the others were dropped at the store too"


def test_a_server_that_takes_none_says_so(live: Live, sender: httpx.Client) -> None:
    off = live.settings.model_copy(update={"direct_uploads": False})
    object.__setattr__(live.services, "settings", off)
    answer = problem(sender.post("/v1/uploads", json={"name": "b", "bytes": 1}), 409, "not_offered")
    assert answer["detail"] == "This server accepts no recordings in parts; send each one whole."
