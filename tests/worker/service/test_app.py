"""The worker as a process: real Celery on a real Redis, SQLite, a folder, and the tiny model."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ops.testbed.fake_models import ABORT, LOADER, poisoned
from ops.testbed.jobs import speechlike, write_wav
from ops.testbed.processes import Fleet, alive, children, drained, engine_of
from ops.testbed.waiting import until
from spool.domain import JobState
from spool.settings import load_settings
from spool.store import cancel_job, default_model, set_default_model
from worker.diagnostics import check_machine


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path / "gate"


@pytest.fixture
def make_fleet(tmp_path: Path, sqlite_url: str, redis_url: str, gate: Path) -> Iterator[Callable[..., Fleet]]:
    fleets = []

    def make(**environment: str) -> Fleet:
        models = f"plain=plain,gated=gate={gate},slow=sleep=0.2"
        told = {"SPOOL_MODELS": models, "SPOOL_DEFAULT_MODEL": "plain", **environment}
        fleets.append(Fleet(tmp_path, sqlite_url, redis_url, **told))
        return fleets[-1]

    yield make
    for fleet in fleets:
        fleet.close()


def test_a_worker_from_start_to_stop(make_fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    fleet = make_fleet(SPOOL_LEASE_SECONDS="60")  # a busy machine must not lose one by being slow
    good = [fleet.submit(write_wav(tmp_path / f"{i}.wav", speechlike(40))) for i in range(3)]
    bad = fleet.submit(write_wav(tmp_path / "bad.wav", poisoned(speechlike(40), ABORT)))
    gone = fleet.submit(tmp_path / "gone.wav")
    pinned = fleet.submit(tmp_path / "0.wav", pin="alpha")
    elsewhere = fleet.submit(tmp_path / "0.wav", pin="beta")
    fleet.send(good[0], times=5)
    worker = fleet.start()
    until(lambda: fleet.ended([*good, bad, gone, pinned]), "all jobs ended")
    assert [fleet.job(job_id).state for job_id in (*good, pinned)] == [JobState.DONE] * 4
    assert [fleet.job(job_id).error_code for job_id in (bad, gone)] == ["engine_crashed", "source_missing"]
    assert {fleet.job(job_id).attempt for job_id in (*good, bad, pinned)} == {1}
    assert fleet.job(gone).attempt == 2, "it is looked for twice"
    assert fleet.job(elsewhere).state is JobState.QUEUED
    processes = children(worker.pid)
    assert processes
    if sys.platform == "linux":
        assert "mlx" not in Path(f"/proc/{worker.pid}/maps").read_text()
    assert drained(worker) == 0
    until(lambda: not any(alive(pid) for pid in processes), "its children gone")
    row = fleet.workers()[0]
    assert row.state == "stopped"
    assert row.busy_ns == row.engine_busy_ns == fleet.billed_ns() > 0
    assert list((tmp_path / "tmp").glob("*")) == []
    counts = row.counts
    assert counts.attempts == {
        "done/": 4,
        "failed/engine_crashed": 1,
        "handed_back/source_missing": 1,
        "failed/source_missing": 1,
    }
    assert 4 * 40 * 16_000 <= counts.audio_samples <= counts.utterance_samples
    assert counts.utterances >= sum(counts.sizes) > 0
    assert counts.restarts >= 2, "the guilty utterance ended it twice"
    assert counts.idle_ns > 0


def test_sigterm_hands_back_at_a_saved_chunk_and_repeats_nothing(
    make_fleet: Callable[..., Fleet], tmp_path: Path, gate: Path
) -> None:
    fleet = make_fleet(SPOOL_MAX_BATCH="2")
    job_id = fleet.submit(write_wav(tmp_path / "long.wav", speechlike(300)), "gated")
    first = fleet.start()
    until(gate.with_suffix(".reached").exists, "a batch on the device")
    first.send_signal(signal.SIGTERM)
    until(lambda: fleet.workers()[0].state == "draining", "the worker noticed")
    gate.touch()
    assert first.wait(60) == 0
    job = fleet.job(job_id)
    saved = fleet.chunks(job_id)
    assert (job.state, job.crashes) == (JobState.QUEUED, 0)
    assert 1 <= len(saved) <= 2, "the batch on the device and nothing else"
    second = fleet.start(name="beta")
    until(lambda: fleet.ended([job_id]), "the job ended")
    assert fleet.job(job_id).state is JobState.DONE
    chunks = fleet.chunks(job_id)
    assert [chunk.attempt for chunk in chunks] == [1] * len(saved) + [2] * (len(chunks) - len(saved))
    assert drained(second) == 0
    assert fleet.billed_ns(wasted=True) == 0
    assert fleet.billed_ns() == sum(row.engine_busy_ns for row in fleet.workers())


@pytest.mark.long  # tests/faults/test_kill.py has one of them in the quick selection
def test_after_kill_9_another_worker_goes_on_from_the_saved_chunks(
    make_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    fleet = make_fleet(SPOOL_MAX_BATCH="1")
    job_id = fleet.submit(write_wav(tmp_path / "long.wav", speechlike(300)), "slow")
    first = fleet.start()
    processes = children(first.pid)
    until(lambda: len(fleet.chunks(job_id)) >= 2, "two chunks saved")
    first.kill()
    first.wait()
    saved = fleet.chunks(job_id)
    until(lambda: not any(alive(pid) for pid in processes), "the engine died with its parent")
    second = fleet.start(name="beta")
    until(lambda: fleet.ended([job_id]), "the job ended")
    job = fleet.job(job_id)
    assert (job.state, job.attempt, job.crashes) == (JobState.DONE, 2, 0), "it may only have been asleep"
    chunks = fleet.chunks(job_id)
    assert [chunk for chunk in chunks if chunk.attempt == 1] == saved
    assert drained(second) == 0
    assert fleet.billed_ns() == sum(row.busy_ns for row in fleet.workers())
    assert fleet.billed_ns(wasted=True) == 0, "what the dead engine computed is on no bill"


def test_a_running_job_is_cancelled_and_its_neighbour_is_not(
    make_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    fleet = make_fleet(SPOOL_MAX_BATCH="1", SPOOL_LEASE_SECONDS="1.2", SPOOL_HEARTBEAT_SECONDS="0.4")
    long = fleet.submit(write_wav(tmp_path / "long.wav", speechlike(2000)), "slow")
    worker = fleet.start()
    until(lambda: fleet.chunks(long), "a chunk saved")
    short = fleet.submit(write_wav(tmp_path / "short.wav", speechlike(30)), "slow")
    with fleet.db.begin() as tx:
        cancel_job(tx, long)
    until(lambda: fleet.ended([long, short]), "both ended")
    assert fleet.job(long).state is JobState.CANCELLED
    assert fleet.job(short).state is JobState.DONE
    assert drained(worker, signal.SIGINT) == 0
    assert fleet.billed_ns() == fleet.workers()[0].engine_busy_ns


@pytest.mark.long
def test_a_worker_whose_engine_cannot_start_any_more_leaves_where_that_is_asked(
    make_fleet: Callable[..., Fleet], tmp_path: Path, gate: Path
) -> None:
    broken = tmp_path / "broken"
    told = {"TEST_LOADER": "tests.worker.engine.fragile_models:load", "TEST_BROKEN": str(broken)}
    fleet = make_fleet(SPOOL_UNWELL_EXIT="true", **told)
    worker = fleet.start()
    job_id = fleet.submit(write_wav(tmp_path / "a.wav", speechlike(40)), "gated")
    until(gate.with_suffix(".reached").exists, "a batch on the device")
    broken.touch()
    os.kill(engine_of(worker.pid), signal.SIGKILL)
    assert worker.wait(60) == 1, "whoever supervises it may start it anew"
    job = fleet.job(job_id)
    assert (job.state, job.crashes) == (JobState.QUEUED, 0)
    assert fleet.workers()[0].state == "stopped"


@pytest.mark.long
def test_a_worker_told_to_stop_as_soon_as_it_is_known_signs_off(make_fleet: Callable[..., Fleet]) -> None:
    fleet = make_fleet()
    for _ in range(3):
        worker = fleet.start(state="")
        assert drained(worker) == 0
        assert fleet.worker_row(worker).state == "stopped"


def test_a_worker_that_joins_does_not_change_the_default_model(
    make_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    fleet = make_fleet()
    fleet.start(name="first")
    fleet.start(name="second", SPOOL_DEFAULT_MODEL="slow")
    with fleet.db.read() as tx:
        assert default_model(tx) is None
    with fleet.db.begin() as tx:
        set_default_model(tx, "plain")
    fleet.start(name="third", SPOOL_DEFAULT_MODEL="slow")
    with fleet.db.read() as tx:
        assert default_model(tx) == "plain"
    environment = {**fleet.environment, "SPOOL_DEFAULT_MODEL": "slow"}
    findings = {one.name: one for one in check_machine(load_settings(environment), LOADER)}
    assert "SPOOL_DEFAULT_MODEL=slow" in findings["default model"].text
    assert "default model" not in {one.name for one in check_machine(fleet.settings, LOADER)}
