"""The overview lists the archive's collections: what is done, what failed and why, what wants a person."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from ops.testbed.running_api import Live, file_job
from spool.client import Spool
from spool.domain import Scope
from spool.settings import Settings
from spool.store import create_key

pytestmark = pytest.mark.integration


@pytest.fixture(params=["sqlite", "postgresql"])
def live(request: pytest.FixtureRequest, settings: Settings, start_api: Callable[[Settings], Live]) -> Live:
    changed: dict[str, str] = {}
    if request.param == "postgresql":
        changed["database_url"] = request.getfixturevalue("postgres_url")
    return start_api(settings.model_copy(update=changed))


def submit_reels(http: httpx.Client, recordings: Path, number: int = 4) -> tuple[str, list[dict[str, Any]]]:
    for reel in range(1, number + 1):
        (recordings / f"reel {reel}.wav").write_bytes(b"RIFF%d" % reel)
    request = {"source": f"{recordings.as_uri()}/", "name": "Reels", "project": "oral-history"}
    batch = http.post("/v1/batches", json=request).json()["id"]
    return batch, http.get("/v1/jobs", params={"batch": batch}).json()["items"]


def test_a_batch_says_what_failed_what_is_doubtful_and_how_long_it_takes(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    batch, jobs = submit_reels(http, recordings)
    worker = live.work()
    worker.finish(jobs[0]["id"], ("keep", "the", "light", "burning"))
    worker.fail(jobs[1]["id"], "audio_empty", "There is nothing in it.")
    worker.progress(worker.claim(jobs[2]["id"]), 30.0, 90.0)
    again = http.post(f"/v1/jobs/{jobs[0]['id']}/rerun", json={}).json()["id"]
    worker.finish(again, ("keep", "this", "lamp", "lit"))

    assert http.get("/v1/overview").json()["collections"] == []
    whole, reels = http.get("/v1/overview", params={"batches": 50}).json()["collections"]
    assert (whole["project"], whole["batch"], whole["name"]) == ("oral-history", None, "oral-history")
    assert whole["counts"] == {"queued": 1, "running": 1, "done": 2, "failed": 1, "cancelled": 0}
    assert whole["doubtful"] == 1, "the newest transcript's alone"
    assert (reels["batch"], reels["name"]) == (batch, "Reels")
    assert reels["counts"] == {"queued": 1, "running": 1, "done": 1, "failed": 1, "cancelled": 0}
    assert reels["doubtful"] == 0
    (failure,) = reels["failures"]
    assert (failure["error"], failure["jobs"]) == ("audio_empty", 1)
    assert " " in failure["reason"]
    assert reels["left_seconds"] > 0
    with Spool(live.url) as spool:
        assert [one.batch for one in spool.overview(batches=1).collections] == [None, batch]


def test_a_key_of_a_project_sees_its_collections_alone(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    submit_reels(http, recordings, 1)
    http.post("/v1/jobs", json=file_job(recordings, project="council"))
    with live.services.database.begin() as tx:
        key = create_key(tx, "reader", "council", [Scope.READ]).text
    live.services.key_cache.check_required()
    answer = http.get("/v1/overview", params={"batches": 50}, headers={"Authorization": f"Bearer {key}"})
    (only,) = answer.json()["collections"]
    assert (only["name"], only["counts"]["queued"], only["left_seconds"]) == ("council", 1, None)


def test_a_list_tells_how_transcripts_begin_if_asked(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    done, waiting = (http.post("/v1/jobs", json=file_job(recordings)).json()["id"] for _ in range(2))
    live.work().finish(done, tuple(f"word{number}" for number in range(100)))
    assert [one["first_words"] for one in http.get("/v1/jobs").json()["items"]] == [None, None]
    listed = http.get("/v1/jobs", params={"first_words": True}).json()["items"]
    assert [one["id"] for one in listed] == [waiting, done]
    assert listed[0]["first_words"] is None
    assert listed[1]["first_words"].split()[:3] == ["word0", "word1", "word2"]


def test_a_list_finds_what_was_done_on_a_recording(http: httpx.Client, live: Live, recordings: Path) -> None:
    upload = {"file": ("reel.wav", b"RIFF of a reel")}
    ids = [http.post("/v1/jobs", files=upload).json()["id"] for _ in range(2)]
    digest = hashlib.sha256(b"RIFF of a reel").hexdigest()
    asked = {"content": digest}
    assert http.get("/v1/jobs", params=asked).json()["items"] == []
    live.work().finish(ids[0], ("keep",), content_sha256=digest)
    assert [one["id"] for one in http.get("/v1/jobs", params=asked).json()["items"]] == [ids[0]]
    assert http.get("/v1/jobs", params={"content": "0" * 64}).json()["items"] == []


def test_models_say_what_they_are_good_for_and_how_fast_they_were(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    live.work().finish(http.post("/v1/jobs", json=file_job(recordings)).json()["id"], ("keep",))
    (model,) = (one for one in http.get("/v1/models").json()["items"] if one["name"] == "demo-tdt")
    assert model["rtfx"] == 1.0
    assert "digits" in model["good_for"]
