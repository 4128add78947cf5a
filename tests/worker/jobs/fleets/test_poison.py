"""A recording that ends the worker's process, and seven that were beside it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.testbed.jobs import speechlike, write_wav
from ops.testbed.processes import Fleet, drained
from ops.testbed.waiting import until
from spool.domain import JobState

INNOCENTS = 7


@pytest.fixture
def fleet(tmp_path: Path, sqlite_url: str, redis_url: str) -> Iterator[Fleet]:
    fleet = Fleet(
        tmp_path,
        sqlite_url,
        redis_url,
        SPOOL_MODELS=f"gated=gate={tmp_path / 'gate'}",
        SPOOL_DEFAULT_MODEL="gated",
        SPOOL_LEASE_SECONDS="4",
        TEST_SEGFAULT="poison.wav",
        TEST_GO=str(tmp_path / "go"),
    )
    yield fleet
    fleet.close()


def test_what_ends_the_process_is_set_aside_and_what_was_beside_it_is_not(
    fleet: Fleet, tmp_path: Path
) -> None:
    gate, go = tmp_path / "gate", tmp_path / "go"
    poison = fleet.submit(write_wav(tmp_path / "poison.wav", speechlike(20)), "gated")
    innocents = [
        fleet.submit(write_wav(tmp_path / f"{number}.wav", speechlike(20)), "gated")
        for number in range(INNOCENTS)
    ]
    jobs = [poison, *innocents]
    for death in (1, 2):  # twice all eight are in the process that dies
        worker = fleet.start()
        until(lambda death=death: all(_runs(fleet, job_id, death) for job_id in jobs), "all eight run")  # type: ignore[misc]
        go.touch()
        assert worker.wait(60) < 0, "the decoder ended the process"
        go.unlink()
    gate.touch()
    go.touch()
    workers = [fleet.start()]

    def all_ended() -> bool:
        if workers[-1].poll() is not None:
            workers.append(fleet.start())
        return fleet.ended(jobs)

    until(all_ended, "all jobs ended")
    assert [fleet.job(job_id).state for job_id in innocents] == [JobState.DONE] * INNOCENTS
    assert {fleet.job(job_id).crashes for job_id in innocents} == {2}, "none died again beside the guilty one"
    job = fleet.job(poison)
    assert (job.state, job.error_code, job.crashes) == (JobState.FAILED, "poison", 3)
    assert job.error_message == "Set aside: 3 attempts ended with a dead worker process."
    assert len(workers) == 2, "the third death was the last"
    assert drained(workers[-1]) == 0


def _runs(fleet: Fleet, job_id: str, attempt: int) -> bool:
    job = fleet.job(job_id)
    return job.state is JobState.RUNNING and job.attempt == attempt
