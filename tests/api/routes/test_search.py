"""The search over HTTP, from Python and from the command line."""

import json
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
