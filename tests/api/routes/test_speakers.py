"""Speakers over HTTP: asked for, named, and in every format; a worker is played by the store."""

from pathlib import Path

import httpx
import pytest
from sqlalchemy import select

from ops.testbed.running_api import Live, file_job, problem, transcript_of
from spool.client import Conflict, Spool
from spool.domain import Diarization, DiarizationFacts, Speaker, Transcript, Turn
from spool.formats import render
from spool.store.queue import endings
from spool.tables import former_names

WORDS = ("keep", "the", "light", "burning")


def spoken(job_id: str) -> Transcript:
    """`WORDS`, the first two by one speaker and the others by another."""
    record = transcript_of(job_id, WORDS)
    words = tuple(
        word.model_copy(update={"speaker": f"speaker_{at // 2}", "overlap": at == 3})
        for at, word in enumerate(record.words)
    )
    (segment,) = record.segments
    segments = (
        segment.model_copy(update={"text": "keep the", "end": 0.9, "last_word": 1, "speaker": "speaker_0"}),
        segment.model_copy(
            update={"text": "light burning", "start": 1.0, "first_word": 2, "speaker": "speaker_1"}
        ),
    )
    return record.model_copy(
        update={
            "words": words,
            "segments": segments,
            "speakers": tuple(Speaker(label=f"speaker_{n}", talk_seconds=0.9, words=2) for n in range(2)),
            "turns": (
                Turn(start=0, end=0.9, speaker="speaker_0"),
                Turn(start=1.0, end=1.9, speaker="speaker_1"),
            ),
            "diarization": DiarizationFacts(name="default", sha256="0"),
        }
    )


@pytest.fixture
def job_id(live: Live, http: httpx.Client, recordings: Path) -> str:
    """A job that is done, with two speakers."""
    request = file_job(recordings, options={"diarization": {"speakers": 2}})
    job_id = str(http.post("/v1/jobs", json=request).json()["id"])
    services = live.services
    record = spoken(job_id)
    claim = live.work().claim(job_id)
    key = f"jobs/{job_id}/attempt-1/transcript.json"
    stored = services.objects.put_bytes(key, render(record, "json").encode())
    speakers = [
        {"label": each.label, "name": None, "talk_seconds": each.talk_seconds, "words": each.words}
        for each in record.speakers
    ]
    with services.database.begin() as tx:
        outcome = endings.Outcome(2.0, key, stored.sha256 or "", 1.0, 4, speakers=speakers)  # type: ignore[arg-type]
        endings.finish_job(tx, claim, outcome)
    return job_id


def test_a_name_is_in_every_format_and_comes_off_again(http: httpx.Client, job_id: str) -> None:
    path = f"/v1/jobs/{job_id}"
    before = http.get(f"{path}/transcript", params={"format": "vtt"})
    assert "<v Speaker 1>keep the" in before.text
    named = http.patch(f"{path}/speakers", json={"names": {"speaker_0": "  Ada  <Lund> "}})
    assert named.status_code == 200, named.text
    assert [each["name"] for each in named.json()["items"]] == ["Ada <Lund>", None]
    assert http.get(f"{path}/speakers").json() == named.json()
    assert [each["name"] for each in http.get(path).json()["speakers"]] == ["Ada <Lund>", None]

    texts = {form: http.get(f"{path}/transcript", params={"format": form}) for form in FORMS}
    for form, text in FORMS.items():
        assert text in texts[form].text, (form, texts[form].text)
    assert texts["vtt"].headers["etag"] != before.headers["etag"]
    record = Transcript.model_validate_json(http.get(f"{path}/transcript").text)
    assert [speaker.name for speaker in record.speakers] == ["Ada <Lund>", None]
    assert record.words[0].speaker == "speaker_0"
    assert record.words[3].overlap

    http.patch(f"{path}/speakers", json={"names": {"speaker_0": None}}).raise_for_status()
    after = http.get(f"{path}/transcript", params={"format": "vtt"})
    assert (after.text, after.headers["etag"]) == (before.text, before.headers["etag"])


def test_a_citation_keeps_the_names_of_its_time(live: Live, http: httpx.Client, job_id: str) -> None:
    path = f"/v1/jobs/{job_id}"

    def cite(**query: str) -> tuple[str, str]:
        clip = http.get(f"{path}/clip", params={"start": 0, "end": 2, **query}).json()
        shown = http.get(clip["transcript_url"]).text
        assert clip["version"] in clip["transcript_url"]
        return clip["version"], shown

    unnamed, numbers = cite()
    cited = {unnamed: numbers}
    for name in ("Ada", "Eva", "Ada", "Ida"):
        http.patch(f"{path}/speakers", json={"names": {"speaker_0": name}}).raise_for_status()
        version, shown = cite()
        assert f"{name}: keep the" in shown
        cited[version] = shown
    assert len(cited) == 4
    for version, shown in cited.items():
        assert cite(version=version) == (version, shown)
    newest = http.get(f"{path}/clip", params={"start": 0, "end": 2, "version": unnamed}).json()[
        "newest_version"
    ]
    assert newest == list(cited)[-1]
    assert cite(version=f"{unnamed}-n00000000") == (newest, cited[newest])
    http.delete(f"{path}/content", params={"what": "transcript"}).raise_for_status()
    with live.services.database.read() as tx:
        assert tx.execute(select(former_names.c.names)).all() == []
    problem(http.get(f"{path}/clip", params={"start": 0, "end": 2, "version": newest}), 410, "deleted")


