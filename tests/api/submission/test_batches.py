"""Batches through the real API, on SQLite and PostgreSQL, with a real Redis behind it."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ops.testbed.running_api import Live, problem
from ops.testbed.s3 import S3Server
from ops.testbed.waiting import until
from spool.background import relay_once
from spool.errors import StorageError
from spool.recordings import HIDDEN, NOT_AUDIO
from spool.settings import Settings
from spool.store import batches as store
from spool.store import get_job, unsent
from tests.live.guarded_s3 import GuardedS3

NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.fixture
def settings(
    make_settings: Callable[..., Settings], recordings: Path, database_url: str, redis_url: str
) -> Settings:
    for number in range(3):
        (recordings / f"reel-{number}.wav").write_bytes(b"RIFF" + bytes(40 + number))
    return make_settings(
        database_url=database_url,
        redis_url=redis_url,
        source_roots=(recordings,),
        hint_window=5,
        sweep_seconds=0.2,
        upload_max_bytes=20_000_000,
    )


def line(recordings: Path, number: int, **more: Any) -> str:
    source = (recordings / f"reel-{number % 3}.wav").as_uri()
    return json.dumps({"source": source, "custom_id": f"reel {number}", **more})


def send(
    http: httpx.Client, lines: list[str] | bytes, key: str | None = None, **asked: Any
) -> httpx.Response:
    body = lines if isinstance(lines, bytes) else "\n".join(lines).encode()
    headers = NDJSON | ({"Idempotency-Key": key} if key else {})
    return http.post("/v1/batches", content=body, headers=headers, params={"request": json.dumps(asked)})


def results(http: httpx.Client, batch: str, **query: str) -> list[dict[str, Any]]:
    answer = http.get(f"/v1/batches/{batch}/results", params=query)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(text) for text in answer.text.splitlines()]


def test_a_manifest_becomes_jobs_in_its_order(http: httpx.Client, recordings: Path) -> None:
    lines = [line(recordings, n, tags={"box": "=1+1"}, options={"decoder": "beam"}) for n in range(12)]
    answer = send(http, lines, name="Reels", project="oral-history", tags={"collection": "ü"}, pool="metal")
    assert answer.status_code == 202, answer.text
    batch = answer.json()
    assert answer.headers["location"] == f"/v1/batches/{batch['id']}"
    assert batch["lines"] == {"read": 12, "accepted": 12, "bad": 0, "unchanged": 0, "skipped": 0}
    assert batch["counts"] == {"queued": 12, "running": 0, "done": 0, "failed": 0, "cancelled": 0}
    assert (batch["state"], batch["name"], batch["source"]) == ("running", "Reels", "manifest")
    found = results(http, batch["id"])
    assert [one["custom_id"] for one in found] == [f"reel {n}" for n in range(12)]
    assert found[0]["tags"] == {"collection": "ü", "box": "=1+1"}
    job = http.get(f"/v1/jobs/{found[0]['job']}").json()
    assert (job["batch"], job["custom_id"], job["project"]) == (batch["id"], "reel 0", "oral-history")
    assert (job["pool"], job["options"]["decoder"]) == ("metal", "beam")


def test_bad_lines_are_reported_by_number_and_the_good_ones_run(http: httpx.Client, recordings: Path) -> None:
    lines = [
        line(recordings, 1),
        '{"source": "s3://b/k"',
        line(recordings, 1),  # the id again
        json.dumps({"source": "file:///etc/passwd", "custom_id": "p"}),
        line(recordings, 2, options={"model": "nobody"}),
        line(recordings, 3, options={"beam": 99}),
        '{"source": "' + "x" * 10_000_000 + '"}',
        json.dumps({"source": (recordings / "gone.wav").as_uri()}),
        "",
        line(recordings, 2),  # its id was not used up by the bad line
    ]
    batch = send(http, lines).json()
    assert batch["lines"] == {"read": 9, "accepted": 2, "bad": 7, "unchanged": 0, "skipped": 0}
    assert [(bad["line"], bad["code"]) for bad in batch["bad_lines"]] == [
        (2, "not_json"),
        (3, "duplicate_custom_id"),
        (4, "source_forbidden"),
        (5, "unknown_model"),
        (6, "invalid_request"),
        (7, "line_too_long"),
        (8, "source_missing"),
    ]
    assert batch["bad_lines"][1]["custom_id"] == "reel 1"
    assert [one["custom_id"] for one in results(http, batch["id"])] == ["reel 1", "reel 2"]
    assert http.get(f"/v1/batches/{batch['id']}").json()["bad_lines"] == batch["bad_lines"]


def test_a_strict_batch_runs_whole_or_not_at_all(http: httpx.Client, recordings: Path) -> None:
    lines = [line(recordings, n) for n in range(3)]
    refused = problem(send(http, [*lines, "no"], "k", strict=True), 422, "bad_lines")
    assert (refused["lines"], refused["bad"]) == (4, 1)
    assert http.get("/v1/jobs").json()["items"] == []
    assert http.get("/v1/batches").json()["items"] == []
    assert send(http, lines, "k", strict=True).json()["lines"]["accepted"] == 3


@pytest.mark.parametrize("body", [b"", b"\n\n", b"no\nno", b"\x00\xff"])
def test_a_batch_without_a_good_line_is_refused(http: httpx.Client, body: bytes) -> None:
    problem(send(http, body), 422, "bad_lines")
    assert http.get("/v1/batches").json()["items"] == []


def test_the_same_key_answers_with_the_first_batch(http: httpx.Client, recordings: Path) -> None:
    lines = [line(recordings, n) for n in range(3)]
    first = send(http, lines, "key")
    again = send(http, lines, "key")
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json()["id"] == again.json()["id"]
    problem(send(http, lines[:2], "key"), 409, "conflict")
    problem(send(http, lines, "key", name="other"), 409, "conflict")
    assert len(http.get("/v1/jobs").json()["items"]) == 3


def test_a_submission_that_broke_off_goes_on_under_its_key(
    http: httpx.Client, recordings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.submission.batches.BLOCK", 2)
    add_jobs = store.add_jobs
    blocks: list[int] = []

    def breaks_off(tx: Any, batch: str, jobs: Any) -> int:
        blocks.append(len(jobs))
        if len(blocks) == 3:
            raise StorageError("The database does not answer.")
        return add_jobs(tx, batch, jobs)

    monkeypatch.setattr("spool.store.batches.add_jobs", breaks_off)
    lines = [line(recordings, n) for n in range(9)]
    problem(send(http, lines, "key"), 503, "storage")
    (batch,) = http.get("/v1/batches").json()["items"]
    assert (batch["state"], batch["counts"]["queued"]) == ("receiving", 4)
    again = send(http, lines, "key")
    assert again.json()["id"] == batch["id"]
    assert again.json()["lines"] == {"read": 9, "accepted": 9, "bad": 0, "unchanged": 0, "skipped": 0}
    assert [one["line"] for one in results(http, batch["id"])] == list(range(1, 10))


def test_redis_never_holds_more_than_its_window(http: httpx.Client, live: Live, recordings: Path) -> None:
    send(http, [line(recordings, n) for n in range(40)])
    until(lambda: live.waiting() >= 5, "the window")
    with live.services.database.read() as tx:
        assert unsent(tx, "spool.model:demo-tdt", 40) > 0
    for _ in range(3):
        relay_once(live.services.database, live.services.queue, window=live.settings.hint_window)
    assert live.waiting() == 5


def test_a_form_and_a_manifest_by_reference(http: httpx.Client, recordings: Path) -> None:
    manifest = recordings / "all of it.jsonl"
    manifest.write_text("\n".join(line(recordings, n) for n in range(3)))
    form: dict[str, Any] = {
        "request": (None, json.dumps({"name": "form"}), "application/json"),
        "file": ("m.jsonl", manifest.read_bytes(), "application/jsonl"),
    }
    assert http.post("/v1/batches", files=form).json()["lines"]["accepted"] == 3
    named = http.post("/v1/batches", json={"source": manifest.as_uri()})
    assert named.json()["lines"]["accepted"] == 3
    assert named.json()["source"] == manifest.as_uri()
    problem(http.post("/v1/batches", json={"source": "file:///etc/all.jsonl"}), 403, "source_forbidden")
    problem(http.post("/v1/batches", json={"source": "https://x.org/all.jsonl"}), 422, "invalid_request")


def test_a_csv_is_a_manifest_too(http: httpx.Client, recordings: Path) -> None:
    address = (recordings / "reel-1.wav").as_uri()
    text = f"source,custom_id,tags.box\n{address},one,7\n{address}.gone,two,7\n"
    batch = http.post("/v1/batches", content=text, headers={"Content-Type": "text/csv"}).json()
    assert (batch["lines"]["accepted"], batch["bad_lines"][0]["line"]) == (1, 3)
    assert results(http, batch["id"])[0]["tags"] == {"box": "7"}
    (recordings / "all.csv").write_text(text)
    named = http.post("/v1/batches", json={"source": (recordings / "all.csv").as_uri()}).json()
    assert named["lines"]["accepted"] == 1


def test_a_folder_is_walked_once_round(http: httpx.Client, recordings: Path, tmp_path: Path) -> None:
    deep = recordings / "Kästen 7"
    deep.mkdir()
    (deep / "Spule #1 %41.flac").write_bytes(b"fLaC")
    (deep / "notes.txt").write_text("no recording")
    (deep / "no name").write_bytes(b"RIFF\0\0\0\0WAVE")
    (deep / "._Spule.wav").write_bytes(b"Mac OS X")
    (recordings / ".cache").mkdir()
    (recordings / ".cache" / "reel.wav").write_bytes(b"RIFF")
    (deep / "circle").symlink_to(recordings, target_is_directory=True)
    outside = tmp_path / "outside.wav"
    outside.write_bytes(b"RIFF")
    (deep / "way out.wav").symlink_to(outside)
    answer = http.post("/v1/batches", json={"source": recordings.as_uri() + "/"})
    batch = answer.json()
    assert answer.status_code == 202, batch
    assert batch["lines"] == {"read": 7, "accepted": 6, "bad": 1, "unchanged": 0, "skipped": 3}
    assert batch["skipped_files"] == [
        {"path": ".cache", "reason": HIDDEN},
        {"path": "Kästen 7/._Spule.wav", "reason": HIDDEN},
        {"path": "Kästen 7/notes.txt", "reason": NOT_AUDIO},
    ]
    assert (batch["bad_lines"][0]["custom_id"], batch["bad_lines"][0]["code"]) == (
        "Kästen 7/way out.wav",
        "source_forbidden",
    )
    found = {one["custom_id"]: one for one in results(http, batch["id"])}
    assert set(found) == {
        "reel 1.wav",
        "reel-0.wav",
        "reel-1.wav",
        "reel-2.wav",
        "Kästen 7/Spule #1 %41.flac",
        "Kästen 7/no name",
    }
    assert found["Kästen 7/Spule #1 %41.flac"]["name"] == "Spule #1 %41.flac"


@pytest.mark.parametrize(
    ("source", "status", "code"),
    [
        ("file:///etc/", 403, "source_forbidden"),
        ("file://host/x/", 422, "invalid_request"),
        ("https://example.org/all/", 422, "invalid_request"),
        ("reels/", 422, "invalid_request"),
    ],
)
def test_what_cannot_be_listed(http: httpx.Client, source: str, status: int, code: str) -> None:
    problem(http.post("/v1/batches", json={"source": source}), status, code)


def test_requests_that_are_refused(http: httpx.Client, recordings: Path) -> None:
    problem(
        http.post("/v1/batches", content=b"x", headers={"Content-Type": "text/html"}),
        415,
        "unsupported_media_type",
    )
    problem(send(http, [line(recordings, 1)], options={"model": "nobody"}), 422, "unknown_model")
    problem(send(http, [line(recordings, 1)], options={"speed": 2}), 422, "invalid_request")
    problem(send(http, [line(recordings, 1)], colour="red"), 422, "invalid_request")
    problem(send(http, b"x" * 20_000_001), 413, "too_large")
    problem(
        http.post("/v1/batches", json={"source": "s3://b/p/"}, params={"request": "{}"}),
        422,
        "invalid_request",
    )
    for wrong in ("bat_1", "job_01JD5T9Q4X8K2M6N0P3R7S1V5W", "bat_01JD5T9Q4X8K2M6N0P3R7S1V5W"):
        problem(http.get(f"/v1/batches/{wrong}"), 404, "not_found")
        problem(http.get(f"/v1/batches/{wrong}/results"), 404, "not_found")
        problem(http.post(f"/v1/batches/{wrong}/retry-failed"), 404, "not_found")
        problem(http.delete(f"/v1/batches/{wrong}"), 404, "not_found")


def test_pages_and_another_querys_cursor(http: httpx.Client, recordings: Path) -> None:
    made = [send(http, [line(recordings, n)], project="a").json()["id"] for n in range(3)]
    page = http.get("/v1/batches", params={"project": "a", "limit": 2}).json()
    rest = http.get("/v1/batches", params={"project": "a", "limit": 2, "cursor": page["next_cursor"]}).json()
    assert [one["id"] for one in (*page["items"], *rest["items"])] == made[::-1]
    assert page["items"][0]["counts"]["queued"] == 1
    problem(http.get("/v1/batches", params={"cursor": page["next_cursor"]}), 422, "invalid_request")
    jobs = http.get("/v1/jobs", params={"limit": 1}).json()["next_cursor"]
    problem(http.get("/v1/batches", params={"cursor": jobs}), 422, "invalid_request")


def test_from_first_to_last_what_it_did_and_cost(http: httpx.Client, live: Live, recordings: Path) -> None:
    batch = send(http, [line(recordings, n) for n in range(4)]).json()
    before = http.get(f"/v1/batches/{batch['id']}").json()
    assert before["audio"]["left_seconds"] is None
    assert before["time"]["left_seconds"] is before["cost"]["expected"] is before["speed"]["rtfx_now"] is None
    jobs = [one["job"] for one in results(http, batch["id"])]
    worker = live.work()
    worker.finish(jobs[0])
    worker.fail(jobs[1], "audio_empty", "reel 1: there is nothing in it.")
    worker.progress(worker.claim(jobs[2]), 0.5, 2.0)

    now = http.get(f"/v1/batches/{batch['id']}").json()
    assert now["counts"] == {"queued": 1, "running": 1, "done": 1, "failed": 1, "cancelled": 0}
    assert now["audio"]["done_seconds"] == 2.0
    assert now["audio"]["left_seconds"] == pytest.approx(1.5 + (1.5 + 2.0) / 2)
    assert now["speed"]["rtfx_now"] == pytest.approx(2.0)
    assert now["time"]["left_seconds"] > 0
    assert now["cost"]["billable"] == "0.001"
    assert float(now["cost"]["expected"]) > 0.001
    assert "mean price" in now["cost"]["basis"]

    done, failed, running, _ = results(http, batch["id"], include="words")
    assert (done["state"], done["text"], done["audio_seconds"]) == ("done", "keep the light", 1.5)
    assert [word["text"] for word in done["words"]] == ["keep", "the", "light"]
    assert failed["error"] == {"code": "audio_empty", "message": "reel 1: there is nothing in it."}
    assert (running["state"], running["text"]) == ("running", None)
    assert "words" not in results(http, batch["id"])[0]
    assert [one["custom_id"] for one in results(http, batch["id"], state="failed")] == ["reel 1"]

    assert http.post(f"/v1/batches/{batch['id']}/retry-failed").json() == {"retried": 1}
    assert http.post(f"/v1/batches/{batch['id']}/retry-failed").json() == {"retried": 0}
    cancelled = http.delete(f"/v1/batches/{batch['id']}").json()
    assert cancelled["counts"] == {"queued": 0, "running": 1, "done": 1, "failed": 0, "cancelled": 2}
    assert cancelled["times"]["cancelled_at"]
    with live.services.database.read() as tx:
        assert get_job(tx, jobs[2]).cancel_requested


def test_a_batch_that_ended(http: httpx.Client, live: Live, recordings: Path) -> None:
    batch = send(http, [line(recordings, 0)]).json()
    job = results(http, batch["id"])[0]["job"]
    live.work().finish(job, expected_seconds=4.0)
    ended = http.get(f"/v1/batches/{batch['id']}").json()
    assert (ended["state"], ended["time"]["left_seconds"]) == ("ended", 0.0)
    assert ended["cost"]["expected"] == ended["cost"]["billable"]
    assert ended["incomplete"] == 1, "1.5 of the 4 s that its header states"
    length = {"complete": False, "expected_seconds": 4.0, "missing_seconds": 2.5}
    assert results(http, batch["id"])[0].items() >= length.items()
    assert http.get(f"/v1/jobs/{job}").json().items() >= length.items()
    assert http.get("/v1/jobs").json()["items"][0].items() >= length.items()
    problem(http.delete(f"/v1/batches/{batch['id']}"), 409, "conflict")
    with live.services.database.read() as tx:
        key = get_job(tx, job).transcript_key
    assert key is not None
    live.services.objects.delete(key)
    assert results(http, batch["id"])[0]["error"]["code"] == "not_found"


def test_results_of_many_pages(http: httpx.Client, recordings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.delivery.batch_results._ROWS", 3)
    batch = send(http, [line(recordings, n) for n in range(9)]).json()
    assert [one["line"] for one in results(http, batch["id"])] == list(range(1, 10))


@pytest.fixture
def bucket(s3_server: S3Server) -> Iterator[str]:
    client, name = s3_server.client(), f"archive-{time.time_ns()}"
    client.create_bucket(Bucket=name)
    for key in ("1974/Spule 1 ü?#%41.flac", "1974/a/b.wav", "1974/a/notes.txt", "1974/", "1975/c.wav"):
        client.put_object(Bucket=name, Key=key, Body=key.encode())
    yield name
    for item in client.list_objects_v2(Bucket=name)["Contents"]:
        client.delete_object(Bucket=name, Key=item["Key"])


class TestS3:
    """A prefix of a bucket."""

    @pytest.fixture
    def settings(self, settings: Settings, s3_server: S3Server) -> Settings:
        told = {
            "s3_endpoint_url": s3_server.endpoint,
            "s3_access_key_id": s3_server.access_key,
            "s3_secret_access_key": s3_server.secret_key,
        }
        return Settings.model_validate(settings.model_dump() | told)

    def test_a_prefix_is_listed_with_what_s3_tells(self, http: httpx.Client, live: Live, bucket: str) -> None:
        answer = http.post("/v1/batches", json={"source": f"s3://{bucket}/1974/"})
        batch = answer.json()
        assert answer.status_code == 202, batch
        assert batch["lines"] == {"read": 2, "accepted": 2, "bad": 0, "unchanged": 0, "skipped": 1}
        found = results(http, batch["id"])
        assert [one["custom_id"] for one in found] == ["Spule 1 ü?#%41.flac", "a/b.wav"]
        assert found[0]["source"] == f"s3://{bucket}/1974/Spule 1 ü?#%41.flac"
        with live.services.database.read() as tx:
            source = get_job(tx, found[1]["job"]).source
        assert source.size == len("1974/a/b.wav")
        assert source.etag
        problem(http.post("/v1/batches", json={"source": f"s3://{bucket}/1999/"}), 422, "bad_lines")
        problem(http.post("/v1/batches", json={"source": "s3://no-such-bucket/x/"}), 422, "source_missing")

    def test_a_manifest_lies_there(
        self, http: httpx.Client, s3_server: S3Server, bucket: str, recordings: Path
    ) -> None:
        s3_server.client().put_object(Bucket=bucket, Key="m.jsonl", Body=line(recordings, 1).encode())
        batch = http.post("/v1/batches", json={"source": f"s3://{bucket}/m.jsonl"}).json()
        assert batch["lines"]["accepted"] == 1
        missing = http.post("/v1/batches", json={"source": f"s3://{bucket}/n.jsonl"})
        problem(missing, 422, "source_missing")


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({}, "There are no credentials for s3://archive/1974/."),
        (
            {"s3_access_key_id": "nobody", "s3_secret_access_key": "x" * 40},
            "The object store does not take the credentials for s3://archive/1974/ (InvalidAccessKeyId).",
        ),
    ],
)
def test_a_bucket_without_good_credentials_is_refused_at_once(
    start_api: Callable[[Settings], Live],
    settings: Settings,
    s3_server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    keys: dict[str, str],
    reason: str,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with GuardedS3(s3_server.endpoint) as guarded:
        told = {"s3_endpoint_url": guarded.url, **keys}
        live = start_api(Settings.model_validate(settings.model_dump() | told))
        answer = httpx.post(f"{live.url}/v1/batches", json={"source": "s3://archive/1974/"})
    # A client repeats what is answered with 503, and whoever typed the command would wait for nothing.
    refused = problem(answer, 403, "source_forbidden")
    assert refused["detail"] == f"{reason} Give the API credentials for S3, or name a connection."
