"""Recordings that were submitted before with the same options make no new job, if the request says so."""

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.cli.main import main
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live, file_job, problem
from spool.client import Spool


def upload(http: httpx.Client, content: bytes, **request: Any) -> httpx.Response:
    words = json.dumps({"deduplicate": True, **request})
    return http.post(
        "/v1/jobs",
        files={"request": (None, words, "application/json"), "file": ("a.wav", content, "audio/wav")},
    )


def test_an_upload_is_the_same_by_content_name_and_options(live: Live, http: httpx.Client) -> None:
    first = upload(http, b"RIFF one")
    assert first.status_code == 202

    again = upload(http, b"RIFF one", tags={"box": "7"}, priority="low")

    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
    others = [
        upload(http, b"RIFF two"),
        upload(http, b"RIFF one", name="b.wav"),
        upload(http, b"RIFF one", options={"decoder": "beam"}),
        upload(http, b"RIFF one", project="reels"),
        upload(http, b"RIFF one", deduplicate=False),
    ]
    assert [other.status_code for other in others] == [202] * 5
    stored = {item.key for item in live.services.objects.list()}
    assert len({key for key in stored if key.endswith("/source")}) == 6


def test_a_file_is_the_same_until_it_changes(http: httpx.Client, recordings: Path) -> None:
    request = file_job(recordings, deduplicate=True)
    first = http.post("/v1/jobs", json=request).json()["id"]

    again = http.post("/v1/jobs", json=request)
    assert (again.status_code, again.json()["id"]) == (200, first)

    (recordings / "reel 1.wav").write_bytes(b"RIFF" + bytes(44))
    assert http.post("/v1/jobs", json=request).status_code == 202


def test_an_address_of_unknown_version_is_always_submitted(http: httpx.Client) -> None:
    request = {"source": "https://archive.example.org/a.wav", "deduplicate": True}

    assert [http.post("/v1/jobs", json=request).status_code for _ in range(2)] == [202, 202]


@pytest.mark.parametrize("end", ["failed", "cancelled", "deleted"])
def test_a_job_without_a_transcript_does_not_count(live: Live, http: httpx.Client, end: str) -> None:
    first = upload(http, b"RIFF one").json()["id"]
    if end == "failed":
        live.work().fail(first, "engine_crashed", "the engine ended")
    elif end == "cancelled":
        assert http.delete(f"/v1/jobs/{first}").status_code == 200
    else:
        live.work().finish(first)
        assert http.delete(f"/v1/jobs/{first}/content").status_code == 200

    again = upload(http, b"RIFF one")

    assert (again.status_code, again.json()["id"] != first) == (202, True)


def test_a_recording_that_cannot_be_decoded_is_not_tried_again(live: Live, http: httpx.Client) -> None:
    first = upload(http, b"RIFF one").json()["id"]
    live.work().fail(first, "audio_unreadable", "the content is not audio")
    again = upload(http, b"RIFF one")
    assert (again.status_code, again.json()["id"]) == (200, first)
    assert http.post(f"/v1/jobs/{first}/retry").json()["state"] == "queued"


def test_an_upload_is_found_by_its_content_before_it_is_sent(http: httpx.Client) -> None:
    content = hashlib.sha256(b"RIFF one").hexdigest()
    request = {"source": f"sha256:{content}", "name": "a.wav", "deduplicate": True}
    problem(http.post("/v1/jobs", json=request), 404, "not_found")
    first = upload(http, b"RIFF one").json()["id"]

    found = http.post("/v1/jobs", json=request)

    assert (found.status_code, found.json()["id"]) == (200, first)
    problem(http.post("/v1/jobs", json=request | {"name": "b.wav"}), 404, "not_found")
    problem(http.post("/v1/jobs", json={"source": "sha256:12", "name": "a.wav"}), 422, "invalid_request")


