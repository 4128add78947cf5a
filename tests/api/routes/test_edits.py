"""Corrections over HTTP: in every format and in the search, undone, and by two people at once."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import httpx
import jsonschema
import pytest

from ops.testbed.running_api import Live, file_job, problem
from spool.audit import audit
from spool.client import Conflict, Spool
from spool.formats import IIIF_TYPE
from spool.schemas import JobEvent
from spool.store import edits_of, place_events, read_events

WORDS = ("keep", "the", "light", "burning")
IIIF_SCHEMA = Path(__file__).parents[2] / "golden/schemas/iiif-manifest.json"
Done = Callable[[], str]


@pytest.fixture
def done(live: Live, http: httpx.Client, recordings: Path) -> Done:
    """A job that is done, with four words."""

    def job() -> str:
        job_id = str(http.post("/v1/jobs", json=file_job(recordings)).json()["id"])
        live.work().finish(job_id, WORDS)
        return job_id

    return job


def assert_lawful(live: Live) -> None:
    breaches = audit(live.services.database, live.services.objects).breaches
    assert not [
        each for each in breaches if each.rule in ("searchable", "corrected", "reviewed", "stored")
    ], breaches


def test_a_correction_is_in_every_format_and_in_the_search(
    http: httpx.Client, live: Live, done: Done
) -> None:
    job_id = done()
    path = f"/v1/jobs/{job_id}/transcript"
    before = http.get(path)
    assert before.headers["x-spool-revision"] == "0"
    with Spool(live.url) as spool:
        edit = spool.edit(job_id, 2, 3, "lamp of Ærø burning", author="Bo")
        assert (edit.revision, edit.author, edit.stands) == (1, "Bo", True)
        assert [hit.job for hit in spool.search("ærø")] == [job_id]
        assert not list(spool.search("light"))
    for form in ("txt", "paragraphs", "srt", "vtt", "ttml", "eaf", "textgrid"):
        assert "lamp of Ærø burning" in http.get(path, params={"format": form}).text, form
    assert [line.split()[4] for line in http.get(path, params={"format": "ctm"}).text.splitlines()] == [
        "keep", "the", "lamp", "of", "Ærø", "burning",
    ]  # fmt: skip
    after = http.get(path)
    assert after.headers["etag"] != before.headers["etag"]
    assert after.headers["x-spool-revision"] == "1"
    record = after.json()
    assert record["corrections"][0]["original"] == "light burning"
    assert [word["text"] for word in record["words"] if word.get("corrected")] == ["lamp", "of", "Ærø"]
    original = http.get(path, params={"original": True})
    assert (original.json(), original.headers["etag"]) == (before.json(), before.headers["etag"])
    assert_lawful(live)


def test_numbers_are_digits_where_that_is_asked(http: httpx.Client, live: Live, recordings: Path) -> None:
    job_id = str(http.post("/v1/jobs", json=file_job(recordings)).json()["id"])
    live.work().finish(job_id, ("twenty", "five", "lamps"))
    path = f"/v1/jobs/{job_id}/transcript"
    with Spool(live.url) as spool:
        assert spool.transcript(job_id, digits="en") == "25 lamps\n"
        assert spool.transcript(job_id) == "twenty five lamps\n"
    plain, digits = http.get(path), http.get(path, params={"digits": "en"})
    assert plain.headers["etag"] != digits.headers["etag"]
    problem(http.get(path, params={"digits": "auto"}), 422, "invalid_request")  # the model tells no language
    problem(http.get(path, params={"digits": "english"}), 422, "invalid_request")


def test_subtitles_follow_the_rules_that_are_asked_for(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    job_id = str(http.post("/v1/jobs", json=file_job(recordings)).json()["id"])
    live.work().finish(job_id, ("lamp", "burning", "brightly") * 5)
    path = f"/v1/jobs/{job_id}/transcript"
    netflix, bbc = (http.get(path, params={"format": "srt", "subtitles": by}) for by in ("netflix", "bbc"))
    assert netflix.text == http.get(path, params={"format": "srt"}).text
    assert (netflix.text != bbc.text, netflix.headers["etag"] != bbc.headers["etag"]) == (True, True)
    problem(http.get(path, params={"format": "txt", "subtitles": "bbc"}), 422, "invalid_request")
    problem(http.get(path, params={"format": "srt", "subtitles": "itv"}), 422, "invalid_request")
    with Spool(live.url) as spool:
        assert spool.transcript_file(job_id, "srt", subtitles="bbc").decode() == bbc.text


def test_a_iiif_manifest_is_valid_and_leads_to_recording_and_words(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    job_id = str(http.post("/v1/jobs", json=file_job(recordings)).json()["id"])
    live.work().finish(job_id, ("keep", "the", "light"))
    path = f"/v1/jobs/{job_id}/transcript"
    with Spool(live.url) as spool:
        page = json.loads(spool.transcript_file(job_id, "iiif"))
    jsonschema.Draft202012Validator(json.loads(IIIF_SCHEMA.read_text())).validate(page)
    answer = http.get(path, params={"format": "iiif"})
    assert (answer.json(), answer.headers["content-type"]) == (page, IIIF_TYPE)
    assert page["id"] == str(answer.url)
    (canvas,) = page["items"]
    assert canvas["duration"] == http.get(path).json()["audio"]["duration"]
    (shown,), (told,) = canvas["items"][0]["items"], canvas["annotations"][0]["items"]
    assert (shown["motivation"], told["motivation"]) == ("painting", "supplementing")
    assert {shown["target"], told["target"]} == {canvas["id"]}
    assert shown["body"]["id"] == f"{live.url}/v1/jobs/{job_id}/audio"
    assert http.get(told["body"]["id"]).text == http.get(path, params={"format": "vtt"}).text
    problem(http.get(path, params={"format": "iiif", "subtitles": "bbc"}), 422, "invalid_request")


def test_an_undone_correction_is_gone_and_its_history_is_not(
    http: httpx.Client, live: Live, done: Done
) -> None:
    job_id = done()
    with Spool(live.url) as spool:
        spool.edit(job_id, 2, 2, "lamp")
        spool.edit(job_id, 2, 2, "candle", seen=1)
        problem(http.post(f"/v1/jobs/{job_id}/edits/1/undo", json={}), 409, "edited")
        assert spool.undo_edit(job_id, 2, author="Ada").undoes == 2
        assert spool.transcript(job_id) == "keep the lamp burning\n"
        spool.undo_edit(job_id, 1)
        assert spool.transcript(job_id) == "keep the light burning\n"
        assert [(each.revision, each.undoes, each.stands) for each in spool.edits(job_id)] == [
            (1, None, False), (2, None, False), (3, 2, False), (4, 1, False),
        ]  # fmt: skip
    with live.services.database.begin() as tx:
        place_events(tx)
    with live.services.database.read() as tx:
        log = read_events(tx, 0, 100, job_id=job_id)
    notes = [event.document() for event in log if event.type == "transcript.corrected"]
    assert [(each["revision"], each["undoes"], each["state"]) for each in notes] == [
        (1, None, "done"), (2, None, "done"), (3, 2, "done"), (4, 1, "done"),
    ]  # fmt: skip
    assert [JobEvent.model_validate(each).author for each in notes][2] == "Ada"
    for revision in (1, 3, 9):
        problem(http.post(f"/v1/jobs/{job_id}/edits/{revision}/undo", json={}), 404, "not_found")
    assert_lawful(live)


def test_of_two_people_who_change_the_same_words_the_second_is_told(live: Live, done: Done) -> None:
    job_id = done()
    with Spool(live.url) as ada, Spool(live.url) as bo:
        ada.edit(job_id, 0, 1, "save the", author="Ada")
        bo.edit(job_id, 3, 3, "burning.", author="Bo")  # other words: both stand
        with pytest.raises(Conflict, match="Ada changed these words in revision 1") as refused:
            bo.edit(job_id, 0, 1, "leave the", author="Bo")
        other = refused.value.problem["other"]
        assert (other["text"], other["author"], other["revision"]) == ("save the", "Ada", 1)
        bo.edit(job_id, 0, 1, "leave the", seen=2, author="Bo")
        assert bo.transcript(job_id) == "leave the light burning.\n"
    assert_lawful(live)


def test_what_does_not_fit_changes_nothing(
    http: httpx.Client, live: Live, done: Done, recordings: Path
) -> None:
    job_id = done()
    path = f"/v1/jobs/{job_id}/edits"
    for first, last, text in ((0, 4, "a"), (3, 2, "a"), (0, 0, None)):
        body = {"first_word": first, "last_word": last, "text": text}
        problem(http.post(path, json=body), 422, "invalid_request")
    problem(http.post(path, json={"first_word": 0}), 422, "invalid_request")
    waiting = http.post("/v1/jobs", json=file_job(recordings)).json()["id"]
    body = {"first_word": 0, "last_word": 0, "text": "a"}
    problem(http.post(f"/v1/jobs/{waiting}/edits", json=body), 409, "conflict")
    assert http.get(path).json() == {"items": []}
    assert http.get(f"/v1/jobs/{job_id}/transcript").headers["x-spool-revision"] == "0"


def test_corrections_go_with_the_transcript(http: httpx.Client, live: Live, done: Done) -> None:
    job_id = done()
    with Spool(live.url) as spool:
        spool.edit(job_id, 0, 0, "secret")
        spool.delete_content(job_id, "transcript")
    problem(http.get(f"/v1/jobs/{job_id}/edits"), 410, "deleted")
    body = {"first_word": 0, "last_word": 0, "text": "a"}
    problem(http.post(f"/v1/jobs/{job_id}/edits", json=body), 410, "deleted")
    with live.services.database.read() as tx:
        assert edits_of(tx, job_id) == []
    assert_lawful(live)


def test_a_batch_is_downloaded_as_it_was_corrected(http: httpx.Client, live: Live, recordings: Path) -> None:
    line = {"source": (recordings / "reel 1.wav").as_uri()}
    kind = {"Content-Type": "application/x-ndjson"}
    batch = http.post("/v1/batches", content=json.dumps(line) + "\n", headers=kind).json()["id"]
    (job,) = http.get("/v1/jobs", params={"batch": batch}).json()["items"]
    live.work().finish(job["id"], WORDS)
    with Spool(live.url) as spool:
        spool.edit(job["id"], 2, 2, "lamp")
    answer = http.get(f"/v1/batches/{batch}/transcripts", params={"format": "txt"})
    with ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.read(archive.namelist()[0]) == b"keep the lamp burning\n"
