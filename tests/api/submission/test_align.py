"""Existing transcripts over HTTP: what is kept of them with a job, and what is refused before anything is."""

import base64
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import docx
import httpx
import pytest
from sqlalchemy import func, select, update

from api.cli.main import main
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live, file_job, problem
from spool.domain import AnnouncedModel, Typescript
from spool.store import typescript_of
from spool.tables import jobs, typescripts, workers

pytestmark = pytest.mark.integration

SCRIPT = "ANNA: Good morning.\nBO: Good morning, Anna.\nANNA: Well.\nBO: Well."
WORDS = [("Good", "ANNA"), ("morning.", "ANNA"), ("Good", "BO"), ("morning,", "BO"), ("Anna.", "BO")]
WORDS += [("Well.", "ANNA"), ("Well.", "BO")]


def document() -> bytes:
    page = docx.Document()
    for line in SCRIPT.splitlines():
        page.add_paragraph(line)
    data = io.BytesIO()
    page.save(data)
    return data.getvalue()


def upload(http: httpx.Client, transcript: bytes, **request: object) -> httpx.Response:
    parts: dict[str, Any] = {
        "request": (None, json.dumps(request)),
        "transcript": ("reel.docx", transcript),
        "file": ("reel.wav", b"RIFF" + bytes(40)),
    }
    return http.post("/v1/jobs", files=parts)


def kept(live: Live, job: dict[str, object]) -> list[tuple[str, str | None]]:
    options = job["options"]
    assert isinstance(options, dict)
    with live.services.database.read() as tx:
        text: Typescript = typescript_of(tx, str(job["id"]), options["align"]["sha256"])
    assert options["align"]["words"] == len(text.words)
    return [(word.text, word.speaker) for word in text.words]


def count(live: Live) -> tuple[int, int]:
    with live.services.database.read() as tx:
        return tuple(tx.scalar(select(func.count()).select_from(each)) or 0 for each in (jobs, typescripts))  # type: ignore[return-value]


def test_a_text_comes_in_json_in_a_form_and_with_another_job_s_recording(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    word = {"data": base64.b64encode(document()).decode()}
    for align in ({"text": SCRIPT}, word, {"words": WORDS}):
        job = http.post("/v1/jobs", json=file_job(recordings, options={"align": align})).json()
        assert kept(live, job) == WORDS
        assert job["options"]["speech_detector"] is False
    job = upload(http, document()).json()
    assert kept(live, job) == WORDS
    # A search before, a search after: the recording stays, what was chosen for the search does not.
    search = {"decoder": "beam", "diarization": {}}
    problem(upload(http, b"any", options={"align": None, **search}), 422, "invalid_request")
    searched = http.post(
        "/v1/jobs", json=file_job(recordings, options={"decoder": "beam", "diarization": {}})
    )
    aligned = http.post(f"/v1/jobs/{searched.json()['id']}/rerun", json={"options": {"align": word}})
    assert aligned.status_code == 202, aligned.text
    assert aligned.json()["options"]["decoder"] == "greedy"
    assert kept(live, aligned.json()) == WORDS
    again = http.post(f"/v1/jobs/{aligned.json()['id']}/rerun", json={})
    assert kept(live, again.json()) == WORDS
    beam = {"align": None, "decoder": "beam", "beam": 2}
    plain = http.post(f"/v1/jobs/{again.json()['id']}/rerun", json={"options": beam})
    assert "align" not in plain.json()["options"]
    assert plain.json()["options"]["speech_detector"] is live.settings.speech_detector


def test_a_manifest_s_lines_have_texts_of_their_own(http: httpx.Client, live: Live, recordings: Path) -> None:
    line = file_job(recordings, custom_id="a", options={"align": {"text": SCRIPT}})
    bad = file_job(recordings, custom_id="b", options={"align": {"text": "…"}})
    plain = file_job(recordings, custom_id="c")
    manifest = "\n".join(map(json.dumps, (line, bad, plain)))
    parts = {"request": (None, "{}"), "file": ("list.jsonl", manifest)}
    batch = http.post("/v1/batches", files=parts).json()
    assert [each["message"] for each in batch["bad_lines"]] == [
        "options.align: transcript: the transcript has no words"
    ]
    found = http.get("/v1/jobs", params={"batch": batch["id"]}).json()["items"]
    first = http.get(f"/v1/jobs/{next(each['id'] for each in found if each['custom_id'] == 'a')}").json()
    assert kept(live, first) == WORDS
    assert count(live) == (2, 1)
    parts = {"request": (None, json.dumps({"options": {"align": {"text": "a"}}})), "file": ("l.jsonl", "{}")}
    refused = problem(http.post("/v1/batches", files=parts), 422, "invalid_request")
    assert "belongs to one recording" in str(refused["detail"])


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"align": {"text": "…"}}, "has no words"),
    ({"align": {"data": base64.b64encode(document()[:-300]).decode()}}, "cannot be read"),
    ({"align": {"data": "@"}}, "not base64"),
    ({"align": {}}, "one of text, data and words"),
    ({"align": {"text": SCRIPT}, "decoder": "beam"}, "decoder: an existing transcript is aligned"),
    ({"align": {"text": SCRIPT}, "speech_detector": True}, "speech_detector: an existing transcript"),
)


