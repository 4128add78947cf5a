"""A recording that was cut off: what is there is transcribed and the job says what is missing, or it fails.

SQLite with a real engine.
"""

from pathlib import Path

import pytest
import soundfile

from ops.testbed.fake_models import RATE
from ops.testbed.jobs import WorkerHarness, speechlike
from spool.audit import audit
from spool.domain import JobState, Transcript

pytestmark = pytest.mark.integration


def cut(harness: WorkerHarness, name: str) -> Path:
    path = harness.folder / name
    soundfile.write(path, speechlike(40), RATE)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 6 // 10])
    return path


@pytest.mark.parametrize("name", ["master.wav", "master.flac", "master.aiff"])
def test_what_is_there_is_transcribed_and_marked(harness: WorkerHarness, name: str) -> None:
    job_id = harness.submit(cut(harness, name))
    assert harness.run(job_id) == "done"
    job = harness.job(job_id)
    assert (job.state, job.complete, job.expected_seconds) == (JobState.DONE, False, 40.0)
    assert job.audio_seconds is not None
    assert 20 < job.audio_seconds < 30
    assert job.missing_seconds == pytest.approx(40.0 - job.audio_seconds, abs=0.001)
    record = Transcript.model_validate_json(harness.read(job.transcript_key or ""))
    assert (record.audio.complete, record.audio.missing_seconds) == (False, job.missing_seconds)
    assert record.coverage.ratio == 1.0, "of what was there"
    report = audit(harness.db, harness.objects)
    assert (report.breaches, report.cut_off, report.unstated) == ([], 1, 0)


def test_a_whole_recording_is_complete(harness: WorkerHarness) -> None:
    job_id = harness.submit(harness.record("whole.wav", speechlike(30)))
    assert harness.run(job_id) == "done"
    job = harness.job(job_id)
    assert (job.complete, job.expected_seconds, job.missing_seconds) == (True, 30.0, 0.0)


@pytest.mark.parametrize("name", ["master.wav", "master.flac"])
def test_who_wants_nothing_cut_gets_a_failure(harness: WorkerHarness, name: str) -> None:
    decoded = harness.decoded
    job_id = harness.submit(cut(harness, name), on_truncated="fail")
    assert harness.run(job_id) == "failed"
    job = harness.job(job_id)
    assert job.error_code == "audio_truncated"
    assert f"{name}: the file was cut off: its header states 40.000 s, but " in (job.error_message or "")
    if name == "master.wav":
        assert harness.decoded == decoded, "its header and its size say so before anything is decoded"
    harness.assert_bills_equal_busy_time()


def test_a_reused_transcript_is_marked_and_refused_alike(harness: WorkerHarness) -> None:
    path = cut(harness, "master.wav")
    assert harness.run(harness.submit(path)) == "done"
    again = harness.submit(path, reuse=True)
    assert harness.run(again) == "done"
    assert harness.job(again).reused_from is not None
    assert harness.job(again).complete is False
    assert harness.run(harness.submit(path, reuse=True, on_truncated="fail")) == "failed"
