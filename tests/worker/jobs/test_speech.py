"""The speech detector in jobs: what is decoded, what is dropped, what it costs, and what an attempt more
changes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ops.testbed.jobs import WorkerHarness, running_engine
from ops.testbed.waiting import until
from spool.domain import Transcript
from tests.worker.speech.sounds import Floats, conversation, music, noise
from worker.engine import Engine

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine(slots=2, utterances=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def interview() -> Floats:
    """Twice 43 s of speech, 20 s of music between, and noise louder than the level gate takes for silence."""
    talk = conversation()[:-80_000]
    return np.concatenate([talk, music(20.0), talk, noise(12.0, 0.03)])


def transcript_of(harness: WorkerHarness, job_id: str) -> Transcript:
    key = harness.job(job_id).transcript_key
    assert key is not None
    return Transcript.model_validate_json(harness.read(key))


def test_what_holds_no_speech_is_neither_decoded_nor_in_the_transcript(
    harness: WorkerHarness, interview: Floats
) -> None:
    path = harness.record("interview.wav", interview)
    listened, deaf = harness.submit(path, speech_detector=True), harness.submit(path, speech_detector=False)
    assert harness.run(listened) == harness.run(deaf) == "done"
    with_detector, without = transcript_of(harness, listened), transcript_of(harness, deaf)
    assert with_detector.coverage.ratio == 1
    assert with_detector.coverage.speech_seconds < without.coverage.speech_seconds - 28
    assert with_detector.coverage.speech is not None
    assert with_detector.coverage.speech > 0.98, "the fake model writes a word a second"
    labels = {span.label for span in with_detector.speech}
    assert labels == {"speech", "no_speech", "unclear"}
    assert without.speech == ()
    assert without.coverage.speech is None
    assert harness.cost(listened).wasted_ns == 0
    harness.assert_bills_equal_busy_time()


def test_words_in_a_short_noise_are_dropped_but_kept_in_the_record(harness: WorkerHarness) -> None:
    """Too short for the gate, so the engine hears it, and the fake model has words for anything."""
    job_id = harness.submit(harness.record("hiss.wav", noise(3.0, 0.03)), speech_detector=True)
    assert harness.run(job_id) == "done"
    transcript = transcript_of(harness, job_id)
    assert (transcript.text, transcript.words, transcript.segments) == ("", (), ())
    assert transcript.dropped
    assert all(word.doubtful for segment in transcript.dropped for word in segment.words)
    assert harness.job(job_id).words == 0


def test_listening_to_silence_costs_and_is_billed(harness: WorkerHarness) -> None:
    job_id = harness.submit(harness.record("noise.wav", noise(60.0, 0.03)), speech_detector=True)
    assert harness.run(job_id) == "done"
    assert harness.decoded == 0
    assert harness.cost(job_id).billable_ns == harness.assert_bills_equal_busy_time() > 0


def test_an_attempt_more_changes_nothing_and_its_second_listening_is_wasted(
    harness: WorkerHarness, gate: Path, interview: Floats
) -> None:
    path = harness.record("interview.wav", interview)
    gate.touch()
    whole = harness.submit(path, model="gated", speech_detector=True)
    assert harness.run(whole) == "done"
    gate.unlink()
    gate.with_suffix(".reached").unlink()
    broken = harness.submit(path, model="gated", speech_detector=True)
    running = harness.start(broken)
    until(gate.with_suffix(".reached").exists, "a batch at the gate")
    harness.draining.set()
    gate.touch()
    assert running.end() == "handed back"
    first = harness.chunks(broken)
    assert first
    harness.draining.clear()
    assert harness.run(broken) == "done"
    assert {chunk.attempt for chunk in harness.chunks(broken)} == {1, 2}, (
        "what was saved is not decoded again"
    )
    one, other = transcript_of(harness, whole), transcript_of(harness, broken)
    assert one.model_dump(exclude={"job"}) == other.model_dump(exclude={"job"})
    harness.assert_bills_equal_busy_time()


def test_the_detector_has_a_part_in_the_fingerprint(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = harness.record("hiss.wav", noise(3.0, 0.03))
    first = harness.submit(path, speech_detector=True)
    assert harness.run(first) == "done"
    monkeypatch.setattr("worker.jobs.runner.detector_digest", lambda: "other weights")
    second, deaf = harness.submit(path, speech_detector=True), harness.submit(path, speech_detector=False)
    assert harness.run(second) == harness.run(deaf) == "done"
    marks = {harness.job(job_id).fingerprint for job_id in (first, second, deaf)}
    assert len(marks) == 3