def test_what_cannot_be_aligned_is_refused_and_nothing_kept(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    for options, reason in REFUSED:
        answer = http.post("/v1/jobs", json=file_job(recordings, options=options))
        refused = problem(answer, 422, "invalid_request")
        assert reason in json.dumps(refused, ensure_ascii=False)
    assert count(live) == (0, 0)


def test_a_transcript_that_is_too_large_is_refused(http: httpx.Client, live: Live) -> None:
    long = b"word " * 3_000_000
    refused = problem(upload(http, long), 422, "invalid_request")
    assert "more than 10 MiB" in json.dumps(refused)
    problem(upload(http, long * 2), 413, "too_large")
    assert count(live) == (0, 0)
    assert list(live.services.objects.list("jobs/")) == []


def test_a_model_that_is_known_to_have_no_ctc_head_is_refused(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    work, job = live.work(), file_job(recordings, options={"align": {"text": SCRIPT}})
    for heads, status in ((("rnnt",), 422), (("ctc", "rnnt"), 202)):
        facts = {"demo-tdt": asdict(AnnouncedModel(heads=heads))}
        with live.services.database.begin() as tx:
            tx.execute(update(workers).where(workers.c.id == work.info.id).values(model_facts=facts))
        live.services.fleet.read()
        answer = http.post("/v1/jobs", json=job)
        assert answer.status_code == status, answer.text
        assert ("no CTC head" in answer.text) is (status == 422)


def test_the_command_submits_a_file_or_a_text_for_a_job_s_recording(
    http: httpx.Client, live: Live, tmp_path: Path, recordings: Path
) -> None:
    word, long = tmp_path / "reel.docx", tmp_path / "long.txt"
    word.write_bytes(document())
    long.write_text(", ".join(["word"] * 5000))  # more characters than any other text of a request
    other = tmp_path / "reel.wav"
    other.write_bytes(b"RIFF" + bytes(40))
    ids = []
    for recording, text in ((other, word), (recordings / "reel 1.wav", word), (other, long)):
        command = ["align", recording, text, "--model", "demo-tdt", "--json", "--url", live.url]
        ids.append(json.loads(invoke(main, command).stdout)[0]["id"])
    assert kept(live, http.get(f"/v1/jobs/{ids[0]}").json()) == WORDS
    assert len(kept(live, http.get(f"/v1/jobs/{ids[2]}").json())) == 5000
    printed = invoke(main, ["align", ids[2], word, "--url", live.url]).stdout
    assert f"version of {ids[2]}" in printed
    assert kept(live, http.get(f"/v1/jobs/{printed.split()[0]}").json()) == WORDS
    word.write_bytes(document()[:-300])
    for arguments in ([str(other), str(word)], [str(tmp_path), str(long)], [str(other), str(tmp_path)]):
        assert invoke(main, ["align", *arguments, "--url", live.url]).exit_code == 2
    assert count(live)[0] == 4


def test_without_a_model_one_that_can_align_is_chosen(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    work = live.work()
    facts = {
        "demo-tdt": asdict(AnnouncedModel(heads=("rnnt",))),
        "fetchable": asdict(AnnouncedModel(heads=("ctc",))),
        "installed": asdict(AnnouncedModel(heads=("ctc", "rnnt"), sha256="0" * 64)),
    }
    values = {"model_facts": facts, "models": sorted(facts)}
    with live.services.database.begin() as tx:
        tx.execute(update(workers).where(workers.c.id == work.info.id).values(values))
    live.services.fleet.read()
    done = http.post("/v1/jobs", json=file_job(recordings)).json()
    work.finish(done["id"])

    aligned = http.post("/v1/jobs", json=file_job(recordings, options={"align": {"text": SCRIPT}})).json()
    again = http.post(f"/v1/jobs/{done['id']}/rerun", json={"options": {"align": {"text": SCRIPT}}}).json()

    assert (done["options"]["model"], aligned["options"]["model"]) == ("demo-tdt", "installed")
    assert again["options"]["model"] == "installed"
