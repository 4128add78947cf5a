"""Several short jobs claimed at once: each is a job of its own, whatever becomes of the others."""

import threading
from pathlib import Path

import pytest

from ops.testbed.jobs import WorkerHarness, speechlike
from ops.testbed.waiting import until
from spool.domain import JobState
from spool.store import AGED_EACH, cancel_job
from worker.jobs import run_next
from worker.service import MOST_JOBS, Appetite
from worker.service.appetite import SECONDS

pytestmark = pytest.mark.integration


def hungry(harness: WorkerHarness) -> None:
    harness.services.context.appetite.note_ending(1)


def states(harness: WorkerHarness, made: list[str]) -> list[JobState]:
    return [harness.job(job_id).state for job_id in made]


def test_an_appetite_follows_what_the_engine_needs_for_a_job() -> None:
    appetite = Appetite()
    assert appetite.jobs == 1
    appetite.note_ending(round(SECONDS * 1e9 / 100))
    assert appetite.jobs == MOST_JOBS
    for _ in range(50):
        appetite.note_ending(10**9)
    assert appetite.jobs == 1


def test_each_of_several_ends_as_its_own_recording_has_it(harness: WorkerHarness) -> None:
    files = [harness.record(f"{n}.wav", speechlike(2 + n / 10)) for n in range(MOST_JOBS + 2)]
    files[2].write_bytes(b"no audio in here")
    made = [harness.submit(path) for path in files]
    hungry(harness)
    assert run_next(harness.services, None) == "done"
    first = AGED_EACH - 1  # every tenth claim is for the job that has waited longest
    of_all = [JobState.DONE] * first
    of_all[2] = JobState.FAILED
    assert states(harness, made) == [*of_all, *[JobState.QUEUED] * (len(made) - first)]
    assert harness.services.context.job_gate.taken == 0
    while run_next(harness.services, None) is not None:
        pass
    assert states(harness, made[first:]) == [JobState.DONE] * (len(made) - first)
    assert harness.assert_bills_equal_busy_time() > 0
    assert {harness.job(job_id).attempt for job_id in made} == {1}


def test_a_cancel_ends_one_of_several_and_a_drain_hands_back_the_others(
    harness: WorkerHarness, gate: Path
) -> None:
    made = [
        harness.submit(harness.record(f"{n}.wav", speechlike(2 + n / 10)), model="gated") for n in range(4)
    ]
    hungry(harness)
    endings: list[str | None] = []
    thread = threading.Thread(target=lambda: endings.append(run_next(harness.services, None)))
    thread.start()
    until(lambda: states(harness, made) == [JobState.RUNNING] * 4, "four jobs in flight")
    until(gate.with_suffix(".reached").exists, "a batch at the gate")
    assert harness.services.context.job_gate.taken == 4
    with harness.db.begin() as tx:
        cancel_job(tx, made[3])
    harness.draining.set()
    gate.touch()
    thread.join()
    assert states(harness, made)[3] is JobState.CANCELLED
    assert set(states(harness, made)[:3]) <= {JobState.QUEUED, JobState.DONE}
    assert harness.services.context.job_gate.taken == 0
    harness.draining.clear()
    while run_next(harness.services, None) is not None:
        pass
    assert states(harness, made)[:3] == [JobState.DONE] * 3
    assert harness.assert_bills_equal_busy_time() > 0
