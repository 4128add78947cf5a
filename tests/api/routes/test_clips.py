"""Clips over HTTP, from Python and from the command line."""

import io
import json
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile

from api.cli.main import main
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live, problem
from spool.client import Spool

pytestmark = pytest.mark.integration
RATE = 8000
SAMPLES = (np.arange(2 * RATE) % 3000).astype(np.int16)


def flac() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, SAMPLES, RATE, format="FLAC", subtype="PCM_16")
    return file.getvalue()


def done(http: httpx.Client, live: Live) -> str:
    job_id = str(http.post("/v1/jobs", files={"file": ("reel.flac", flac())}).json()["id"])
    live.work().finish(job_id, ("we", "lit", "the", "lamp"))
    return job_id


def test_a_citation_gives_the_same_words_after_corrections(http: httpx.Client, live: Live) -> None:
    job_id = done(http, live)
    words = http.get(f"/v1/jobs/{job_id}/transcript").json()["words"]
    wanted = {"start": words[1]["start"], "end": words[2]["end"]}
    clip = http.get(f"/v1/jobs/{job_id}/clip", params=wanted).json()
    assert clip["text"] == "lit the"
    assert clip["version"] == clip["newest_version"] == clip["transcript_sha256"][:16]
    for part in ("reel.flac (default), ", clip["version"], clip["transcript_sha256"], clip["url"]):
        assert part in clip["citation"]
    with Spool(live.url) as spool:
        spool.edit(job_id, 1, 1, "trimmed")
        newest = spool.clip(job_id, **wanted)
    assert (newest.text, newest.version) == ("trimmed the", f"{clip['version']}-r1")
    cited = http.get(clip["url"]).json()
    assert (cited["text"], cited["version"], cited["newest_version"]) == (
        "lit the",
        clip["version"],
        newest.version,
    )
    assert http.get(clip["transcript_url"]).text.strip() == "lit the"
    assert http.get(newest.transcript_url).text.strip() == "trimmed the"
    unknown = http.get(f"/v1/jobs/{job_id}/clip", params=wanted | {"version": f"{clip['version']}-r2"})
    assert f"the newest is {newest.version}" in problem(unknown, 404, "not_found")["detail"]


def test_the_words_of_a_clip_are_had_as_json_with_their_times(http: httpx.Client, live: Live) -> None:
    job_id = done(http, live)
    words = http.get(f"/v1/jobs/{job_id}/transcript").json()["words"]
    wanted = {"start": words[1]["start"], "end": words[2]["end"]}
    clip = http.get(f"/v1/jobs/{job_id}/clip", params=wanted).json()
    answer = http.get(f"{clip['transcript_url']}&format=json")
    assert answer.headers["content-type"] == "application/json"
    cut = answer.json()
    assert [word["text"] for word in cut["words"]] == ["lit", "the"]
    assert cut["words"][1]["start"] == pytest.approx(words[2]["start"] - wanted["start"])
    assert {name: cut[name] for name in ("job", "start", "end", "version", "text")} == {
        name: clip[name] for name in ("job", "start", "end", "version", "text")
    }
    assert [segment["text"] for segment in cut["segments"]] == ["lit the"]
    with Spool(live.url) as spool:
        assert json.loads(spool.clip_transcript(job_id, **wanted, format="json")) == cut
    path = f"/v1/jobs/{job_id}/clip/transcript"
    wrong = http.get(path, params=wanted | {"format": "json", "subtitles": "bbc"})
    problem(wrong, 422, "invalid_request")


def test_an_address_keeps_the_milliseconds_of_a_long_recording(http: httpx.Client, live: Live) -> None:
    job_id = str(http.post("/v1/jobs", files={"file": ("reel.flac", flac())}).json()["id"])
    live.work().finish(job_id, ("light",) * 2400)
    clip = http.get(f"/v1/jobs/{job_id}/clip", params={"start": 1000.125, "end": 1001.375}).json()
    assert (clip["start"], clip["end"]) == (1000.125, 1001.375)
    assert "?start=1000.125&end=1001.375" in clip["url"]
    assert "16:40.1 to 16:41.4" in clip["citation"]
    assert http.get(clip["url"]).json()["text"] == clip["text"] != ""


def test_the_sound_of_a_clip_has_the_recordings_own_samples(http: httpx.Client, live: Live) -> None:
    job_id = done(http, live)
    with Spool(live.url) as spool:
        whole = spool.clip_audio(job_id, 0.5, 1.25)
    heard, rate = soundfile.read(io.BytesIO(whole), dtype="int16")
    assert rate == RATE
    assert np.array_equal(heard, SAMPLES[RATE // 2 : RATE * 5 // 4])
    address = f"/v1/jobs/{job_id}/clip/audio?start=0.5&end=1.25"
    part = http.get(address, headers={"Range": "bytes=100-199"})
    assert (part.status_code, part.content) == (206, whole[100:200])


@pytest.mark.parametrize(
    ("start", "end", "sentence"),
    [(900, 901, "beyond the end of the recording"), (1, 1, "at least 0.1 s"), (-1, 2, "greater than")],
)
def test_times_outside_the_recording_are_refused(
    http: httpx.Client, live: Live, start: float, end: float, sentence: str
) -> None:
    job_id = done(http, live)
    for part in ("", "/transcript", "/audio"):
        answer = http.get(f"/v1/jobs/{job_id}/clip{part}", params={"start": start, "end": end})
        assert sentence in problem(answer, 422, "invalid_request")["detail"]


def test_the_command_prints_the_citation_and_writes_files(
    http: httpx.Client, live: Live, tmp_path: Path
) -> None:
    job_id = done(http, live)
    sound, words = tmp_path / "clip.wav", tmp_path / "clip.srt"
    command = ["clip", job_id, "--from", "0", "--to", "0:01.5", "--url", live.url]
    printed = invoke(main, [*command, "--audio", sound, "--transcript", words])
    assert "reel.flac (default), 0:00.0 to 0:01.5. Transcript " in " ".join(printed.stdout.split())
    assert soundfile.info(sound).frames == RATE * 3 // 2
    assert words.read_text().startswith("1\n00:00:00,000 --> ")
    shown = json.loads(invoke(main, [*command, "--json"]).stdout)
    assert shown["end"] == 1.5
    refused = invoke(main, [*command, "--transcript", tmp_path / "clip.pdf"])
    assert refused.exit_code == 2
    assert "clip.pdf does not end in .txt" in refused.stderr
    nowhere = tmp_path / "no" / "clip.wav"
    refused = invoke(main, [*command, "--audio", nowhere])
    assert refused.exit_code == 2
    assert f"{nowhere}: No such file or directory." in refused.stderr
    for into in (["transcript", job_id, "-o"], ["receipt", job_id, "--out"]):
        refused = invoke(main, [*into, nowhere, "--url", live.url])
        assert (refused.exit_code, refused.stderr) == (2, f"spool: {nowhere}: No such file or directory.\n")
