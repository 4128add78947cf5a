"""Voices that a person named, recognised in other recordings; a worker is played by the store."""

from array import array
from collections.abc import Callable
from math import sqrt
from pathlib import Path

import httpx
import pytest

from ops.testbed.running_api import Live, file_job, problem, transcript_of
from spool.client import NotFound, Spool
from spool.domain import JobSpeaker
from spool.formats import render
from spool.store import write_prints
from spool.store.queue import endings

Heard = Callable[..., str]


def voice(*values: float) -> bytes:
    length = sqrt(sum(value * value for value in values))
    return array("f", [value / length for value in values]).tobytes()


@pytest.fixture
def heard(live: Live, http: httpx.Client, recordings: Path) -> Heard:
    """A job that is done, with a speaker for each of the voice prints; None is a speaker without one."""

    def job(*prints: bytes | None, project: str = "default", encoder: str = "e") -> str:
        request = file_job(recordings, project=project, options={"diarization": {"voice_prints": True}})
        job_id = str(http.post("/v1/jobs", json=request).json()["id"])
        key = f"jobs/{job_id}/attempt-1/transcript.json"
        claim, record = live.work().claim(job_id), render(transcript_of(job_id, ("a",)), "json")
        stored = live.services.objects.put_bytes(key, record.encode())
        speakers = [
            JobSpeaker(label=f"speaker_{at}", name=None, talk_seconds=9.0, words=1)
            for at in range(len(prints))
        ]
        own = {f"speaker_{at}": each for at, each in enumerate(prints) if each is not None}
        with live.services.database.begin() as tx:
            endings.finish_job(
                tx, claim, endings.Outcome(2.0, key, stored.sha256 or "", 1.0, 1, speakers=speakers)
            )
            write_prints(tx, job_id, encoder, own)
        return job_id

    return job


def matches(spool: Spool, job_id: str) -> list[list[tuple[str, float]]]:
    return [[(one.name, one.similarity) for one in each.matches] for each in spool.speakers(job_id).items]


def test_a_voice_is_recognised_in_other_recordings_once_a_person_named_it(
    http: httpx.Client, live: Live, heard: Heard
) -> None:
    first, second = heard(voice(1, 0), voice(0, 1)), heard(voice(0, 1), voice(1, 0.1))
    with Spool(live.url) as spool:
        assert matches(spool, second) == [[], []]
        spool.name_speakers(first, {"speaker_0": "Ada"}, remember=True)
        assert matches(spool, second) == [[], [("Ada", 0.995)]]
        speakers = spool.job(second).speakers
        assert speakers is not None
        assert speakers[1].name is None, "a person confirms"

        named = spool.name_speakers(second, {"speaker_1": "Ada"}, remember=True)
        assert [each.matches for each in named.items] == [[], []]
        (known,) = spool.voices()
        assert (known.name, known.project, known.recordings) == ("Ada", "default", 2)

        third = heard(voice(1, 0.05))
        assert matches(spool, third) == [[("Ada", 1.0)]]
        answer = http.get(f"/v1/jobs/{third}/speakers").text
        assert "print" not in answer.replace("has_voice_print", ""), "a print never leaves the database"


def test_a_name_alone_remembers_nothing_and_another_name_takes_the_voice_away(
    live: Live, heard: Heard
) -> None:
    first, second = heard(voice(1, 0)), heard(voice(1, 0))
    with Spool(live.url) as spool:
        spool.name_speakers(first, {"speaker_0": "Ada"})
        assert spool.voices() == []
        spool.name_speakers(first, {"speaker_0": "Ada"}, remember=True)
        assert matches(spool, second) == [[("Ada", 1.0)]]
        spool.name_speakers(first, {"speaker_0": "Eva"})  # it was somebody else
        assert (spool.voices(), matches(spool, second)) == ([], [[]])


def test_a_forgotten_voice_is_gone_with_its_prints(live: Live, heard: Heard) -> None:
    first, second = heard(voice(1, 0)), heard(voice(1, 0))
    with Spool(live.url) as spool:
        spool.name_speakers(first, {"speaker_0": "Ada"}, remember=True)
        (known,) = spool.voices()
        spool.forget_voice(known.id)
        assert (spool.voices(), matches(spool, second)) == ([], [[]])
        (speaker,) = spool.speakers(first).items
        assert (speaker.name, speaker.has_voice_print) == ("Ada", False)
        with pytest.raises(NotFound):
            spool.forget_voice(known.id)


def test_a_deleted_transcript_takes_its_prints_along(live: Live, heard: Heard) -> None:
    first, second = heard(voice(1, 0)), heard(voice(1, 0))
    with Spool(live.url) as spool:
        spool.name_speakers(first, {"speaker_0": "Ada"}, remember=True)
        spool.delete_content(first, "transcript")
        assert (spool.voices(), matches(spool, second)) == ([], [[]])


def test_projects_and_encoders_know_nothing_of_each_other(live: Live, heard: Heard) -> None:
    first = heard(voice(1, 0))
    elsewhere, other = heard(voice(1, 0), project="radio"), heard(voice(1, 0), encoder="another")
    with Spool(live.url) as spool:
        spool.name_speakers(first, {"speaker_0": "Ada"}, remember=True)
        assert matches(spool, elsewhere) == matches(spool, other) == [[]]


def test_who_has_no_print_cannot_be_remembered(http: httpx.Client, heard: Heard) -> None:
    job_id = heard(voice(1, 0), None)
    body = {"names": {"speaker_1": "Bo"}, "remember": True}
    refused = problem(http.patch(f"/v1/jobs/{job_id}/speakers", json=body), 409, "conflict")
    assert "voice_prints" in str(refused["detail"])
    assert http.get(f"/v1/jobs/{job_id}").json()["speakers"][1]["name"] is None
