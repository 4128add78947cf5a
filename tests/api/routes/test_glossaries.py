"""Glossaries: their versions, what jobs, batches and commands that name them get, and how they go."""

import json
from pathlib import Path

import httpx
import pytest

from api.cli.main import main
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live, file_job, problem
from spool.domain import Content
from spool.store import batch_jobs, get_job, mark_deleted

pytestmark = pytest.mark.integration


def _put(http: httpx.Client, **body: object) -> dict[str, object]:
    answer = http.post("/v1/glossaries", json={"name": "names", **body})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def _boost(http: httpx.Client, recordings: Path, boost: dict[str, object]) -> tuple[str, dict[str, object]]:
    options = {"model": "demo-tdt", "decoder": "beam", "boost": boost}
    answer = http.post("/v1/jobs", json=file_job(recordings, options=options, reuse=False))
    assert answer.status_code == 202, answer.text
    return answer.json()["id"], answer.json()["options"]["boost"]


def _phrases(http: httpx.Client, job_id: str) -> list[str]:
    return list(http.get(f"/v1/jobs/{job_id}/phrases").json()["phrases"])


def test_a_job_keeps_the_version_that_it_was_given(http: httpx.Client, live: Live, recordings: Path) -> None:
    # Given two versions; the same phrases again are none
    assert _put(http, text="fog horn\nHeligoland\n", weight=1.5)["version"] == 1
    assert _put(http, csv="phrase\nHeligoland\nfog horn\n", weight=1.5)["version"] == 1
    assert _put(http, phrases=["Amrum"])["version"] == 2

    # When jobs name the latest, an older one, or add phrases and a weight of their own
    latest, shown = _boost(http, recordings, {"glossary": "names"})
    assert (shown["glossary"], shown["count"], shown["weight"]) == ("names@2", 1, 1.0)
    older, shown = _boost(http, recordings, {"glossary": "names@1"})
    assert (shown["glossary"], shown["count"], shown["weight"]) == ("names@1", 2, 1.5)
    more, shown = _boost(http, recordings, {"glossary": "names@1", "phrases": ["Sylt"], "weight": 3})
    assert (shown["glossary"], shown["count"], shown["weight"]) == ("names@1", 3, 3.0)
    plain, _ = _boost(http, recordings, {"phrases": ["Heligoland", "fog horn"], "weight": 1.5})
    assert _phrases(http, more) == ["Heligoland", "Sylt", "fog horn"]

    # Then they have these phrases when the glossary is gone, and the options of plain phrases
    assert http.delete("/v1/glossaries/names").status_code == 204
    problem(http.get("/v1/glossaries/names"), 404, "not_found")
    assert _phrases(http, latest) == ["Amrum"]
    assert _phrases(http, older) == ["Heligoland", "fog horn"]
    with live.services.database.read() as tx:
        assert get_job(tx, older).options.of_words == get_job(tx, plain).options.of_words
    live.work().finish(latest)
    again = http.post(f"/v1/jobs/{latest}/rerun", json={}).json()
    assert _phrases(http, again["id"]) == ["Amrum"]
    assert again["options"]["boost"]["glossary"] == "names@2", "deleted meanwhile, and still named"


def test_phrases_stay_while_a_glossary_has_them(http: httpx.Client, live: Live, recordings: Path) -> None:
    _put(http, phrases=["Amrum"])
    job, _ = _boost(http, recordings, {"glossary": "names"})
    live.work().finish(job)
    with live.services.database.begin() as tx:
        mark_deleted(tx, [job], Content.TRANSCRIPT, "a person")
    assert http.get("/v1/glossaries/names@1").json()["phrases"] == ["Amrum"]


def test_all_jobs_of_a_batch_get_one_version(http: httpx.Client, live: Live, recordings: Path) -> None:
    _put(http, phrases=["Amrum", "Sylt"])
    source = file_job(recordings)["source"]
    named = {"decoder": "beam", "boost": {"glossary": "names"}}
    lines = [{"source": source, "options": named}, {"source": source, "options": named}]
    lines.append({"source": source, "options": {"boost": {"glossary": "nowhere"}}})
    manifest = "\n".join(json.dumps(line) for line in lines)
    sent = {"Content-Type": "application/x-ndjson"}
    batch = http.post("/v1/batches", content=manifest, headers=sent).json()
    with live.services.database.read() as tx:
        boosts = [job.options.boost for job in batch_jobs(tx, batch["id"], None, 9)]
    assert [boost and (boost.glossary, boost.count) for boost in boosts] == [("names@1", 2)] * 2
    assert "has no glossary nowhere" in json.dumps(batch)


def test_what_is_wrong_is_named(http: httpx.Client, recordings: Path) -> None:
    def refused(body: dict[str, object], words: str) -> None:
        answer = http.post("/v1/glossaries", json={"name": "names"} | body)
        assert words in json.dumps(problem(answer, 422, "invalid_request")), answer.text

    refused({"csv": "phrase,n\na,1\nb\n"}, "csv: line 3")
    refused({"text": "a\nb\x01"}, "text: line 2: must not contain control characters")
    refused({"text": "\n"}, "It contains no phrases")
    refused({"phrases": []}, "It contains no phrases")
    refused({"phrases": ["a"], "text": "a"}, "exactly one of")
    refused({"name": "a b", "text": "a"}, "name")
    refused({"text": "a", "weight": 0}, "weight")
    refused({"text": "a\x00"}, "zero byte")
    problem(http.post("/v1/glossaries", json={"name": "n", "text": "a" * 10_000_000}), 413, "too_large")
    assert http.get("/v1/glossaries").json() == {"items": []}
    for name in ("nowhere", "nowhere@3", "no where"):
        options = {"decoder": "beam", "boost": {"glossary": name}}
        answer = http.post("/v1/jobs", json=file_job(recordings, options=options))
        assert "boost.glossary" in json.dumps(problem(answer, 422, "invalid_request")), answer.text


