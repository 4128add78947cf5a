"""A worker that is unwell takes itself out of service and comes back: with real processes."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ops.testbed.jobs import speechlike, write_wav
from ops.testbed.processes import Fleet, drained, engines_of
from ops.testbed.waiting import until
from spool.domain import JobState
from spool.errors import DiskFull, StorageError
from spool.settings import Settings
from spool.store import Database
from worker.service import Health, clock_problem, disk_problem, machine_problems, write_problem

SOON = {"SPOOL_UNWELL_RETRY_SECONDS": "0.2", "SPOOL_HEARTBEAT_SECONDS": "0.2"}


@pytest.fixture
def make_fleet(tmp_path: Path, sqlite_url: str, redis_url: str) -> Iterator[Callable[..., Fleet]]:
    fleets = []

    def make(**environment: str) -> Fleet:
        models = f"plain=plain,gated=gate={tmp_path / 'gate'},frail=ill={tmp_path / 'ill'}"
        told = {"SPOOL_MODELS": models, "SPOOL_DEFAULT_MODEL": "plain", **SOON, **environment}
        fleets.append(Fleet(tmp_path, sqlite_url, redis_url, **told))
        return fleets[-1]

    yield make
    for fleet in fleets:
        fleet.close()


def test_an_engine_that_dies_on_everything_takes_its_worker_out_of_service(
    make_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    fleet = make_fleet(SPOOL_DEFAULT_MODEL="frail")
    ill = tmp_path / "ill"
    ill.touch()
    worker = fleet.start()
    jobs = [fleet.submit(write_wav(tmp_path / f"{i}.wav", speechlike(40)), "frail") for i in range(3)]
    until(lambda: fleet.worker_row(worker).state == "unwell", "the worker says that it is unwell")
    assert "ends on any utterance" in (fleet.worker_row(worker).reason or "")
    until(lambda: all(fleet.job(job_id).state is JobState.QUEUED for job_id in jobs), "all handed back")
    assert [fleet.job(job_id).transient_failures for job_id in jobs] == [0, 0, 0]
    ill.unlink()
    until(lambda: fleet.ended(jobs), "all jobs ended")
    assert [fleet.job(job_id).state for job_id in jobs] == [JobState.DONE] * 3
    until(lambda: fleet.worker_row(worker).state == "ready", "the worker is ready again")
    assert fleet.worker_row(worker).reason is None
    assert drained(worker) == 0
    row = fleet.worker_row(worker)
    assert row.busy_ns == row.engine_busy_ns == fleet.billed_ns() > 0, "self-tests are on no bill"


@pytest.mark.long
def test_an_engine_that_dies_again_and_again_with_nobody_to_blame(
    make_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    fleet = make_fleet(SPOOL_UNWELL_RETRY_SECONDS="3600")
    worker = fleet.start()
    killed: set[int] = set()

    def unwell_at_last() -> bool:
        for pid in set(engines_of(worker.pid)) - killed:
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)
        return fleet.worker_row(worker).state == "unwell"

    until(unwell_at_last, "the worker says that it is unwell")
    assert "times" in (fleet.worker_row(worker).reason or "")
    job_id = fleet.submit(write_wav(tmp_path / "a.wav", speechlike(10)))
    other = fleet.start(name="beta")
    until(lambda: fleet.ended([job_id]), "another worker took it")
    assert fleet.job(job_id).state is JobState.DONE
    assert drained(worker) == drained(other) == 0
    assert fleet.worker_row(worker).busy_ns == 0


def test_a_full_disk_stops_the_claims_and_hands_back_what_runs(
    make_fleet: Callable[..., Fleet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = make_fleet(SPOOL_DISK_FLOOR_BYTES=str(2**62))
    worker = fleet.start()
    until(lambda: fleet.worker_row(worker).state == "unwell", "the worker says that it is unwell")
    assert "MiB are free" in (fleet.worker_row(worker).reason or "")
    assert drained(worker) == 0
    assert fleet.worker_row(worker).state == "stopped"


def test_a_job_that_does_not_stop_is_failed_and_its_process_replaced(
    make_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    hanging = {"TEST_HANGS": "hang.wav", "SPOOL_MAX_JOB_SECONDS": "1.5"}
    fleet = make_fleet(SPOOL_LEASE_SECONDS="1", **hanging)
    worker = fleet.start()
    hangs = fleet.submit(write_wav(tmp_path / "hang.wav", speechlike(10)))
    assert worker.wait(60) == 1
    assert (fleet.job(hangs).state, fleet.job(hangs).error_code) == (JobState.FAILED, "time_limit")
    assert fleet.worker_row(worker).state == "stopped"
    successor = fleet.start()
    fine = fleet.submit(write_wav(tmp_path / "fine.wav", speechlike(10)))
    until(lambda: fleet.ended([fine]), "the next one ended")
    assert fleet.job(fine).state is JobState.DONE
    assert drained(successor) == 0


# --- questions ------------------------------------------------------------------------------------------


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_too_little_room_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert disk_problem(tmp_path / "not" / "yet", 1) is None
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100 << 20, 95 << 20, 5 << 20))
    assert disk_problem(tmp_path, 5 << 20) is None
    said = disk_problem(tmp_path, 6 << 20)
    assert said == f"5 MiB are free for {tmp_path}, less than the 6 that are kept"


def test_a_folder_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    assert write_problem(tmp_path / "tmp") is None
    assert list((tmp_path / "tmp").iterdir()) == []
    (tmp_path / "file").touch()
    said = write_problem(tmp_path / "file")
    assert said is not None
    assert "cannot be written: File exists" in said


def test_another_time_than_the_databases_is_a_problem(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    assert clock_problem(db, 60) is None
    import time

    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 300)
    assert clock_problem(db, 600) is None
    said = clock_problem(db, 60)
    assert said is not None
    assert said.startswith("this machine's clock is +300 s")


def test_a_database_that_is_away_is_no_illness(
    tmp_path: Path, make_settings: Callable[..., Settings]
) -> None:
    db = Database("postgresql+psycopg://nobody@127.0.0.1:1/none")
    assert list(machine_problems(make_settings(), db)) == []
    db.close()


def test_jobs_that_find_no_room_again_and_again_are_a_problem() -> None:
    health = Health()
    for error in (DiskFull(), StorageError(), DiskFull()):
        health.note(error)
    assert health.jobs_problem() is None
    health.note(DiskFull())
    assert health.jobs_problem() == "3 jobs found no room on the disk"
    health.set("unwell")
    assert health.reason == "unwell"
    health.set(None)
    assert health.jobs_problem() is None
    health.hangs("job_1")
    assert health.jobs_problem() == "a thread hangs in job_1"
    health.came_back("job_1")
    assert health.jobs_problem() is None
