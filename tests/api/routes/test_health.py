"""Health, costs, workers, models; and what happens while the broker is away."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from api.probes import Probes
from ops.testbed.running_api import FakeWorker, Live, file_job, problem, start
from ops.testbed.s3 import S3Server
from ops.testbed.waiting import until
from spool.broker import EmbeddedRedis, temporary_home
from spool.settings import Settings


def test_a_healthy_server_is_ready(http: httpx.Client) -> None:
    assert http.get("/healthz").json() == {"status": "ok", "version": "0.1.0", "detail": []}
    ready = http.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["ready"] is True
    assert {name: check["ok"] for name, check in ready.json()["checks"].items()} == {
        "database": True,
        "broker": True,
        "objects": True,
    }


def test_a_database_without_tables_is_not_ready(
    make_settings: Callable[..., Settings], redis_url: str
) -> None:
    running = start(make_settings(redis_url=redis_url))
    try:
        answer = httpx.get(f"{running.live.url}/readyz")
        assert answer.status_code == 503
        checks = answer.json()["checks"]
        assert (
            checks["database"]["detail"]
            == "The database has no tables yet: run the migrations (python -m migrations upgrade)."
        )
        assert checks["broker"]["ok"] is True
        body = problem(httpx.get(f"{running.live.url}/v1/jobs"), 503, "storage")
        assert "migrations" in str(body["detail"])
    finally:
        running.close()


@pytest.mark.integration
def test_while_the_broker_is_away_jobs_are_taken_and_sent_later(
    make_settings: Callable[..., Settings], recordings: Path, sqlite_url: str
) -> None:
    # Given a server whose broker is not there
    broker = EmbeddedRedis(temporary_home())
    settings = make_settings(
        database_url=sqlite_url, redis_url=broker.url, source_roots=(recordings,), sweep_seconds=0.2
    )
    running = start(settings)
    try:
        with httpx.Client(base_url=running.live.url) as http:
            # Then it says that it is not ready, and takes jobs all the same
            checks = http.get("/readyz").json()["checks"]
            assert (checks["broker"]["ok"], checks["database"]["ok"]) == (False, True)
            assert http.post("/v1/jobs", json=file_job(recordings)).status_code == 202

            # And sends them once the broker is there
            with broker:
                until(lambda: running.live.waiting() == 1, "the hint")
                assert http.get("/readyz").status_code == 200
    finally:
        running.close()


def test_a_part_that_hangs_holds_up_nobody() -> None:
    release = threading.Event()
    asked = []

    def hang() -> None:
        asked.append(1)
        release.wait(60)

    probes = Probes({"slow": hang, "quick": lambda: None})
    try:
        for _ in range(3):
            checks = probes.ask(timeout=0.05)
            assert checks["quick"].ok
            assert not checks["slow"].ok
            assert checks["slow"].detail == "no answer in 0.05 s"
        # While it hangs it is not asked again
        assert asked == [1]
    finally:
        release.set()
        probes.close()


def test_a_part_that_fails_is_named_without_its_secrets() -> None:
    def fail() -> None:
        raise OSError("redis://:hunter2@10.0.0.1 refused")

    probes = Probes({"broker": fail})
    check = probes.ask()["broker"]
    probes.close()
    assert (check.ok, check.detail) == (False, "does not answer (OSError)")


# Costs


@pytest.mark.parametrize("group_by", ["day", "project", "model", "worker"])
def test_costs_are_grouped_and_their_groups_sum_to_the_total(
    live: Live, http: httpx.Client, recordings: Path, group_by: str
) -> None:
    # Given two jobs of two projects, done by two workers
    for project, name in (("a", "studio-1"), ("b", "studio-2")):
        job = http.post("/v1/jobs", json=file_job(recordings, project=project)).json()
        FakeWorker(live.services, name).finish(job["id"])

    report = http.get("/v1/costs", params={"group_by": group_by}).json()

    today = datetime.now(UTC).date().isoformat()
    keys = {"day": [today], "project": ["a", "b"], "model": ["demo-tdt"], "worker": ["studio-1", "studio-2"]}
    assert [row["key"] for row in report["rows"]] == keys[group_by]
    assert report["total"] == {
        "key": "total",
        "audio_seconds": 3.0,
        "engine_seconds": 1.0,
        "rtfx": 3.0,
        "billable": "0.001",
        "wasted": "0",
        "per_audio_hour": "1.2",
    }
    assert sum(row["engine_seconds"] for row in report["rows"]) == 1.0
    assert (report["currency"], report["group_by"]) == ("USD", group_by)


def test_a_period_of_costs_is_whole_days_and_half_open(
    live: Live, http: httpx.Client, recordings: Path
) -> None:
    job = http.post("/v1/jobs", json=file_job(recordings)).json()
    live.work().finish(job["id"])
    day = datetime.fromisoformat(http.get(f"/v1/jobs/{job['id']}").json()["times"]["finished_at"]).date()

    def engine_seconds(start: str, end: str) -> float:
        report = http.get("/v1/costs", params={"from": start, "to": end}).raise_for_status().json()
        return float(report["total"]["engine_seconds"])

    before, after = str(day - timedelta(days=1)), str(day + timedelta(days=1))
    assert engine_seconds(str(day), after) == 0.5
    assert engine_seconds(before, str(day)) == 0.0
    for query in (
        {"from": after, "to": before},
        {"from": "soon"},
        {"group_by": "mood"},
        {"to": "0001-01-01"},
    ):
        problem(http.get("/v1/costs", params=query), 422, "invalid_request")


# The fleet


def test_workers_and_models_show_who_can_do_what(live: Live, http: httpx.Client) -> None:
    assert http.get("/v1/workers").json() == {"items": []}
    (demo,) = http.get("/v1/models").json()["items"]
    assert (demo["name"], demo["default"], demo["workers"], demo["ready"]) == ("demo-tdt", True, 0, False)
    assert (demo["streams"], demo["rtfx"], demo["languages"]) == (None, None, [])

    worker = live.work()

    (shown,) = http.get("/v1/workers").json()["items"]
    assert shown["id"] == worker.info.id
    assert (shown["name"], shown["state"], shown["alive"]) == ("studio-1", "ready", True)
    assert (shown["models"], shown["price_per_hour"], shown["busy_seconds"]) == (["demo-tdt"], "3.6", 0.0)
    assert http.get("/v1/models").json()["items"][0]["workers"] == 1


def test_the_same_holds_over_postgresql_and_s3(
    make_settings: Callable[..., Settings],
    recordings: Path,
    postgres_url: str,
    redis_url: str,
    s3_server: S3Server,
) -> None:
    # Given a server over the stores of a fleet
    s3_server.client().create_bucket(Bucket="archive")
    settings = make_settings(
        database_url=postgres_url,
        redis_url=redis_url,
        objects="s3://archive/spool",
        s3_endpoint_url=s3_server.endpoint,
        s3_access_key_id=s3_server.access_key,
        s3_secret_access_key=s3_server.secret_key,
        source_roots=(recordings,),
    )
    running = start(settings)
    try:
        with httpx.Client(base_url=running.live.url, timeout=30) as http:
            until(lambda: http.get("/readyz").json()["ready"], "the stores' answers")
            headers = {"Idempotency-Key": "k"}
            job = http.post("/v1/jobs", files={"file": ("a.wav", b"RIFF")}, headers=headers).json()
            again = http.post("/v1/jobs", files={"file": ("a.wav", b"RIFF")}, headers=headers)
            assert (again.status_code, again.json()["id"]) == (200, job["id"])
            running.live.work().finish(job["id"])
            assert http.get(f"/v1/jobs/{job['id']}/transcript?format=txt").text == "keep the light\n"
            assert http.get("/v1/costs").json()["total"]["billable"] == "0.0005"
            keys = [stored.key for stored in running.live.services.objects.list()]
            assert keys == [f"jobs/{job['id']}/source", f"jobs/{job['id']}/transcript.1.json"]
    finally:
        running.close()
