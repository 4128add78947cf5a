"""Lines of a manifest that name uploads past the API, on SQLite and PostgreSQL."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from ops.testbed.running_api import Live, problem
from ops.testbed.s3 import S3Server
from spool.audit import Grace, audit
from spool.domain import Scope
from spool.errors import StorageError
from spool.settings import Settings
from spool.store import batches, create_key
from tests.api.routes.test_uploads import begin, send, sender, with_bucket

__all__ = ["sender"]  # pytest finds the fixture by its name here


@pytest.fixture
def settings(settings: Settings, s3_server: S3Server, database_url: str) -> Settings:
    return with_bucket(settings.model_copy(update={"database_url": database_url}), s3_server)


def finished(client: httpx.Client, name: str, **fields: Any) -> dict[str, Any]:
    """A complete upload of a few bytes."""
    upload = begin(client, b"RIFF", name=name, **fields)
    send(client, upload, b"RIFF")
    done = client.post(f"/v1/uploads/{upload['id']}/complete")
    assert done.status_code == 200
    return dict(done.json())


def batch_of(
    client: httpx.Client, manifest: str, key: str | None = None, form: str = "x-ndjson", **asked: Any
) -> httpx.Response:
    headers = {"Content-Type": f"application/{form}" if form != "csv" else "text/csv"}
    headers |= {"Idempotency-Key": key} if key else {}
    asked["options"] = {"model": "demo-tdt"}
    return client.post(
        "/v1/batches", content=manifest, headers=headers, params={"request": json.dumps(asked)}
    )


def test_lines_of_a_manifest_name_uploads_and_bad_ones_are_refused_by_number(
    sender: httpx.Client, live: Live
) -> None:
    first, second, third = (finished(sender, f"{name}.wav") for name in ("one", "two", "three"))
    unfinished, used = begin(sender), finished(sender, "used.wav")
    taken = sender.post("/v1/jobs", json={"source": used["source"], "options": {"model": "demo-tdt"}}).json()
    with live.services.database.begin() as tx:
        key = create_key(tx, "other", "court", [Scope.READ, Scope.SUBMIT])
    live.services.key_cache.check_required()
    with httpx.Client(
        base_url=live.url, headers={"Authorization": f"Bearer {key.text}"}, timeout=60
    ) as other:
        theirs = finished(other, "theirs.wav")
    lines = [
        {"source": first["source"], "custom_id": "a", "name": "Named.wav"},
        {"source": theirs["source"]},
        {"source": unfinished["source"]},
        {"source": used["source"]},
        {"source": "upload://upl_01JD5T9Q4X8K2M6N0P3R7S1V5W"},
        {"source": first["source"], "custom_id": "again"},
        {"source": second["source"], "custom_id": "a"},  # which leaves the upload to the next line
        {"source": second["source"]},
        {"source": "upload://../../etc/passwd"},
    ]
    manifest = "\n".join(map(json.dumps, lines))
    refused = problem(batch_of(sender, manifest, strict=True), 422, "bad_lines")
    assert refused["bad"] == 7
    assert sender.get(f"/v1/uploads/{first['id']}").json()["state"] == "complete"

    batch = batch_of(sender, manifest).json()
    assert batch["lines"] == {"read": 9, "accepted": 2, "bad": 7, "unchanged": 0, "skipped": 0}
    assert [(bad["line"], bad["code"]) for bad in batch["bad_lines"]] == [
        (2, "not_found"),
        (3, "conflict"),
        (4, "conflict"),
        (5, "not_found"),
        (6, "conflict"),
        (7, "duplicate_custom_id"),
        (9, "not_found"),
    ]
    messages = {bad["line"]: bad["message"] for bad in batch["bad_lines"]}
    assert messages[2] == f"There is no upload {theirs['id']}.", "the words of an unknown one"
    assert messages[3] == f"Upload {unfinished['id']} is open; complete it first."
    assert (
        messages[4] == f"Upload {used['id']} is already the recording of job {taken['id']}; rerun that job."
    )
    assert messages[6] == "An earlier line of this batch names the same upload."
    jobs = sender.get("/v1/jobs", params={"batch": batch["id"]}).json()["items"]
    assert [(job["name"], job["source"]["kind"], job["source"]["size"]) for job in reversed(jobs)] == [
        ("Named.wav", "upload", 4),
        ("two.wav", "upload", 4),
    ]
    for job, upload in zip(reversed(jobs), (first, second), strict=True):
        shown = sender.get(f"/v1/uploads/{upload['id']}").json()
        assert (shown["state"], shown["job"]) == ("used", job["id"])
        assert sender.get(f"/v1/jobs/{job['id']}/audio").content == b"RIFF"

    answer = batch_of(sender, f"source;custom_id\n{third['source']};c\n{first['source']};d\n", form="csv")
    assert answer.json()["lines"] == {"read": 2, "accepted": 1, "bad": 1, "unchanged": 0, "skipped": 0}
    assert audit(live.services.database, live.services.objects, Grace(upload_seconds=-60)).clean


def test_a_batch_of_uploads_that_broke_off_goes_on_under_its_key(
    sender: httpx.Client, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.submission.batches.BLOCK", 2)
    add_jobs = batches.add_jobs
    blocks: list[int] = []

    def breaks_off(tx: Any, batch: str, jobs: Any) -> int:
        blocks.append(len(jobs))
        if len(blocks) == 2:
            raise StorageError("The database does not answer.")
        return add_jobs(tx, batch, jobs)

    monkeypatch.setattr("spool.store.batches.add_jobs", breaks_off)
    there = [finished(sender, f"{number}.wav") for number in range(5)]
    manifest = "\n".join(json.dumps({"source": upload["source"]}) for upload in there)
    problem(batch_of(sender, manifest, "key"), 503, "storage")
    states = [sender.get(f"/v1/uploads/{upload['id']}").json()["state"] for upload in there]
    assert states == ["used", "used", "complete", "complete", "complete"], "a block as a whole, or not at all"
    # Meanwhile somebody else takes one
    named = {"source": there[4]["source"], "options": {"model": "demo-tdt"}}
    assert sender.post("/v1/jobs", json=named).status_code == 202
    batch = batch_of(sender, manifest, "key").json()
    assert batch["lines"] == {"read": 5, "accepted": 4, "bad": 1, "unchanged": 0, "skipped": 0}
    assert [bad["line"] for bad in batch["bad_lines"]] == [5]
    assert batch["counts"]["queued"] == 4
    again = batch_of(sender, manifest, "key")
    assert (again.status_code, again.json()["id"]) == (200, batch["id"])


def test_two_batches_at_once_share_no_upload(sender: httpx.Client, live: Live) -> None:
    there = [finished(sender, f"{number}.wav")["source"] for number in range(20)]
    with ThreadPoolExecutor(2) as pool:
        orders = (there, there[::-1])
        manifests = ["\n".join(json.dumps({"source": each}) for each in order) for order in orders]
        answers = list(pool.map(lambda manifest: batch_of(sender, manifest), manifests))
    accepted = [answer.json()["lines"]["accepted"] for answer in answers if answer.status_code == 202]
    assert sum(accepted) == 20, [answer.text for answer in answers]
    jobs = sender.get("/v1/jobs", params={"limit": 100}).json()["items"]
    assert len({job["id"] for job in jobs}) == len(jobs) == 20
