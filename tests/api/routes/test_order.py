"""Who goes first, over HTTP and in the terminal: priorities, deadlines, and why jobs are held."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from ops.testbed.running_api import Live, file_job, problem
from spool.settings import Settings
from spool.store import Claim, ClaimRequest, claim_next
from tests.api.cli.commands import Commands

LATER, PASSED = "2199-11-20T18:00:00Z", "2020-01-01T00:00:00Z"


@pytest.fixture
def settings(
    make_settings: Callable[..., Settings], recordings: Path, sqlite_url: str, redis_url: str
) -> Settings:
    return make_settings(
        database_url=sqlite_url,
        redis_url=redis_url,
        source_roots=(recordings,),
        quotas="full=jobs_in_flight:0,broke=spend_a_month:0",
    )


@pytest.fixture
def commands(tmp_path: Path, live: Live) -> Commands:
    return Commands(tmp_path / "home", {"SPOOL_URL": live.url})


def claimed(live: Live) -> str:
    """The job that a free worker would get now."""
    request = ClaimRequest("wrk_1", "cpu", "mini", 60.0)
    with live.services.database.begin() as tx:
        claim = claim_next(tx, request, live.settings.rules)
    assert isinstance(claim, Claim)
    return claim.job.id


def test_a_job_with_a_priority_overtakes_and_says_so(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    low = http.post("/v1/jobs", json=file_job(recordings, priority="low")).json()
    plain = http.post("/v1/jobs", json=file_job(recordings)).json()
    timed = http.post("/v1/jobs", json=file_job(recordings, deadline="2199-11-20T19:00:00+01:00")).json()
    high = http.post("/v1/jobs", json=file_job(recordings, priority="high")).json()
    assert [job["priority"] for job in (low, plain, timed, high)] == ["low", "normal", "normal", "high"]
    assert (timed["deadline"], timed["late"], timed["held"]) == (LATER, False, None)
    assert [claimed(live) for _ in range(4)] == [job["id"] for job in (high, timed, plain, low)]


def test_a_request_that_somebody_waits_for_overtakes_every_batch(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    plain = http.post("/v1/jobs", json=file_job(recordings)).json()
    high = http.post("/v1/jobs", json=file_job(recordings, priority="high")).json()
    timed = http.post("/v1/jobs", json=file_job(recordings, priority="high", deadline=LATER)).json()
    asked = {"model": "whisper-1", "stream": "true"}
    headers = {"Idempotency-Key": "one"}
    form: dict[str, Any] = {"data": asked, "files": {"file": ("call.wav", b"RIFF")}, "headers": headers}
    with http.stream("POST", "/v1/audio/transcriptions", **form) as first:
        job_id = first.headers["X-Spool-Job"]
        with http.stream("POST", "/v1/audio/transcriptions", **form) as again:
            assert again.headers["X-Spool-Job"] == job_id, "its deadline is no part of the request"
        assert [claimed(live) for _ in range(4)] == [job_id, timed["id"], high["id"], plain["id"]]


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        ({"priority": "urgent"}, "priority"),
        ({"priority": 0}, "priority"),
        ({"deadline": PASSED}, "deadline"),
        ({"deadline": "tomorrow"}, "deadline"),
        ({"deadline": 1800000000}, "deadline"),
    ],
)
def test_what_makes_no_order_is_refused_and_leaves_nothing(
    http: httpx.Client, recordings: Path, asked: dict[str, Any], where: str
) -> None:
    told = problem(http.post("/v1/jobs", json=file_job(recordings, **asked)), 422, "invalid_request")
    assert told["errors"][0]["where"] == where
    batch = http.post("/v1/batches", json={"source": recordings.as_uri() + "/", **asked})
    assert problem(batch, 422, "invalid_request")["errors"][0]["where"] == where
    assert http.get("/v1/jobs").json()["items"] == http.get("/v1/batches").json()["items"] == []


def test_a_repeat_of_a_request_is_one_after_its_deadline_too(http: httpx.Client, recordings: Path) -> None:
    keyed = {"Idempotency-Key": "k"}
    first = http.post("/v1/jobs", json=file_job(recordings, deadline=LATER), headers=keyed)
    again = http.post("/v1/jobs", json=file_job(recordings, deadline=LATER), headers=keyed)
    assert (first.status_code, again.status_code, again.json()["id"]) == (202, 200, first.json()["id"])
    other = http.post("/v1/jobs", json=file_job(recordings, priority="low"), headers=keyed)
    problem(other, 409, "conflict")


def test_lines_of_a_manifest_have_their_own_priority(
    http: httpx.Client, live: Live, recordings: Path
) -> None:
    source = file_job(recordings)["source"]
    lines = [
        {"source": source, "custom_id": "plain"},
        {"source": source, "custom_id": "first", "priority": "high"},
        {"source": source, "custom_id": "bad", "priority": "highest"},
    ]
    manifest = "\n".join(json.dumps(line) for line in lines).encode()
    batch = http.post(
        "/v1/batches",
        params={"request": json.dumps({"priority": "low", "deadline": LATER})},
        content=manifest,
        headers={"content-type": "application/x-ndjson"},
    ).json()
    assert batch["bad_lines"][0]["message"].startswith("priority: ")
    assert (batch["priority"], batch["lines"]["accepted"]) == ("low", 2)
    assert batch["deadline"] == {
        "at": LATER,
        "state": "unknown",
        "expected_at": None,
        "basis": "Not computed yet.",
    }
    jobs = {job["custom_id"]: job for job in http.get("/v1/jobs").json()["items"]}
    assert {name: job["priority"] for name, job in jobs.items()} == {"plain": "low", "first": "high"}
    assert {job["deadline"] for job in jobs.values()} == {LATER}
    assert claimed(live) == jobs["first"]["id"]


def test_a_held_project_says_why_and_others_go_on(
    http: httpx.Client, live: Live, recordings: Path, commands: Commands
) -> None:
    full = http.post("/v1/jobs", json=file_job(recordings, project="full")).json()
    assert full["held"] == {
        "by": "jobs_in_flight",
        "reason": "The project runs 0 of at most 0 jobs at once.",
        "until": None,
    }
    broke = http.post("/v1/batches", json={"source": recordings.as_uri() + "/", "project": "broke"}).json()
    assert broke["held"]["by"] == "spend_a_month"
    assert broke["held"]["until"].endswith("-01T00:00:00Z")
    free = http.post("/v1/jobs", json=file_job(recordings)).json()
    assert (free["held"], claimed(live)) == (None, free["id"])
    listed = {job["id"]: job["held"] and job["held"]["by"] for job in http.get("/v1/jobs").json()["items"]}
    assert (listed[full["id"]], listed[free["id"]]) == ("jobs_in_flight", None)
    assert http.get("/v1/batches").json()["items"][0]["held"]["by"] == "spend_a_month"

    told = commands.run("status", full["id"])
    assert "held" in told.stdout
    assert "The project runs 0 of at most 0 jobs at once." in told.stdout


def test_the_command_says_it_too(recordings: Path, commands: Commands) -> None:
    path = str(next(recordings.glob("*.wav")))
    told = commands.run("submit", path, "--priority", "high", "--deadline", LATER, "--json")
    (job,) = json.loads(told.stdout)
    assert (job["priority"], job["deadline"]) == ("high", LATER)
    assert "2199-11-20 18:00:00 UTC" in commands.run("status", job["id"]).stdout
    refused = commands.run("submit", path, "--again", "--deadline", PASSED, code=1)
    assert "deadline: is in the past" in refused.stderr
