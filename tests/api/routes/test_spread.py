"""A corrected name in the other places where it was written otherwise: found, corrected there, and undone."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.cli.main import main
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live, file_job, problem
from spool.audit import audit
from spool.client import Forbidden, Spool
from spool.domain import ChunkNbest, NbestText
from spool.schemas import SpreadPlace
from spool.sounds.letters import spell_sounds
from spool.sounds.lexicon import Lexicon
from spool.store import get_job
from spool.store.transcripts.sounds import ChannelSounds, write_sounds
from tests.spool.sounds.sounds import hear

pytestmark = pytest.mark.integration
NAME = "Okonkwo"


class Archive:
    """Recordings by what was written in each."""

    def __init__(self, http: httpx.Client, live: Live, recordings: Path) -> None:
        self.http, self.live, self._recordings = http, live, recordings

    def record(self, words: str, *alternatives: str, **fields: Any) -> str:
        """A done job with these words, and what else was recognised."""
        job_id = str(self.http.post("/v1/jobs", json=file_job(self._recordings, **fields)).json()["id"])
        texts = tuple(
            NbestText(text=text, score=-float(at)) for at, text in enumerate((words, *alternatives))
        )
        chunk = ChunkNbest(start=0.0, end=len(words.split()) / 2, hypotheses=texts)
        self.live.work().finish(job_id, tuple(words.split()), nbest=(chunk,) if alternatives else ())
        return job_id

    def hear(self, job_id: str, start: float, name: str) -> None:
        """The witness heard this from a second on."""
        frames, _ = hear([(start, name)], 30.0, lexicon=Lexicon({name: spell_sounds(name)[:1]}))
        with self.live.services.database.begin() as tx:
            write_sounds(tx, job_id, get_job(tx, job_id).project, [ChannelSounds.of(frames)])

    def correct(self, words: str = "we met oh conquer on the pier", first: int = 2, last: int = 3) -> str:
        """A recording in which the name was corrected, in revision 1."""
        job_id = self.record(words, name="Reel 1")
        edit = {"first_word": first, "last_word": last, "text": NAME, "author": "Bo"}
        self.http.post(f"/v1/jobs/{job_id}/edits", json=edit).raise_for_status()
        return job_id

    def places(self, job_id: str, revision: int = 1, **params: Any) -> list[SpreadPlace]:
        """Where the correction can spread to."""
        with Spool(self.live.url) as spool:
            return spool.spread_places(job_id, revision, **params).items

    def text(self, job_id: str) -> str:
        """What is written now."""
        return self.http.get(f"/v1/jobs/{job_id}/transcript", params={"format": "txt"}).text.strip()

    def transcript(self, job_id: str) -> Any:
        return self.http.get(f"/v1/jobs/{job_id}/transcript").json()

    def assert_lawful(self) -> None:
        breaches = audit(self.live.services.database, self.live.services.objects).breaches
        rules = ("searchable", "corrected", "reviewed", "stored")
        assert not [each for each in breaches if each.rule in rules], breaches


@pytest.fixture
def archive(http: httpx.Client, live: Live, recordings: Path) -> Archive:
    return Archive(http, live, recordings)


def test_a_name_is_corrected_wherever_it_was_written_otherwise_and_all_of_it_undone(archive: Archive) -> None:
    first = archive.correct()
    same = archive.record("then (oh conquer) rose and oh conquer, too")
    beside = archive.record("then a cone left", "then Okonkwo left")
    spelt = archive.record("we saw Okonkvo, today")
    heard = archive.record("she met a conqueror there")
    archive.hear(heard, 1.5, "okonkwo")
    right = archive.record("then Okonkwo spoke of Okonkwo's house")
    archive.hear(right, 0.5, "okonkwo")
    done = archive.record("and oh conquer again")
    again = {"first_word": 1, "last_word": 2, "text": "Oh, conquer"}
    archive.http.post(f"/v1/jobs/{done}/edits", json=again).raise_for_status()

    places = archive.places(first)
    assert {(each.job, each.written, each.text, *each.found_by) for each in places} == {
        (same, "(oh conquer)", "(Okonkwo)", "words"),
        (same, "oh conquer,", "Okonkwo,", "words"),
        (beside, "a cone", NAME, "alternative"),
        (spelt, "Okonkvo,", "Okonkwo,", "spelling"),
        (heard, "conqueror", NAME, "sound"),
    }, "what is right, and what somebody corrected, is none"
    by_job = {each.job: each for each in places}
    assert (by_job[beside].before, by_job[beside].after) == ("then", "left")
    assert (by_job[heard].certainty or 0.0) > 0.3
    assert archive.http.get(by_job[beside].clip).json()["text"].startswith("then a cone")
    assert len(archive.places(first, limit=2)) == 2

    before = {job: archive.transcript(job) for job in by_job}
    with Spool(archive.live.url) as spool:
        one = spool.spread_edit(first, 1, [by_job[spelt]], author="Cy")
        assert [(each.job, each.text, each.author) for each in one.items] == [(spelt, "Okonkwo,", "Cy")]
        assert {each.job for each in archive.places(first)} == {same, beside, heard}
        every = spool.spread_edit(first, 1, places, author="Cy")
        assert [each.job for each in every.refused] == [spelt], "it is corrected already"
        assert len(every.items) == len(places) - 1
        history = spool.edits(same)
        assert [(each.from_job, each.from_revision) for each in history] == [(first, 1)] * 2
        assert archive.text(same) == "then (Okonkwo) rose and Okonkwo, too"
        assert archive.text(heard) == "she met a Okonkwo there"
        assert archive.places(first) == []
        archive.assert_lawful()

        undone = spool.undo_spread(first, 1)
        assert (len(undone.items), undone.refused) == (len(places), [])
        assert {job: archive.transcript(job) for job in by_job} == before
        assert archive.text(first) == "we met Okonkwo on the pier"
        assert spool.undo_spread(first, 1).items == []
    assert {each.job for each in archive.places(first)} == set(by_job)
    archive.assert_lawful()


def test_words_that_changed_meanwhile_stay_as_they_are(archive: Archive) -> None:
    first = archive.correct()
    kept, changed = archive.record("oh conquer came"), archive.record("oh conquer went")
    places = archive.places(first)
    assert {each.job for each in places} == {kept, changed}
    mine = {"first_word": 0, "last_word": 2, "text": "O, conqueror"}
    archive.http.post(f"/v1/jobs/{changed}/edits", json=mine).raise_for_status()
    with Spool(archive.live.url) as spool:
        done = spool.spread_edit(first, 1, places)
        assert [each.job for each in done.items] == [kept]
        assert [(each.job, each.first_word, each.last_word) for each in done.refused] == [(changed, 0, 1)]
        other = places[0].model_copy(update={"written": "oh concur", "seen": 9})
        twice = spool.spread_edit(first, 1, [other]).refused
        assert len(twice) == 1
        own = {"first_word": 0, "last_word": 2, "text": "Obi came", "seen": 1}
        archive.http.post(f"/v1/jobs/{kept}/edits", json=own).raise_for_status()
        undone = spool.undo_spread(first, 1)
    assert undone.items == []
    assert "changed these words in revision 2" in undone.refused[0].reason
    assert (archive.text(kept), archive.text(changed)) == ("Obi came", "O, conqueror")


def test_one_place_is_corrected_once(archive: Archive) -> None:
    first = archive.correct()
    job = archive.record("so oh conquer and oh conquer left")
    places = archive.places(first)
    assert [(each.first_word, each.last_word) for each in places] == [(1, 2), (4, 5)]
    same = places[1].model_copy(update={"text": "Achebe"})
    with Spool(archive.live.url) as spool:
        refused = spool.spread_edit(first, 1, [places[1], same]).refused
    assert [each.reason for each in refused] == ["Words 4 to 5 are in another of these places, too."]
    assert archive.text(job) == "so oh conquer and Okonkwo left"
    left = archive.places(first)
    assert [(each.first_word, each.seen) for each in left] == [(1, 1)]


def test_a_correction_without_a_name_spreads_nowhere(archive: Archive) -> None:
    job = archive.record("there house by the sea")
    archive.record("there house is old")
    edit = {"first_word": 0, "last_word": 0, "text": "their"}
    archive.http.post(f"/v1/jobs/{job}/edits", json=edit).raise_for_status()
    found = archive.http.get(f"/v1/jobs/{job}/edits/1/places").json()
    assert found == {"names": [], "items": [], "hours": 0.0, "without_sounds": 0}
    problem(archive.http.get(f"/v1/jobs/{job}/edits/2/places"), 404, "not_found")
    archive.http.post(f"/v1/jobs/{job}/edits/1/undo", json={}).raise_for_status()
    problem(archive.http.get(f"/v1/jobs/{job}/edits/1/places"), 404, "not_found")
    nothing = {"places": [{"job": job, "first_word": 0, "last_word": 0, "written": "there", "text": "their"}]}
    problem(archive.http.post(f"/v1/jobs/{job}/edits/1/spread", json=nothing), 404, "not_found")


def test_recordings_of_which_something_is_closed_are_left_out(archive: Archive) -> None:
    first = archive.correct()
    shown, hidden = archive.record("oh conquer came"), archive.record("oh conquer went away early")
    closure = {"kind": "range", "start": 1.5, "end": 2.5}
    archive.http.post(f"/v1/jobs/{hidden}/closures", json=closure).raise_for_status()
    assert {each.job for each in archive.places(first)} == {shown}
    every = archive.places(first, closed=True)
    assert {each.job for each in every} == {shown, hidden}
    openings = archive.http.get(f"/v1/jobs/{hidden}/openings").json()["items"]
    assert [each["way"] for each in openings] == ["GET /v1/jobs/{job_id}/edits/{revision}/places"]
    with Spool(archive.live.url) as spool:
        with pytest.raises(Forbidden):
            spool.spread_edit(first, 1, every)
        assert archive.text(shown) == "oh conquer came", "nothing is changed then"
        assert len(spool.spread_edit(first, 1, every, closed=True).items) == 2
        with pytest.raises(Forbidden):
            spool.undo_spread(first, 1)
        assert archive.text(shown) == "Okonkwo came"
        assert len(spool.undo_spread(first, 1, closed=True).items) == 2


def test_the_command_lists_accepts_and_undoes(archive: Archive) -> None:
    first = archive.correct()
    one, two = (
        archive.record("oh conquer came", name="Reel 2"),
        archive.record("oh conquer went", name="Reel 3"),
    )
    command = ["edits", "spread", first, "1", "--url", archive.live.url]
    listed = invoke(main, command).stdout
    assert "oh conquer → Okonkwo went" in listed
    assert "Reel 2, 0.0 s  words" in listed
    assert f"{archive.live.url}/v1/jobs/{one}/clip/audio?start=0.0&end=1.5" in listed
    assert "there are 2 places, and no 3" in invoke(main, [*command, "--accept", "3"]).output
    assert "Give only one of" in invoke(main, [*command, "--all", "--undo"]).output
    assert invoke(main, [*command, "--accept", "1"]).stdout == "corrected in 1 recording: 1\n"
    ran = invoke(main, [*command, "--all", "--json"])
    assert len(json.loads(ran.stdout)["items"]) == 1
    assert {archive.text(one), archive.text(two)} == {"Okonkwo came", "Okonkwo went"}
    assert "no other places of Okonkwo" in invoke(main, command).stdout
    assert "There are no other places." in invoke(main, [*command, "--all"]).output
    assert invoke(main, [*command, "--undo"]).stdout == "undone in 2 recordings: 2\n"
    assert {archive.text(one), archive.text(two)} == {"oh conquer came", "oh conquer went"}
