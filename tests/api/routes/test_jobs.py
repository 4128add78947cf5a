"""Jobs over HTTP: submit, look, list, cancel, retry, fetch."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from ops.testbed.running_api import Live, file_job, problem
from ops.testbed.waiting import until
from spool.formats import format_entry
from tests.api.openapi.story import LATTICE


def submit(http: httpx.Client, recordings: Path, **request: object) -> dict[str, Any]:
    response = http.post("/v1/jobs", json=file_job(recordings, **request))
    assert response.status_code == 202, response.text
    return response.json()


def test_a_job_is_accepted_named_and_sent_to_the_queue(
    live: Live, http: httpx.Client, recordings: Path
) -> None:
    # When a file under an allowed root is submitted
    response = http.post("/v1/jobs", json=file_job(recordings, project="reels", options={"decoder": "beam"}))

    # Then it is accepted, under its own address
    assert response.status_code == 202
    job = response.json()
    assert response.headers["location"] == f"/v1/jobs/{job['id']}"
    assert (job["state"], job["project"], job["name"], job["pool"]) == (
        "queued",
        "reels",
        "reel 1.wav",
        None,
    )
    told = {"model": "demo-tdt", "decoder": "beam", "beam": 4, "channels": "mix", "nbest": 1, "boost": None}
    assert told.items() <= job["options"].items()
    assert job["source"]["size"] == 44
    assert job["cost"]["billable"] == "0"
    assert http.get(response.headers["location"]).json() == job

    # And a worker hears of it without waiting for a sweep
    until(lambda: live.waiting() == 1, "the hint")


def test_an_upload_is_stored_and_can_be_read_back(live: Live, http: httpx.Client) -> None:
    content = bytes(range(256)) * 1000
    form = {"file": ("Zoë's reel.wav", content, "audio/wav")}

    response = http.post("/v1/jobs", files=form)

    assert response.status_code == 202, response.text
    job = response.json()
    assert job["name"] == "Zoë's reel.wav"
    stored = f"jobs/{job['id']}/source"
    assert job["source"] == {"kind": "upload", "uri": stored, "size": len(content), "connection": None}
    with live.services.objects.open(job["source"]["uri"]) as file:
        assert file.read() == content
    assert list(live.services.upload_folder.iterdir()) == []


def test_the_request_part_of_an_upload_says_the_rest(http: httpx.Client) -> None:
    request = (
        '{"name": "Reel 7", "project": "reels", "options": {"channels": "separate"}, "worker": "studio-1"}'
    )
    form: dict[str, Any] = {
        "request": (None, request, "application/json"),
        "file": ("a.wav", b"RIFF", "audio/wav"),
    }

    job = http.post("/v1/jobs", files=form).json()

    assert (job["name"], job["project"], job["worker"]) == ("Reel 7", "reels", "studio-1")
    assert job["options"]["channels"] == "separate"


def test_progress_cost_and_attempts_show_while_a_worker_runs_it(
    live: Live, http: httpx.Client, recordings: Path
) -> None:
    job = submit(http, recordings)
    worker = live.work()
    worker.progress(worker.claim(job["id"]), done=30.0, total=120.0)

    shown = http.get(f"/v1/jobs/{job['id']}").json()

    assert shown["state"] == "running"
    assert shown["attempts"] == 1
    assert shown["lease_owner"] == worker.info.id
    assert shown["progress"] == {"audio_seconds": 120.0, "done_seconds": 30.0, "fraction": 0.25}
    assert shown["cost"] == {
        "audio_seconds": 30.0,
        "engine_seconds": 0.5,
        "rtfx": 60.0,
        "billable": "0.0005",
        "wasted": "0",
        "currency": "USD",
    }
    assert shown["times"]["started_at"] is not None


@pytest.mark.parametrize(
    ("form", "kind", "expected"),
    [
        ("txt", "text/plain; charset=utf-8", "keep the light\n"),
        ("srt", "application/x-subrip; charset=utf-8", "1\n00:00:00,000 --> "),
        ("vtt", "text/vtt; charset=utf-8", "WEBVTT\n"),
        ("json", "application/json", '{\n  "schema_version": "spool.transcript/1"'),
    ],
)
def test_a_done_job_has_its_transcript_in_every_format(
    live: Live, http: httpx.Client, recordings: Path, form: str, kind: str, expected: str
) -> None:
    job = submit(http, recordings)
    live.work().finish(job["id"])

    response = http.get(f"/v1/jobs/{job['id']}/transcript", params={"format": form})

    assert response.status_code == 200
    assert response.headers["content-type"] == kind
    assert response.text.startswith(expected)
    done = http.get(f"/v1/jobs/{job['id']}").json()
    assert (done["state"], done["words"], done["coverage"]) == ("done", 3, 1.0)
    assert done["progress"]["fraction"] == 1.0


def test_a_long_record_comes_block_by_block(
    live: Live, http: httpx.Client, recordings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(http, recordings)
    live.work().finish(job["id"])
    path = f"/v1/jobs/{job['id']}/transcript"
    whole = http.get(path).content
    for block in (100, len(whole) - 1, len(whole), len(whole) + 1):
        monkeypatch.setattr("api.routes.transcripts._BLOCK", block)
        assert http.get(path).content == whole


@pytest.mark.parametrize("form", ["lattice", "kaldi"])
def test_a_lattice_is_fetched_where_it_was_asked_for(
    live: Live, http: httpx.Client, recordings: Path, form: str
) -> None:
    asked = submit(http, recordings, options={"decoder": "beam", "lattice": 5.0, "alternatives": 2})
    plain = submit(http, recordings)
    shown = LATTICE.model_dump(mode="json", by_alias=True)
    work = live.work()
    work.finish(asked["id"], lattice=(LATTICE,))
    work.finish(plain["id"])

    found = http.get(f"/v1/jobs/{asked['id']}/transcript", params={"format": form})
    missing = http.get(f"/v1/jobs/{plain['id']}/transcript", params={"format": form})

    expected = format_entry(LATTICE, "reel") if form == "kaldi" else f"{json.dumps([shown])}\n"
    assert found.text == expected
    assert (asked["options"]["lattice"], asked["options"]["alternatives"]) == (5.0, 2)
    assert "submit the job with the option `lattice`" in problem(missing, 404, "not_found")["detail"]
    refused = http.post("/v1/jobs", json=file_job(recordings, options={"lattice": 5.0}))
    assert "does not apply to greedy" in refused.text


def test_a_transcript_before_its_time_says_where_the_job_stands(
    live: Live, http: httpx.Client, recordings: Path
) -> None:
    job = submit(http, recordings)
    path = f"/v1/jobs/{job['id']}/transcript"

    assert problem(http.get(path), 409, "not_done")["state"] == "queued"

    live.work().fail(job["id"], "audio_empty", "reel 1.wav holds no samples.")
    body = problem(http.get(path), 409, "not_done")
    assert body["state"] == "failed"
    assert "holds no samples" in str(body["detail"])


def test_a_failed_job_tells_why_and_can_be_tried_again(
    live: Live, http: httpx.Client, recordings: Path
) -> None:
    job = submit(http, recordings)
    live.work().fail(job["id"], "audio_empty", "reel 1.wav holds no samples.")
    shown = http.get(f"/v1/jobs/{job['id']}").json()
    assert shown["state"] == "failed"
    assert shown["error"] == {"code": "audio_empty", "message": "reel 1.wav holds no samples."}

    response = http.post(f"/v1/jobs/{job['id']}/retry")

    assert response.status_code == 202
    again = response.json()
    assert (again["state"], again["error"], again["attempts"]) == ("queued", None, 1)
    problem(http.post(f"/v1/jobs/{job['id']}/retry"), 409, "conflict")


def test_cancel_is_at_once_when_queued_and_a_request_when_running(
    live: Live, http: httpx.Client, recordings: Path
) -> None:
    waiting, running = submit(http, recordings), submit(http, recordings)
    live.work().claim(running["id"])

    assert http.delete(f"/v1/jobs/{waiting['id']}").json()["state"] == "cancelled"
    asked = http.delete(f"/v1/jobs/{running['id']}").json()

    assert (asked["state"], asked["cancel_requested"]) == ("running", True)
    problem(http.delete(f"/v1/jobs/{waiting['id']}"), 409, "conflict")


@pytest.mark.parametrize("job_id", ["job_01JD5T9Q4X8K2M6N0P3R7S1V5W", "job_1", "..%2f..%2fetc", "☃"])
def test_an_unknown_job_is_not_found_whatever_is_asked_of_it(http: httpx.Client, job_id: str) -> None:
    path = f"/v1/jobs/{job_id}"
    for response in (http.get(path), http.delete(path)):
        assert response.status_code == 404
        assert response.json()["code"] == "not_found"
    assert http.get(f"{path}/transcript").json()["code"] == "not_found"
    assert http.post(f"{path}/retry").json()["code"] == "not_found"


# Lists


def test_lists_are_filtered_and_paged_newest_first(live: Live, http: httpx.Client, recordings: Path) -> None:
    # Given five jobs of two projects, one of them done, one for another pool and pinned
    ids = [submit(http, recordings, project="a" if n % 2 else "b")["id"] for n in range(4)]
    ids.append(submit(http, recordings, project="c", pool="metal", worker="studio-2")["id"])
    live.work().finish(ids[0])

    def listed(**query: Any) -> list[str]:
        return [job["id"] for job in http.get("/v1/jobs", params=query).raise_for_status().json()["items"]]

    # Then lists are newest first and every filter holds
    assert listed() == ids[::-1]
    assert listed(state="done") == [ids[0]]
    assert listed(project="a") == [ids[3], ids[1]]
    assert listed(pool="metal") == [ids[4]]
    assert listed(worker="studio-2") == [ids[4]]
    assert listed(project="a", state="done") == []
    tagged = submit(http, recordings, name="Tape of 1961", tags={"series": "harbour"})["id"]
    assert listed(name="tape") == listed(tag="series=harbour") == listed(tag="series") == [tagged]
    assert listed(tag="series=radio") == []
    ids.append(tagged)
    middle = http.get(f"/v1/jobs/{ids[2]}").json()["times"]["created_at"]
    assert listed(created_from=middle) == ids[:1:-1]
    assert listed(created_to=middle) == ids[1::-1]

    # And pages follow each other without gap or repeat
    seen: list[str] = []
    cursor = None
    while True:
        page = http.get("/v1/jobs", params={"limit": 2} | ({"cursor": cursor} if cursor else {})).json()
        seen += [job["id"] for job in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == ids[::-1]


def test_a_cursor_belongs_to_its_query(http: httpx.Client, recordings: Path) -> None:
    for _ in range(3):
        submit(http, recordings)
    cursor = http.get("/v1/jobs", params={"limit": 1}).json()["next_cursor"]

    problem(http.get("/v1/jobs", params={"cursor": cursor, "state": "queued"}), 422, "invalid_request")
    problem(http.get("/v1/jobs", params={"cursor": "bm9uc2Vuc2U"}), 422, "invalid_request")
    problem(http.get("/v1/jobs", params={"cursor": "☃"}), 422, "invalid_request")


@pytest.mark.parametrize(
    "query",
    [
        {"limit": 0},
        {"limit": 201},
        {"limit": "many"},
        {"state": "sleeping"},
        {"project": "a b"},
        {"created_from": "yesterday"},
        {"created_from": "0"},
        {"created_from": "1.5e-3"},
        {"created_from": "9999-12-31T23:59:59-10:00"},
    ],
)
def test_a_query_that_means_nothing_is_refused(http: httpx.Client, query: dict[str, Any]) -> None:
    problem(http.get("/v1/jobs", params=query), 422, "invalid_request")


# Idempotency


def test_the_same_key_and_request_answer_with_the_same_job(
    live: Live, http: httpx.Client, recordings: Path
) -> None:
    headers = {"Idempotency-Key": "monday-1"}
    first = http.post("/v1/jobs", json=file_job(recordings, name="x"), headers=headers)
    again = http.post("/v1/jobs", json=file_job(recordings, name="x"), headers=headers)

    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json() == first.json()
    assert again.headers["location"] == first.headers["location"]
    assert len(http.get("/v1/jobs").json()["items"]) == 1

    problem(
        http.post("/v1/jobs", json=file_job(recordings, name="y"), headers=headers),
        409,
        "conflict",
    )


def test_a_repeated_upload_makes_no_second_job_and_no_second_object(live: Live, http: httpx.Client) -> None:
    headers = {"Idempotency-Key": "upload-1"}
    first = http.post("/v1/jobs", files={"file": ("a.wav", b"RIFF1")}, headers=headers)
    again = http.post("/v1/jobs", files={"file": ("a.wav", b"RIFF1")}, headers=headers)
    other = http.post("/v1/jobs", files={"file": ("a.wav", b"RIFF2")}, headers=headers)

    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json()["id"] == first.json()["id"]
    problem(other, 409, "conflict")
    assert [stored.key for stored in live.services.objects.list()] == [first.json()["source"]["uri"]]


def test_a_retry_under_a_key_is_done_once(live: Live, http: httpx.Client, recordings: Path) -> None:
    job = submit(http, recordings)
    path = f"/v1/jobs/{job['id']}"
    headers = {"Idempotency-Key": "again-1"}
    problem(http.post(f"{path}/retry", headers=headers), 409, "conflict")
    live.work().fail(job["id"], "audio_unreadable", "The file is not audio.")

    first = http.post(f"{path}/retry", headers=headers)
    again = http.post(f"{path}/retry", headers=headers)

    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json()["state"] == again.json()["state"] == "queued"
    other = submit(http, recordings)
    http.delete(f"/v1/jobs/{other['id']}")
    problem(http.post(f"/v1/jobs/{other['id']}/retry", headers=headers), 409, "conflict")
    problem(http.post(f"{path}/retry", headers={"Idempotency-Key": "a b"}), 422, "invalid_request")


@pytest.mark.parametrize("key", ["", "a b", "x" * 201])
def test_a_key_that_cannot_be_one_is_refused(http: httpx.Client, recordings: Path, key: str) -> None:
    response = http.post("/v1/jobs", json=file_job(recordings), headers={"Idempotency-Key": key})
    problem(response, 422, "invalid_request")
