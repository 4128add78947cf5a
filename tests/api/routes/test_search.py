"""The search over HTTP, from Python and from the command line."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from api.cli.main import main
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live, file_job, problem
from spool.client import Spool
from spool.domain import ChunkNbest, NbestText, Scope
from spool.sounds.letters import spell_sounds
from spool.sounds.lexicon import Lexicon
from spool.store import get_job
from spool.store.transcripts.sounds import ChannelSounds, write_sounds
from spool.tables import sound_blocks
from tests.api.auth.keys import bearer, new_key
from tests.spool.sounds.sounds import hear

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
    found = http.get("/v1/search", params={"q": "light"}).json()
    assert found == {"items": [], "next_cursor": None, "sounds": None}


def test_a_search_for_nothing_says_what_can_be_searched(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    command = ["search", "--url", live.url]
    assert invoke(main, command).stdout == "Nothing is transcribed yet.\n"
    done(http, live, recordings, "he kept the light")
    done(http, live, recordings, "they kept watch")
    for nothing in ([], [""]):
        said = invoke(main, [*command, *nothing]).stdout
        assert "default: 2 transcripts\nSearch them with `spool search WORD" in said
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
    assert other == {"items": [], "next_cursor": None, "sounds": None}
    assert http.get("/v1/search", params={"q": "alpa~"}, headers=key).json()["items"] == []


# --- by sound -----------------------------------------------------------------------------------------------


def heard(live: Live, job_id: str, *said: tuple[float, str]) -> None:
    """What the witness heard in a job: each text from its second on, by its letters."""
    entries = {word: spell_sounds(word)[:1] for _, text in said for word in text.split()}
    frames, _ = hear(said, 30.0, lexicon=Lexicon(entries))
    with live.services.database.begin() as tx:
        write_sounds(tx, job_id, get_job(tx, job_id).project, [ChannelSounds.of(frames)])


def test_a_name_is_found_by_its_sound_however_it_was_written(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    first = done(http, live, recordings, "we met a conqueror on the pier", name="Reel 1")
    heard(live, first, (1.0, "okonkwo"), (12.0, "heligoland storm"))
    second = done(http, live, recordings, "then Okonkwo spoke", name="Reel 2")
    heard(live, second, (0.5, "okonkwo"))
    plain = done(http, live, recordings, "nobody listened")
    found = http.get("/v1/search", params={"sound": "Okonkwo"}).json()
    assert [hit["job"] for hit in found["items"][:2]] == [second, first], "what is written so comes first"
    written, sounding = found["items"][:2]
    assert written["text"][slice(*[written["matches"][0][f"{x}_character"] for x in ("first", "last")])] == (
        "Okonkwo"
    )
    assert 1.0 <= sounding["sound"]["start"] < sounding["sound"]["end"] < 2.0
    assert 0.3 < sounding["sound"]["certainty"] < 0.6
    assert sounding["text"] == "we met a conqueror on the pier"
    [match] = sounding["matches"]
    assert match["start"] < sounding["sound"]["end"]
    assert match["end"] > sounding["sound"]["start"]
    assert sounding["url"] == f"/#/jobs/{first}?t={sounding['start']:g}"
    about = found["sounds"]
    assert about["phones"][0] == "OW K OW NG K W OW"
    assert (about["without_sounds"], about["damaged"], about["source"]) == (1, [], "letters")
    with Spool(live.url) as spool:
        page = spool.search_page(spelling="OW K OW NG K W OW", name="Reel 1")
    assert page.items[0].job == first
    assert {hit.job for hit in page.items} == {first}
    ran = invoke(main, ["search", "--sound", "okonkwo", "--url", live.url])
    assert ran.exit_code == 0, ran
    assert "sounds like OW K OW NG K W OW" in ran.stdout
    assert "1 transcript cannot be searched by sound" in ran.stdout
    assert "sounds like it from 1.0 s" in ran.stdout
    told = json.loads(invoke(main, ["search", "--sound", "okonkwo", "--url", live.url, "--json"]).stdout)
    whole = http.get("/v1/search", params={"sound": "okonkwo", "limit": 20}).json()
    assert told == whole, "also how sure each is, and what was searched"

    with live.services.database.begin() as tx:
        tx.execute(update(sound_blocks).where(sound_blocks.c.job_id == first).values(block=b"spoilt"))
    left = http.get("/v1/search", params={"sound": "okonkwo"}).json()
    assert left["sounds"]["damaged"] == [first]
    assert first not in [hit["job"] for hit in left["items"]]
    http.delete(f"/v1/jobs/{second}/content", params={"what": "transcript"})
    http.delete(f"/v1/jobs/{first}/content", params={"what": "transcript"})
    gone = http.get("/v1/search", params={"sound": "okonkwo"}).json()
    assert gone["items"] == []
    assert (gone["sounds"]["hours"], gone["sounds"]["without_sounds"]) == (0.0, 1)
    assert plain


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"sound": "..."}, "'...' has no sounds: a search by sound needs words, or phones."),
        ({"sound": "a"}, "'a' has 1 sounds; a search by sound needs at least 3."),
        ({"sound": "okonkwo " * 7}, "has 49 sounds; a search by sound takes at most 40."),
        ({"spelling": "OW KW"}, "spelling: KW is not a phone; the phones are: AA AE"),
        ({"spelling": "ok¤"}, "spelling: '¤' is not a symbol of English phones in IPA, or ARPABET."),
        ({"sound": "okonkwo", "cursor": "e30"}, "cursor: cannot be combined with a search by sound."),
        ({}, "Nothing to search for: give q, sound or spelling."),
    ],
)
def test_what_cannot_be_searched_by_sound_is_said(
    http: httpx.Client, asked: dict[str, str], sentence: str
) -> None:
    assert sentence in problem(http.get("/v1/search", params=asked), 422, "invalid_request")["detail"]
