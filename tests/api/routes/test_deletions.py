"""Deleting what a job holds, over HTTP, from Python and from the command line."""

import io
import json
from pathlib import Path

import httpx
import pytest
from sqlalchemy import update

from api.cli.main import main
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live, file_job, problem
from ops.testbed.waiting import until
from spool.background import ContentDeleter
from spool.client import Conflict, Deleted, Spool
from spool.domain import Content, Scope
from spool.settings import Settings
from spool.store import mark_deleted
from spool.tables import jobs
from tests.api.auth.keys import bearer, new_key

UNKNOWN = "job_01JD5T9Q4X8K2M6N0P3R7S1V5W"


def uploaded(http: httpx.Client, live: Live) -> str:
    job_id = str(http.post("/v1/jobs", files={"file": ("tape.wav", b"RIFF")}).json()["id"])
    live.work().finish(job_id)
    return job_id


def stored(live: Live, job_id: str) -> list[str]:
    return [item.key for item in live.services.objects.list(f"jobs/{job_id}/")]


def test_a_deleted_transcript_is_gone_with_a_word_of_when(http: httpx.Client, live: Live) -> None:
    job_id = uploaded(http, live)
    answer = http.delete(f"/v1/jobs/{job_id}/content")
    assert answer.status_code == 200, answer.text
    job = answer.json()
    assert set(job["deleted"]) == {"source", "transcript"}
    assert (job["state"], job["words"], job["cost"]["billable"] != "0") == ("done", 3, True)
    assert stored(live, job_id) == []

    told = problem(http.get(f"/v1/jobs/{job_id}/transcript"), 410, "deleted")
    assert f"The transcript of job {job_id} was deleted on 20" in str(told["detail"])
    problem(http.get(f"/v1/jobs/{job_id}/transcript", params={"format": "srt"}), 410, "deleted")
    problem(http.get(f"/v1/jobs/{job_id}/audio"), 410, "deleted")
    problem(http.get(f"/v1/jobs/{job_id}/phrases"), 410, "deleted")
    assert http.delete(f"/v1/jobs/{job_id}/content").json()["deleted"] == job["deleted"]


def test_the_recording_or_the_words_alone(http: httpx.Client, live: Live, recordings: Path) -> None:
    job_id = uploaded(http, live)
    deleted = http.delete(f"/v1/jobs/{job_id}/content", params={"what": "source"}).json()["deleted"]
    assert deleted["source"]
    assert deleted["transcript"] is None
    assert http.get(f"/v1/jobs/{job_id}/transcript").status_code == 200
    by_address = http.post("/v1/jobs", json=file_job(recordings)).json()["id"]
    live.work().finish(by_address)
    told = problem(http.delete(f"/v1/jobs/{by_address}/content", params={"what": "source"}), 409, "conflict")
    assert "was not uploaded" in str(told["detail"])
    assert http.delete(f"/v1/jobs/{by_address}/content").json()["deleted"]["source"] is None
    assert (recordings / "reel 1.wav").exists()


def test_what_has_not_ended_is_left_alone(http: httpx.Client, live: Live, recordings: Path) -> None:
    job_id = http.post("/v1/jobs", json=file_job(recordings)).json()["id"]
    problem(http.delete(f"/v1/jobs/{job_id}/content"), 409, "conflict")
    live.work().claim(job_id)
    told = problem(http.delete(f"/v1/jobs/{job_id}/content"), 409, "conflict")
    assert "is running; cancel it first" in str(told["detail"])
    problem(http.delete(f"/v1/jobs/{UNKNOWN}/content"), 404, "not_found")
    problem(http.delete(f"/v1/jobs/{job_id}/content", params={"what": "it"}), 422, "invalid_request")


def test_a_failed_job_and_its_batch_after_deletion(http: httpx.Client, live: Live, recordings: Path) -> None:
    batch = http.post("/v1/batches", json={"source": recordings.as_uri() + "/"}).json()["id"]
    (job,) = http.get("/v1/jobs", params={"batch": batch}).json()["items"]
    live.work().fail(job["id"], "audio_empty", "There is nothing in it.")
    assert http.delete(f"/v1/jobs/{job['id']}/content").status_code == 200
    problem(http.post(f"/v1/jobs/{job['id']}/retry"), 410, "deleted")
    assert http.post(f"/v1/batches/{batch}/retry-failed").json() == {"retried": 0}

    again = http.post("/v1/batches", json={"source": recordings.as_uri() + "/"}).json()["id"]
    (done,) = http.get("/v1/jobs", params={"batch": again}).json()["items"]
    live.work().finish(done["id"])
    http.delete(f"/v1/jobs/{done['id']}/content")
    line = json.loads(http.get(f"/v1/batches/{again}/results").text)
    assert (line["state"], line["text"], line["error"]["code"]) == ("done", None, "deleted")


