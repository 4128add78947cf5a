"""A share that dies while a job reads from it holds the job's thread for no longer than a read may take."""

import threading
from collections.abc import Iterator

import pytest

from ops.testbed.jobs import WorkerHarness, speechlike
from spool.domain import JobState
from worker.audio.base import Block
from worker.audio.soundfile_reader import SoundfileReader

pytestmark = pytest.mark.integration


@pytest.fixture
def share(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """While the event is clear, no block after the fourth is read: no share here can be made to hang."""
    there = threading.Event()
    blocks = SoundfileReader.blocks

    def hang(self: SoundfileReader) -> Iterator[Block]:
        for number, block in enumerate(blocks(self)):
            if number == 4:
                there.wait()
            yield block

    monkeypatch.setattr(SoundfileReader, "blocks", hang)
    monkeypatch.setattr("spool.answering.ANSWER_SECONDS", 0.3)
    yield there
    there.set()


def test_a_job_is_handed_back_when_its_share_dies_in_the_middle(
    harness: WorkerHarness, share: threading.Event
) -> None:
    job_id = harness.submit(harness.record("a.wav", speechlike(60)))
    running = harness.start(job_id)
    assert running.end() == "handed back"
    job = harness.job(job_id)
    assert (job.state, job.attempt) == (JobState.QUEUED, 1)
    share.set()
    assert harness.run(job_id) == "done"
    assert harness.job(job_id).coverage == 1.0
    harness.assert_bills_equal_busy_time()