def test_the_command_puts_shows_and_deletes(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOOL_URL", live.url)
    monkeypatch.setenv("SPOOL_HOME", str(live.settings.home))

    def spool(*arguments: str, code: int = 0) -> str:
        ran = invoke(main, ("glossary", *arguments))
        assert ran.exit_code == code, ran
        return ran.output

    file = tmp_path / "names.csv"
    file.write_text('phrase,kind\n"Lee, Ann",person\nAmrum,island\n')
    assert spool("put", "names", str(file), "--weight", "2") == "names@1: 2 phrases\n"
    assert spool("show", "names@1") == "Amrum\nLee, Ann\n"
    assert "names@1" in spool("list")
    file.write_bytes(b"phrase\nAmr\xfcm\n")
    assert "line 2: is not UTF-8" in " ".join(spool("put", "names", str(file), code=2).split())
    assert spool("delete", "names") == "names deleted\n"
    assert spool("list") == "no glossaries\n"


def _corrected(http: httpx.Client, live: Live, recordings: Path, *texts: str) -> str:
    """A job whose second word was corrected to each of the texts, one after another."""
    job = str(http.post("/v1/jobs", json=file_job(recordings)).json()["id"])
    live.work().finish(job, ("near", "helga", "land"))
    for seen, text in enumerate(texts):
        body = {"first_word": 1, "last_word": 2, "text": text, "seen": seen}
        assert http.post(f"/v1/jobs/{job}/edits", json=body).status_code == 201
    return job


def _suggested(http: httpx.Client, **asked: object) -> list[tuple[str, int]]:
    answer = http.get("/v1/glossary-suggestions", params=asked)  # type: ignore[arg-type]
    assert answer.status_code == 200, answer.text
    return [(each["phrase"], each["recordings"]) for each in answer.json()["items"]]


def test_corrected_names_are_suggested_until_they_are_taken_or_undone(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    first = _corrected(http, live, recordings, "Sylt", "Heligoland")
    _corrected(http, live, recordings, "Heligoland")
    third = _corrected(http, live, recordings, "Amrum")
    # A later edit stands in place of an earlier one, and one recording counts once
    assert _suggested(http) == [("Heligoland", 2), ("Amrum", 1)]
    assert _suggested(http, recordings=2) == [("Heligoland", 2)]
    assert _suggested(http, limit=1, recordings=1) == [("Heligoland", 2)]
    assert _suggested(http, project="elsewhere") == []
    [found, _] = http.get("/v1/glossary-suggestions").json()["items"]
    assert (found["first_word"], found["last_word"]) == (1, 2)
    problem(http.get("/v1/glossary-suggestions", params={"glossary": "nowhere"}), 404, "not_found")

    _put(http, phrases=["heligoland"], weight=3.0)
    assert _suggested(http, glossary="names") == [("Amrum", 1)]
    added = http.post("/v1/glossaries", json={"name": "names", "phrases": ["Amrum"], "extend": True}).json()
    assert (added["version"], added["count"], added["weight"]) == (2, 2, 3.0)
    assert _suggested(http, glossary="names") == []
    assert http.post(f"/v1/jobs/{third}/edits/1/undo", json={}).status_code == 201
    assert _suggested(http) == [("Heligoland", 2)]
    with live.services.database.begin() as tx:
        mark_deleted(tx, [first], Content.TRANSCRIPT, "a person")
    assert _suggested(http) == [("Heligoland", 1)]


def test_a_glossary_takes_up_what_was_corrected_often_enough(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    _put(http, phrases=["Sylt"])
    body = {"name": "own", "phrases": ["Sylt"], "auto_add_after": 2}
    assert http.post("/v1/glossaries", json=body).json()["auto_add_after"] == 2
    _corrected(http, live, recordings, "Heligoland")
    assert _boost(http, recordings, {"glossary": "own"})[1]["glossary"] == "own@1"
    _corrected(http, live, recordings, "Heligoland")
    job, boost = _boost(http, recordings, {"glossary": "own"})
    assert (boost["glossary"], _phrases(http, job)) == ("own@2", ["Heligoland", "Sylt"])
    assert _boost(http, recordings, {"glossary": "own"})[1]["glossary"] == "own@2", "nothing is new"
    assert http.get("/v1/glossaries/own").json()["created_by"] == "corrections"
    # Another glossary, and a version that a job names, stay what they are
    assert _boost(http, recordings, {"glossary": "own@1"})[1]["count"] == 1
    assert _boost(http, recordings, {"glossary": "names"})[1]["glossary"] == "names@1"
    # What a person removed stays away
    assert http.post("/v1/glossaries", json=body).json()["version"] == 3
    assert _boost(http, recordings, {"glossary": "own"})[1]["glossary"] == "own@3"
