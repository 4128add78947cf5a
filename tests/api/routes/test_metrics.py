"""The overview and the metrics say what happened here."""

from dataclasses import replace
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from api.routes import metrics
from ops.testbed.running_api import Live, file_job, problem
from spool.domain import Scope, WorkCounts
from spool.store import Audited, create_key, heartbeat, keep_audit


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.values()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_jobs_workers_and_money_are_on_both(http: httpx.Client, live: Live, recordings: Path) -> None:
    worker = live.work()
    done, failed, _ = (http.post("/v1/jobs", json=file_job(recordings)).json()["id"] for _ in range(3))
    worker.finish(done)
    worker.fail(failed, "audio_unreadable", "It is a text file.")

    now = http.get("/v1/overview").json()
    assert [(one["pool"], one["jobs"]) for one in now["waiting"]] == [("any", 1)]
    assert now["waiting"][0]["oldest_seconds"] >= 0
    assert {(one["state"], one["error"]): one["jobs"] for one in now["ended"]} == {
        ("done", ""): 1,
        ("cancelled", ""): 0,
        ("failed", "audio_unreadable"): 1,
    }
    assert (now["today"]["audio_seconds"], now["today"]["rtfx"]) == (1.5, 3.0)
    assert now["today"]["billable"] == "0.0005"

    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    found = samples(answer.text)
    assert found["spool_jobs_queued", ("any", "normal")] == 1
    assert found["spool_jobs_ended", ("", "done")] == 1
    assert found["spool_jobs_ended", ("audio_unreadable", "failed")] == 1
    assert found["spool_worker_up", ("cpu", "ready", "studio-1")] == 1
    assert found["spool_worker_price_per_hour", ("cpu", "studio-1")] == 3.6
    assert found["spool_engine_today_seconds", ("cpu", "demo-tdt")] == 0.5
    assert found["spool_billable_month", ("cpu", "demo-tdt")] == 0.0005


def test_readings_are_kept_for_a_moment(http: httpx.Client, live: Live, recordings: Path) -> None:
    first = http.get("/metrics").text
    http.post("/v1/jobs", json=file_job(recordings))
    assert http.get("/metrics").text == first
    live_metrics: metrics.Metrics = metrics.Metrics()
    assert live_metrics.text(live.services).decode() != first


def test_a_project_sees_its_own_and_no_metrics(http: httpx.Client, live: Live, recordings: Path) -> None:
    http.post("/v1/jobs", json=file_job(recordings))
    with live.services.database.begin() as tx:
        text = create_key(tx, "reader", "other", [Scope.READ]).text
    live.services.key_cache.check_required()
    bearer = {"Authorization": f"Bearer {text}"}
    assert http.get("/v1/overview", headers=bearer).json()["waiting"] == []
    problem(http.get("/metrics", headers=bearer), 403, "forbidden")
    problem(http.get("/metrics"), 401, "unauthorized")


def test_what_workers_counted_is_told_under_their_names(http: httpx.Client, live: Live) -> None:
    counts = replace(
        WorkCounts(idle_ns=4_000_000_000, load_ns=2_000_000_000, restarts=1, audio_samples=32_000),
        attempts={"failed/audio_empty": 2, "done/": 5},
    )
    counts = counts.with_batch((16_000, 8_000)).with_batch((16_000,) * 200)
    worker = live.work()
    with live.services.database.begin() as tx:
        heartbeat(tx, worker.info.id, "ready", 1_500_000_000, counts=counts)
        keep_audit(tx, Audited({"owned": 0, "billed": 2}, {"jobs": 1}, objects=True, version="1"))

    found = samples(http.get("/metrics").text)

    one = ("cpu", "studio-1")
    assert found["spool_worker_engine_busy_seconds_total", one] == 1.5
    assert found["spool_worker_engine_idle_seconds_total", one] == 4
    assert found["spool_worker_engine_overhead_seconds_total", ("cpu", "loading", "studio-1")] == 2
    assert found["spool_worker_engine_restarts_total", one] == 1
    assert found["spool_worker_audio_seconds_total", one] == 2
    assert found["spool_worker_utterance_seconds_total", one] == 201.5
    assert found["spool_worker_padding_seconds_total", one] == 0.5
    assert found["spool_worker_attempts_total", ("audio_empty", "cpu", "failed", "studio-1")] == 2
    sizes = {bound: found["spool_worker_batch_utterances_bucket", (bound, *one)] for bound in ("1.0", "2.0")}
    assert sizes == {"1.0": 0, "2.0": 1}
    assert found["spool_worker_batch_utterances_bucket", ("+Inf", *one)] == 2
    assert found["spool_worker_batch_utterances_sum", one] == 202
    assert found["spool_audit_breaches", ("billed",)] == 2
    assert 0 <= found["spool_audit_age_seconds", ()] < 60