def test_a_batch_takes_only_what_is_new(http: httpx.Client, recordings: Path) -> None:
    request = {"source": f"{recordings.as_uri()}/", "deduplicate": True}
    http.post("/v1/jobs", json=file_job(recordings))
    first = http.post("/v1/batches", json=request).json()
    assert first["lines"]["accepted"] == 1, "a job outside batches does not count"
    (recordings / "reel 2.wav").write_bytes(b"RIFF" + bytes(40))

    second = http.post("/v1/batches", json=request).json()
    third = http.post("/v1/batches", json=request).json()

    assert (second["lines"]["accepted"], second["lines"]["unchanged"]) == (1, 1)
    assert (third["lines"]["accepted"], third["lines"]["unchanged"], third["state"]) == (0, 2, "ended")


def test_lines_of_one_manifest_with_the_same_recording_each_have_their_job(
    http: httpx.Client, recordings: Path
) -> None:
    source = (recordings / "reel 1.wav").as_uri()
    lines = "\n".join(json.dumps({"source": source, "custom_id": str(number)}) for number in range(3))
    form: dict[str, Any] = {
        "request": (None, '{"deduplicate": true}', "application/json"),
        "file": ("reels.jsonl", lines.encode(), "application/x-ndjson"),
    }

    batches = [http.post("/v1/batches", files=form).json() for _ in range(2)]

    assert [(batch["lines"]["accepted"], batch["lines"]["unchanged"]) for batch in batches] == [
        (3, 0),
        (0, 3),
    ]


def test_the_client_sends_a_file_once(live: Live, recordings: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.wav"
    path.write_bytes(b"RIFF of my own")
    sent: list[int] = []
    with Spool(live.url) as spool:
        first, new = spool.submit_once(path, sent=lambda done, _: sent.append(done))
        again, repeated = spool.submit_once(path, sent=lambda done, _: sent.append(-done))
        address = (recordings / "reel 1.wav").as_uri()
        of_address = [spool.submit_once(address)[1] for _ in range(2)]

    assert (new, repeated, again.id) == (True, False, first.id)
    assert sent
    assert min(sent) >= 0
    assert of_address == [True, False]


@pytest.fixture
def folder(live: Live, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """One of the user's own, whose commands find the server."""
    monkeypatch.setenv("SPOOL_URL", live.url)
    monkeypatch.setenv("SPOOL_HOME", str(live.settings.home))
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


def test_spool_submit_says_what_is_unchanged(folder: Path) -> None:
    for name in ("a.wav", "b.wav"):
        (folder / name).write_bytes(b"RIFF" + bytes(40))
    assert invoke(main, ["submit", str(folder)]).stdout.count("\n") == 2
    (folder / "c.wav").write_bytes(b"RIFF" + bytes(44))

    second = invoke(main, ["submit", str(folder)])
    forced = invoke(main, ["submit", str(folder), "--again"])

    assert "2 unchanged, 1 new" in second.stderr
    assert second.stdout.count("\n") == 1
    assert "c.wav" in second.stdout
    assert forced.stdout.count("\n") == 3


def test_spool_submit_names_what_failed_before(live: Live, folder: Path) -> None:
    (folder / "a.wav").write_bytes(b"RIFF" + bytes(40))
    job_id = invoke(main, ["submit", str(folder)]).stdout.split()[0]
    live.work().fail(job_id, "audio_unreadable", "a.wav: the content is not audio")

    again = invoke(main, ["submit", str(folder)])

    assert (again.exit_code, again.stdout) == (0, "")
    assert again.stderr == "1 unchanged, 0 new\na.wav: failed before: the content is not audio\n"


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        (["--language", "klingon"], "'klingon' is not a language code"),
        (["--language", "xx"], "language: demo-tdt does not know xx"),
        (["--model", "nonesuch"], "There is no model 'nonesuch'."),
    ],
)
def test_an_option_that_is_refused_is_said_once(folder: Path, option: list[str], sentence: str) -> None:
    for name in ("a.wav", "b.wav"):
        (folder / name).write_bytes(b"RIFF" + bytes(40))
    refused = invoke(main, ["submit", str(folder), *option])
    assert refused.exit_code != 0
    assert refused.stdout == ""
    assert refused.stderr.count(sentence) == 1, refused.stderr