def test_a_key_deletes_its_own_projects_alone(http: httpx.Client, live: Live) -> None:
    job_id = uploaded(http, live)
    database = live.services.database
    keys = {name: new_key(database, name) for name in ("default", "beta")}
    reader = new_key(database, "default", (Scope.READ,))
    live.services.key_cache.check_required()
    address = f"{live.url}/v1/jobs/{job_id}/content"
    problem(httpx.delete(address, headers=bearer(reader), timeout=60, verify=False), 403, "forbidden")
    problem(httpx.delete(address, headers=bearer(keys["beta"]), timeout=60, verify=False), 404, "not_found")
    own = httpx.delete(address, headers=bearer(keys["default"]), timeout=60, verify=False)
    assert own.status_code == 200, own.text


def test_from_python_and_by_command(
    http: httpx.Client,
    live: Live,
    recordings: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, waiting = uploaded(http, live), uploaded(http, live), ""
    with Spool(live.url) as spool:
        assert spool.delete_content(first, "transcript").deleted is not None
        with pytest.raises(Deleted, match="was deleted on"):
            spool.words(first)
        waiting = spool.submit((recordings / "reel 1.wav").as_uri()).id
        with pytest.raises(Conflict, match="cancel it first"):
            spool.delete_content(waiting)
    monkeypatch.setenv("SPOOL_URL", live.url)
    monkeypatch.setenv("SPOOL_HOME", str(live.settings.home))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert f"{second}: content deleted" in invoke(main, ["delete", second, "--yes"]).stdout
    assert "recording on 20" in invoke(main, ["status", second]).stdout
    for arguments, code in (
        (["transcript", second], 4),
        (["delete", waiting, "--yes"], 4),
        (["delete", first], 1),  # nobody is there to say yes
    ):
        assert invoke(main, arguments).exit_code == code, arguments


def test_copies_that_reuse_made_are_named_and_deleted_on_request(http: httpx.Client, live: Live) -> None:
    origin, first, second, other = (uploaded(http, live) for _ in range(4))
    with live.services.database.begin() as tx:
        copies = update(jobs).where(jobs.c.id.in_([first, second]))
        tx.execute(copies.values(reused_from=origin))
    answer = http.delete(f"/v1/jobs/{first}/content", params={"what": "transcript"}).json()
    assert answer["copies"] == sorted([origin, second])
    assert http.get(f"/v1/jobs/{origin}/transcript").status_code == 200
    answer = http.delete(f"/v1/jobs/{origin}/content", params={"copies": True}).json()
    assert answer["copies"] == []
    for job_id in (origin, first, second):
        problem(http.get(f"/v1/jobs/{job_id}/transcript"), 410, "deleted")
    assert http.get(f"/v1/jobs/{other}/transcript").status_code == 200


def test_a_batch_is_deleted_by_command(
    http: httpx.Client,
    live: Live,
    recordings: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (recordings / "reel 2.wav").write_bytes(b"RIFF")
    batch = http.post("/v1/batches", json={"source": recordings.as_uri() + "/"}).json()
    done, waiting = [job["id"] for job in http.get("/v1/jobs", params={"batch": batch["id"]}).json()["items"]]
    live.work().finish(done)
    monkeypatch.setenv("SPOOL_URL", live.url)
    monkeypatch.setenv("SPOOL_HOME", str(live.settings.home))
    ran = invoke(main, ["batch", "delete", batch["id"], "--yes"])
    assert ran.exit_code == 1, "jobs that have not ended are left alone"
    assert f"{batch['id']}: content of 1 job deleted" in ran.stdout
    assert "cancel it first" in ran.stderr
    problem(http.get(f"/v1/jobs/{done}/transcript"), 410, "deleted")
    assert http.get(f"/v1/jobs/{waiting}").json()["state"] == "queued"


def test_the_sweep_runs_in_the_api(live: Live, http: httpx.Client) -> None:
    assert live.services.deleter.is_alive()
    rules: Settings = live.settings.model_copy(update={"retention_sweep_seconds": 0.01})
    job_id = uploaded(http, live)
    with live.services.database.begin() as tx:
        mark_deleted(tx, [job_id], Content.TRANSCRIPT, "operator")
    thread = ContentDeleter(live.services.database, live.services.objects, rules)
    thread.start()

    until(lambda: len(stored(live, job_id)) <= 1, "the transcript's end")
    thread.stop()
    assert not thread.is_alive()
    assert stored(live, job_id) == [f"jobs/{job_id}/source"]
