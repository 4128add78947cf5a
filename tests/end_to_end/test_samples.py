"""The samples through the real worker command and the demo model: law 7 with real speech.

A transcript depends on the recording, the model and the options alone: not on the batch, nor on an engine
that was killed in the middle.
"""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ops.testbed.processes import REAL, Fleet, drained, engine_of
from ops.testbed.waiting import PATIENCE, until
from spool.domain import JobState, Transcript
from spool.objects import object_store

SAMPLES = Path(__file__).parents[2] / "samples" / "demo-tdt"
FILES = [json.loads(line)["file"] for line in (SAMPLES / "manifest.jsonl").read_text().splitlines()]


pytestmark = pytest.mark.timeout(600)  # both fleets may take their PATIENCE


@pytest.fixture
def make_fleet(tmp_path: Path, sqlite_url: str, redis_url: str) -> Iterator[Callable[..., Fleet]]:
    fleets = []

    def make(**environment: str) -> Fleet:
        settings = {"SPOOL_SOURCE_ROOTS": str(SAMPLES), "SPOOL_LEASE_SECONDS": "30", **environment}
        fleets.append(Fleet(tmp_path, sqlite_url, redis_url, **settings))
        return fleets[-1]

    yield make
    for fleet in fleets:
        fleet.close()


def transcripts(fleet: Fleet, jobs: dict[str, str]) -> dict[str, list[tuple[str, float, float, int]]]:
    objects = object_store(fleet.settings)
    by_name = {}
    for name, job_id in jobs.items():
        job = fleet.job(job_id)
        assert (job.state, job.coverage, job.error_message) == (JobState.DONE, 1.0, None)
        assert job.transcript_key is not None
        with objects.open(job.transcript_key) as stream:
            words = Transcript.model_validate_json(stream.read()).words
        by_name[name] = [(word.text, word.start, word.end, word.channel) for word in words]
    return by_name


@pytest.mark.long
def test_transcripts_do_not_depend_on_the_batch_or_on_a_killed_engine(
    make_fleet: Callable[..., Fleet],
) -> None:
    fleet = make_fleet()
    together = {name: fleet.submit(SAMPLES / name, "demo-tdt") for name in FILES}
    worker = fleet.start(*REAL)
    until(lambda: any(fleet.chunks(job_id) for job_id in together.values()), "the first chunk saved")
    os.kill(engine_of(worker.pid), signal.SIGKILL)
    until(lambda: fleet.ended(together.values()), "all jobs ended", PATIENCE)
    assert drained(worker) == 0

    one_by_one = make_fleet(SPOOL_MAX_BATCH="1", SPOOL_CONCURRENCY="1", SPOOL_WORKER_NAME="solo")
    alone = {name: one_by_one.submit(SAMPLES / name, "demo-tdt") for name in FILES}
    worker = one_by_one.start(*REAL, name="solo")
    until(lambda: one_by_one.ended(alone.values()), "all jobs ended", PATIENCE)
    assert drained(worker) == 0

    first = transcripts(fleet, together)
    assert first == transcripts(one_by_one, alone)
    assert sum(len(words) for words in first.values()) > len(FILES)
    assert {fleet.job(job_id).attempt for job_id in together.values()} == {1}
    assert fleet.billed_ns() == sum(row.engine_busy_ns for row in fleet.workers())