FORMS = {
    "txt": "Ada <Lund>: keep the\nSpeaker 2: light burning\n",
    "paragraphs": "Ada <Lund>: keep the\n\nSpeaker 2: light burning\n",
    "srt": "Ada <Lund>: keep the",
    "vtt": "<v Ada &lt;Lund&gt;>keep the",
    "ttml": '<ttm:agent xml:id="speaker_0" type="person"><ttm:name type="full">Ada &lt;Lund&gt;</ttm:name>',
    "eaf": '<TIER TIER_ID="Ada &lt;Lund&gt;" LINGUISTIC_TYPE_REF="segment" PARTICIPANT="Ada &lt;Lund&gt;">',
    "textgrid": 'name = "Ada <Lund>"',
    "tsv": "start\tend\tspeaker\ttext\n0\t900\tspeaker_0\tkeep the\n",
    "ctm": "reel 1 1.500 0.400 burning 0.9000 lex speaker_1\n",
    "rttm": "SPEAKER reel 1 1.000 0.900 <NA> <NA> speaker_1 <NA> <NA>\n",
    "json": '"name": "Ada <Lund>"',
}


def test_who_is_not_there_gets_no_name(http: httpx.Client, job_id: str, recordings: Path) -> None:
    refused = http.patch(f"/v1/jobs/{job_id}/speakers", json={"names": {"speaker_7": "Ada"}})
    assert "speaker_0, speaker_1" in str(problem(refused, 422, "invalid_request")["detail"])
    for names in ({}, {"Ada": "Ada"}, {"speaker_0": "\n"}, {"speaker_0": "x" * 101}):
        problem(http.patch(f"/v1/jobs/{job_id}/speakers", json={"names": names}), 422, "invalid_request")
    other = http.post("/v1/jobs", json=file_job(recordings)).json()["id"]
    problem(http.patch(f"/v1/jobs/{other}/speakers", json={"names": {"speaker_0": "A"}}), 409, "conflict")


def test_speakers_are_asked_for_again_and_the_transcript_stays(
    live: Live, http: httpx.Client, job_id: str
) -> None:
    path = f"/v1/jobs/{job_id}"
    problem(http.post(f"{path}/diarize", json={"speakers": 0}), 422, "invalid_request")
    problem(http.post(f"{path}/diarize", json={"model": "none"}), 422, "invalid_request")
    asked = http.post(f"{path}/diarize", json={"speakers": {"min": 2, "max": 4}}, headers=KEY)
    assert asked.status_code == 202, asked.text
    job = asked.json()
    assert (job["state"], job["options"]["diarization"]["speakers"]) == ("queued", {"min": 2, "max": 4})
    again = http.post(f"{path}/diarize", json={"speakers": {"min": 2, "max": 4}}, headers=KEY)
    assert (again.status_code, again.json()["id"]) == (200, job_id)
    problem(http.post(f"{path}/diarize", json={"speakers": 3}, headers=KEY), 409, "conflict")
    problem(http.post(f"{path}/diarize", json={}), 409, "conflict")
    assert "keep the" in http.get(f"{path}/transcript", params={"format": "txt"}).text
    with Spool(live.url) as spool, pytest.raises(Conflict):
        spool.diarize(job_id, speakers=2)


KEY = {"Idempotency-Key": "once"}


def test_the_client_names_speakers(live: Live, job_id: str) -> None:
    with Spool(live.url) as spool:
        assert spool.name_speakers(job_id, {"speaker_1": "Bo"}).items[1].name == "Bo"
        assert "Bo: light burning" in spool.transcript(job_id)
        assert spool.words(job_id).speakers[1].name == "Bo"
        again = spool.diarize(job_id, speakers=2, within_channels=True, model="sortformer")
        assert (again.state, again.options.diarization) == (
            "queued",
            Diarization(model="sortformer", speakers=2, within_channels=True),
        )


@pytest.mark.parametrize(
    "diarization",
    [
        {"speakers": 0},
        {"speakers": {"min": 3, "max": 2}},
        {"model": "none"},
        {"voices": 2},
        {"speakers": "2"},
    ],
)
def test_what_cannot_be_asked_is_refused(
    http: httpx.Client, recordings: Path, diarization: dict[str, object]
) -> None:
    request = file_job(recordings, options={"diarization": diarization})
    body = problem(http.post("/v1/jobs", json=request), 422, "invalid_request")
    assert "diarization" in str(body["detail"])
