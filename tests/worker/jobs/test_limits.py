"""What one job may take: attempts at errors that may pass, time, bytes; over SQLite with a real engine."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import update

from ops.testbed.jobs import RETRY, WorkerHarness, running_engine, speechlike
from ops.testbed.waiting import until
from spool import clock
from spool.domain import JobState
from spool.errors import StorageError
from spool.store import retry_job
from spool.tables import jobs
from tests.worker.jobs.test_runner import RefusingStore
from worker.engine import Engine

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine(utterances=2) as engine:
        yield engine


def test_a_persons_retry_starts_the_count_of_passing_errors_anew(
    make_harness: Callable[..., WorkerHarness],
) -> None:
    harness = make_harness(lease_seconds=0.9, heartbeat_seconds=0.3)
    store = RefusingStore(harness.folder / "objects")
    harness.services = replace(harness.services, objects=store)
    job_id = harness.submit(harness.record("a.wav", speechlike(5)))
    store.error = StorageError("no")
    for ending in (["handed back"] * RETRY.attempts, ["handed back"] * (RETRY.attempts - 1)):
        assert [harness.run(job_id) for _ in ending] == ending
        waiting = harness.job(job_id)
        assert (waiting.state, waiting.error_code) == ("queued", "storage"), "a job that is retried says why"
        assert harness.run(job_id) == "failed"
        job = harness.job(job_id)
        assert (job.error_code, job.transient_failures) == ("storage", RETRY.attempts - 1)
        with harness.db.begin() as tx:
            retry_job(tx, job_id)
        assert harness.job(job_id).transient_failures == 0
    store.error = None
    assert harness.run(job_id) == "done"
    assert harness.job(job_id).error_code is None


def test_a_job_that_runs_too_long_fails_and_a_retry_goes_on_from_its_chunks(
    make_harness: Callable[..., WorkerHarness], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    passed = [0.0]
    ahead = SimpleNamespace(**(vars(clock) | {"monotonic": lambda: time.monotonic() + passed[0]}))
    monkeypatch.setattr("worker.jobs.lease.clock", ahead)
    # The lease is longer than the limit, so that the clock's jump does not end it.
    harness = make_harness(max_job_seconds=600.0, lease_seconds=3600.0)
    job_id = harness.submit(harness.record("a.wav", speechlike(300)), "gated")
    running = harness.start(job_id)
    until(gate.with_suffix(".reached").exists, "a batch on the device")
    passed[0] = 601.0
    gate.touch()
    assert running.end() == "failed"
    job = harness.job(job_id)
    assert (job.state, job.error_code) == (JobState.FAILED, "time_limit")
    assert job.error_message is not None
    assert job.error_message.startswith("a.wav: it has run longer than the limit of 600 s")
    saved = harness.chunks(job_id)
    # What was on the device, and a batch that had gone there before the limit was noticed.
    assert 1 <= len(saved) <= 4
    cost = harness.cost(job_id)
    assert cost.billable_cost > 0
    assert cost.wasted_cost == 0
    with harness.db.begin() as tx:
        retry_job(tx, job_id)
    patient = make_harness()
    assert patient.run(job_id) == "done"
    assert [chunk.attempt for chunk in patient.chunks(job_id)][: len(saved)] == [1] * len(saved)


def test_time_counts_over_all_attempts(make_harness: Callable[..., WorkerHarness]) -> None:
    harness = make_harness(max_job_seconds=100.0)
    job_id = harness.submit(harness.record("a.wav", speechlike(5)))
    harness.draining.set()
    assert harness.run(job_id) == "handed back"
    harness.draining.clear()
    with harness.db.begin() as tx:
        tx.execute(update(jobs).values(ran_seconds=100.0))
    assert harness.run(job_id) == "failed"
    assert harness.job(job_id).error_code == "time_limit"
    with harness.db.begin() as tx:
        assert retry_job(tx, job_id).ran_seconds == 0
    assert harness.run(job_id) == "done"


def test_a_recording_on_this_machine_may_be_too_large(make_harness: Callable[..., WorkerHarness]) -> None:
    harness = make_harness(source_max_bytes=1000)
    job_id = harness.submit(harness.record("a.wav", speechlike(5)))
    assert harness.run(job_id) == "failed"
    assert harness.job(job_id).error_code == "source_too_large"
