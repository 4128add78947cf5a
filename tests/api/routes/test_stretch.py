"""A stretch of a recording again, over HTTP, from Python and from the command line."""

import json
from pathlib import Path

import httpx
import pytest

from api.cli.main import main
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live, file_job, problem
from spool.client import InvalidRequest, Spool

pytestmark = pytest.mark.integration


def done(http: httpx.Client, live: Live, recordings: Path, **request: object) -> str:
    job_id = str(http.post("/v1/jobs", json=file_job(recordings) | request).json()["id"])
    live.work().finish(job_id, ("Keep", "the", "light"))
    return job_id


def test_a_stretch_is_a_version_with_the_options_that_go_with_it(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    options = {"decoder": "beam", "witness": True, "diarization": {"speakers": 2}}
    first = done(http, live, recordings, options=options)
    length = http.get(f"/v1/jobs/{first}").json()["progress"]["audio_seconds"]
    with Spool(live.url) as spool:
        job = spool.rerun(first, {"beam": 8}, start=0.25, end=1.5)
        assert job.stretch is not None
        assert (job.stretch.job, job.stretch.start, job.stretch.end) == (first, 0.25, 1.5)
        assert (job.rerun_of, job.options.beam, job.options.witness) == (first, 8, False)
        assert job.options.diarization is None
        with pytest.raises(InvalidRequest, match="beyond the end of the recording"):
            spool.rerun(first, start=0.25, end=length + 2)
        versions = {each.job: each.stretch for each in spool.versions(first).items}
    assert versions[first] is None
    assert versions[job.id] == job.stretch
    assert http.get(f"/v1/jobs/{first}").json()["stretch"] is None
    # People read the length off in whole seconds.
    rounded = http.post(f"/v1/jobs/{first}/rerun", json={"start": 0, "end": length + 0.6}).json()
    assert rounded["stretch"]["end"] == pytest.approx(length, abs=0.001)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"start": 1}, "A stretch needs both a start and an end, in seconds."),
        ({"end": 1}, "A stretch needs both a start and an end, in seconds."),
        ({"start": 900, "end": 901}, "start: 900 s is beyond the end of the recording at "),
        ({"start": 0, "end": 901}, "end: 901 s is beyond the end of the recording at "),
        ({"start": 1, "end": 0.5}, "end: a stretch has at least 0.1 s; this one is from 1 to 0.5 s."),
        (
            {"start": 0, "end": 1, "options": {"witness": True}},
            "witness: a stretch keeps what its version has",
        ),
        ({"start": 0, "end": 1, "options": {"diarization": {}}}, "diarization: a stretch keeps"),
        ({"start": 0, "end": 1, "options": {"channels": "separate"}}, "channels: a stretch keeps those of"),
        (
            {"start": 0, "end": 1, "options": {"align": {"text": "a"}}},
            "align: an existing transcript is aligned",
        ),
    ],
)
def test_what_is_no_stretch_is_refused_in_a_sentence(
    http: httpx.Client, live: Live, recordings: Path, body: dict[str, object], sentence: str
) -> None:
    first = done(http, live, recordings)
    answer = problem(http.post(f"/v1/jobs/{first}/rerun", json=body), 422, "invalid_request")
    assert sentence in answer["detail"]


def test_a_job_without_a_transcript_has_no_stretch(http: httpx.Client, live: Live, recordings: Path) -> None:
    waiting = http.post("/v1/jobs", json=file_job(recordings)).json()["id"]
    answer = problem(http.post(f"/v1/jobs/{waiting}/rerun", json={"start": 0, "end": 1}), 409, "conflict")
    assert answer["detail"] == f"Job {waiting} is queued; a stretch of it can be replaced once it is done."
    gone = done(http, live, recordings)
    http.delete(f"/v1/jobs/{gone}/content", params={"what": "transcript"}).raise_for_status()
    problem(http.post(f"/v1/jobs/{gone}/rerun", json={"start": 0, "end": 1}), 410, "deleted")


def test_the_same_key_is_one_job_and_another_stretch_another_request(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    first = done(http, live, recordings)
    body, key = {"start": 0.2, "end": 1}, {"Idempotency-Key": "again"}
    made, same = (http.post(f"/v1/jobs/{first}/rerun", json=body, headers=key) for _ in range(2))
    assert (made.status_code, same.status_code) == (202, 200)
    assert made.json()["id"] == same.json()["id"]
    other = http.post(f"/v1/jobs/{first}/rerun", json={**body, "end": 1.1}, headers=key)
    problem(other, 409, "conflict")


def test_what_is_closed_stays_closed_in_the_new_version(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    first = done(http, live, recordings)
    words = http.get(f"/v1/jobs/{first}/transcript").json()["words"]
    closed = {"kind": "range", "start": words[1]["start"], "end": words[1]["end"]}
    http.post(f"/v1/jobs/{first}/closures", json=closed).raise_for_status()
    again = http.post(f"/v1/jobs/{first}/rerun", json={"start": 0, "end": 1}).json()["id"]
    live.work().finish(again, ("Keep", "the", "lamp"))
    shown = http.get(f"/v1/jobs/{again}/transcript").json()
    assert [word["text"] for word in shown["words"]] == ["Keep", "[closed]", "lamp"]


def test_the_command_takes_times_as_people_write_them(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    first = done(http, live, recordings)
    to = ("--url", live.url)
    ran = invoke(main, ["rerun", first, "--from", "0:00.5", "--to", "1", *to, "--json"])
    assert json.loads(ran.stdout)[0]["stretch"] == {"job": first, "start": 0.5, "end": 1.0}
    assert "0.5 s to 1.0 s" in invoke(main, ["versions", first, *to]).stdout
    made = json.loads(ran.stdout)[0]["id"]
    assert f"0.5 s to 1.0 s of {first}" in invoke(main, ["status", made, *to]).stdout
    for arguments, sentence, code in (
        (["rerun", first, "--from", "0:01"], "Give both times: --from 12:30 --to 14:00.", 2),
        (["rerun", first, first, "--from", "0", "--to", "1"], "replace a stretch of one job", 2),
        (["rerun", "--batch", "bat_1", "--from", "0", "--to", "1"], "replace a stretch of one job", 2),
        (["rerun", first, "--from", "half past", "--to", "1"], "--from: half past is not a time", 2),
        (["rerun", first, "--from", "12:30", "--to", "14:00"], "beyond the end of the recording", 4),
    ):
        failed = invoke(main, [*arguments, *to])
        assert failed.exit_code == code, arguments
        assert sentence in " ".join(failed.stderr.split())
