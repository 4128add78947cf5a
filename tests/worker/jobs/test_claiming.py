"""When a worker claims nothing."""

from collections.abc import Iterator

import pytest

from ops.testbed.jobs import WorkerHarness, running_engine, speechlike
from spool.domain import JobState
from worker.engine import Engine
from worker.jobs import run_next

pytestmark = pytest.mark.integration


@pytest.fixture
def engine() -> Iterator[Engine]:
    with running_engine() as engine:
        yield engine


def test_a_worker_whose_engine_is_stopped_leaves_the_job_in_the_queue(harness: WorkerHarness) -> None:
    job_id = harness.submit(harness.record("talk.wav", speechlike(2)))
    harness.engine.close()
    assert run_next(harness.services, job_id) is None
    job = harness.job(job_id)
    assert (job.state, job.attempt) == (JobState.QUEUED, 0)
