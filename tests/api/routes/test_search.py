"""The search over HTTP, from Python and from the command line."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.cli.main import main
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live, file_job, problem
from spool.client import Spool
from spool.domain import ChunkNbest, NbestText, Scope
from tests.api.auth.keys import bearer, new_key

pytestmark = pytest.mark.integration


def done(http: httpx.Client, live: Live, recordings: Path, words: str, **fields: Any) -> str:
    job_id = str(http.post("/v1/jobs", json=file_job(recordings, **fields)).json()["id"])
    live.work().finish(job_id, tuple(words.split()))
    return job_id


def test_words_are_found_over_http_python_and_the_command_line(
    http: httpx.Client,
    live: Live,
    recordings: Path,
) -> None:
    job_id = done(http, live, recordings, "he kept the light at Heligoland", name="Reel 42")
    asked: dict[str, Any] = {"q": '"the light" NEAR helgoland~', "limit": 1}
    [hit] = http.get("/v1/search", params=asked).json()["items"]
    assert (hit["job"], hit["name"], hit["start"]) == (job_id, "Reel 42", 1.0)
    [match] = hit["matches"]
    assert hit["text"][match["first_character"] : match["last_character"]] == "the light at Heligoland"
    assert hit["url"] == f"/#/jobs/{job_id}?t=1"
    with Spool(live.url) as spool:
        assert [each.job for each in spool.search("kept", confidence=0.5)] == [job_id]
        assert list(spool.search("kept", confidence=0.95)) == []
    command = ["search", "kept", "--url", live.url]
    assert "he kept the light at Heligoland" in invoke(main, [*command, "hel*"]).stdout
    ran = invoke(main, [*command, "--limit", "1"])
    assert ran.exit_code == 0, ran
    assert "more than" not in ran.output
    other = done(http, live, recordings, "they kept watch")
    assert "more than 1 found" in invoke(main, [*command, "--limit", "1"]).stdout
    http.delete(f"/v1/jobs/{other}/content", params={"what": "transcript"})
    assert [each["job"] for each in json.loads(invoke(main, [*command, "--json"]).stdout)] == [job_id]

    http.delete(f"/v1/jobs/{job_id}/content", params={"what": "transcript"})
    assert http.get("/v1/search", params={"q": "light"}).json() == {"items": [], "next_cursor": None}


def test_a_search_for_nothing_says_what_can_be_searched(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    command = ["search", "--url", live.url]
    assert invoke(main, command).stdout == "Nothing is transcribed yet.\n"
    done(http, live, recordings, "he kept the light")
    done(http, live, recordings, "they kept watch")
    assert "default: 2 transcripts\nSearch them with `spool search WORD" in invoke(main, command).stdout
    (project,) = json.loads(invoke(main, [*command, "--json"]).stdout)
    assert (project["project"], project["counts"]["done"]) == ("default", 2)


@pytest.mark.parametrize(
    ("spoken", "asked"),
    [
        ("we waited thirty days", "30"),
        ("we waited 30 days", "thirty"),
        ("we waited 30 days", '"thirty days"'),
        ("we waited forty-two days", "42 waited"),
        ("we waited 42 days", "forty two waited"),
        ("a hundred and five people", "105"),
        ("it was 1945 then", "nineteen forty five"),
        ("it was nineteen forty-five then", "1945 NEAR/3 it"),
        ("it cost 1,000 crowns", "a thousand crowns"),
        ("it cost one thousand crowns", "1000"),
    ],
)
def test_numbers_are_found_as_they_are_said_and_as_they_are_written(
    http: httpx.Client, live: Live, recordings: Path, spoken: str, asked: str
) -> None:
    job_id = done(http, live, recordings, spoken)
    assert [hit["job"] for hit in http.get("/v1/search", params={"q": asked}).json()["items"]] == [job_id]
    assert http.get("/v1/search", params={"q": f"{asked} 77"}).json()["items"] == []


def test_versions_of_a_recording_are_one_hit_for_people(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    first = done(http, live, recordings, "he kept the light", name="Reel 42")
    again = http.post("/v1/jobs/" + first + "/rerun", json={"options": {"nbest": 2, "decoder": "beam"}})
    second = str(again.json()["id"])
    live.work().finish(second, ("he", "kept", "the", "light"))
    other = done(http, live, recordings, "they kept watch", name="Reel 43")

    items = http.get("/v1/search", params={"q": "kept"}).json()["items"]
    assert {hit["job"]: hit["recording"] for hit in items} == {
        other: items[0]["recording"],
        first: items[2]["recording"],
        second: items[2]["recording"],
    }
    assert items[0]["recording"] != items[2]["recording"]

    printed = invoke(main, ["search", "kept", "--url", live.url]).stdout
    assert printed.count("he kept the light") == 1
    assert re.search(rf"also in demo-tdt, [\d-]+  {first}", printed), printed


@pytest.mark.parametrize(
    ("words", "text", "asked"),
    [
        (("我们", "在", "2023", "年", "去", "了", "北京", "。"), "我们在2023年去了北京。", "北京"),
        (("東京", "へ", "行き", "ました", "。"), "東京へ行きました。", "行きました"),
        (("ผม", "กิน", "ข้าว"), "ผมกินข้าว", "กินข้าว"),
        (("je", "m'appelle", "Léa"), "je m'appelle Léa", "m'appelle"),
    ],
)
def test_words_are_joined_as_their_language_is_written(
    http: httpx.Client, live: Live, recordings: Path, words: tuple[str, ...], text: str, asked: str
) -> None:
    job_id = str(http.post("/v1/jobs", json=file_job(recordings)).json()["id"])
    live.work().finish(job_id, words)
    [hit] = http.get("/v1/search", params={"q": asked}).json()["items"]
    assert (hit["job"], hit["text"]) == (job_id, text)
    assert http.get("/v1/review", params={"job": job_id}).json()["items"][0]["text"] == text
    edit = {"first_word": 0, "last_word": 0, "text": words[0], "author": "Bo"}
    http.post(f"/v1/jobs/{job_id}/edits", json=edit).raise_for_status()
    for form in ("txt", "srt", "vtt", "json"):
        assert text in http.get(f"/v1/jobs/{job_id}/transcript", params={"format": form}).text, form


def test_what_was_heard_beside_a_transcript_is_found_where_asked(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    job_id = str(http.post("/v1/jobs", json=file_job(recordings)).json()["id"])
    words = "mister cove alley kept the light"
    texts = tuple(NbestText(text=text, score=-1.0) for text in (words, "mister Kowalski kept the light"))
    chunk = ChunkNbest(start=0.0, end=3.0, hypotheses=texts)
    live.work().finish(job_id, tuple(words.split()), nbest=(chunk,))
    assert http.get("/v1/search", params={"q": "kowalski"}).json()["items"] == []
    [hit] = http.get("/v1/search", params={"q": "kowalsky~", "alternatives": "true"}).json()["items"]
    [match] = hit["matches"]
    assert (match["alternative"], match["confidence"]) == ("Kowalski", None)
    assert (match["start"], match["end"]) == (0.5, 1.4)
    assert hit["text"][match["first_character"] : match["last_character"]] == "cove alley"
    with Spool(live.url) as spool:
        assert [each.job for each in spool.search("kowalski", alternatives=True)] == [job_id]
    ran = invoke(main, ["search", "kowalski", "--alternatives", "--url", live.url])
    assert "heard beside “cove alley”: Kowalski" in ran.stdout


def test_a_query_that_cannot_be_read_is_refused(http: httpx.Client) -> None:
    answer = problem(http.get("/v1/search", params={"q": "a*"}), 422, "invalid_request")
    assert "at least 3 letters" in str(answer["detail"])
    problem(http.get("/v1/search"), 422, "invalid_request")
    problem(http.get("/v1/search", params={"q": "light", "cursor": "e30"}), 422, "invalid_request")


def test_a_key_searches_its_own_project(http: httpx.Client, live: Live, recordings: Path) -> None:
    done(http, live, recordings, "the light of alpha", project="alpha")
    beta = done(http, live, recordings, "the light of beta", project="beta")
    key = bearer(new_key(live.services.database, "beta", (Scope.READ,)))
    found = http.get("/v1/search", params={"q": "light"}, headers=key).json()
    assert [hit["job"] for hit in found["items"]] == [beta]
    other = http.get("/v1/search", params={"q": "light", "project": "alpha"}, headers=key).json()
    assert other == {"items": [], "next_cursor": None}
    assert http.get("/v1/search", params={"q": "alpa~"}, headers=key).json()["items"] == []
