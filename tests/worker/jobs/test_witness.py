"""The witness of a job: real speech through the engine, on the bill, heard once however often a worker fails.

The words are a fake model's, so nobody said them. Fetches the published phoneme model once.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from ops.testbed.jobs import WorkerHarness
from spool.audit import audit
from spool.domain import Content, Diarization, JobState, Transcript
from spool.errors import StorageError
from spool.sounds.blocks import unpack_blocks
from spool.store import claim_job, diarize_job, load_passes, mark_deleted
from spool.store.audit import sounds
from worker.jobs import run_claimed

pytestmark = pytest.mark.integration

READER = Path(__file__).parents[3] / "samples" / "open" / "readers" / "reader-1.flac"


@pytest.fixture
def worker_settings() -> dict[str, object]:
    # The model whose words no dictionary has, and one whose words are English.
    return {"models": {"plain": "plain", "foreign": "accent=zxqv"}, "default_model": "plain"}


def spoken(harness: WorkerHarness) -> Path:
    samples, _ = soundfile.read(READER, dtype="float32")
    return harness.record("reading.wav", np.asarray(samples, np.float32))


def transcript_of(harness: WorkerHarness, job_id: str) -> Transcript:
    job = harness.job(job_id)
    assert job.state is JobState.DONE, (job.error_code, job.error_message)
    return Transcript.model_validate_json(harness.read(job.transcript_key or ""))


def assert_lawful(harness: WorkerHarness) -> None:
    assert harness.assert_bills_equal_busy_time() > 0
    report = audit(harness.db, harness.objects)
    assert {b.rule for b in report.breaches} <= {"source"}, report.breaches


def test_words_that_nobody_said_are_marked_in_transcript_and_job(harness: WorkerHarness) -> None:
    path = spoken(harness)
    plain = harness.submit(path)
    assert harness.run(plain) == "done"
    assert transcript_of(harness, plain).witness is None
    assert harness.job(plain).words_without_evidence is None

    job_id = harness.submit(path, witness=True)
    assert harness.run(job_id) == "done"
    transcript, job = transcript_of(harness, job_id), harness.job(job_id)
    assert [word.text for word in transcript.words] == [w.text for w in transcript_of(harness, plain).words]
    assert transcript.witness is not None
    assert transcript.witness.name == "hama-phonemes"
    assert all(segment.flagged for segment in transcript.segments)
    assert job.words_without_evidence == job.words == transcript.witness.words_without_evidence
    assert job.speech_without_words == transcript.uncovered_seconds
    assert job.speech_without_words > 0.5 * (job.audio_seconds or 0)
    assert [warning for warning in job.warnings or () if "does not support" in warning]
    assert job.fingerprint != harness.job(plain).fingerprint
    copy = harness.submit(path, reuse=True, witness=True)
    assert harness.run(copy) == "done"
    assert harness.job(copy).reused_from == job_id
    with harness.db.read() as tx:
        (heard,) = load_passes(tx, job_id, "witness")
        kept = [block for *_, block in sounds(tx, [job_id])]
        assert [block for *_, block in sounds(tx, [copy])] == kept
    assert heard.frames is None, "of use until the job ends"
    kept_frames = unpack_blocks([block or b"" for block in kept])
    assert kept_frames.seconds == pytest.approx(job.audio_seconds, abs=0.1)
    assert kept_frames.sounds(0, len(kept_frames.table)) > 3 * kept_frames.seconds
    saved_ns = sum(chunk.heard.engine_ns for chunk in harness.chunks(job_id))
    assert round(harness.cost(job_id).engine_seconds * 1e9) == saved_ns + heard.engine_ns
    assert_lawful(harness)


def test_a_witness_that_knows_none_of_the_words_abstains_and_says_so(harness: WorkerHarness) -> None:
    clips = [soundfile.read(each, dtype="float32")[0] for each in sorted(READER.parent.glob("*.flac"))]
    louder = np.concatenate([clip * gain for clip in clips for gain in (1.0, 2.0, 3.0)]).clip(-0.9, 0.9)
    job_id = harness.submit(harness.record("louder.wav", louder), model="foreign", witness=True)
    assert harness.run(job_id) == "done"
    transcript, job = transcript_of(harness, job_id), harness.job(job_id)
    assert transcript.witness is not None
    assert "English dictionary" in transcript.witness.abstained
    assert not any(segment.flagged for segment in transcript.segments)
    assert (job.words_without_evidence, job.speech_without_words) == (None, None)
    with harness.db.read() as tx:
        assert list(sounds(tx, [job_id])) == [], "a language that it does not know"
    assert [each for each in job.warnings or () if each.startswith("the witness judged nothing: only")]


def test_what_nobody_said_can_be_left_out(harness: WorkerHarness) -> None:
    path = spoken(harness)
    marked = harness.submit(path, witness=True)
    job_id = harness.submit(path, witness=True, drop_unsupported=True)
    assert [harness.run(each) for each in (marked, job_id)] == ["done", "done"]
    kept, left, job = transcript_of(harness, marked), transcript_of(harness, job_id), harness.job(job_id)
    assert (left.words, left.segments, left.text) == ((), (), "")
    assert [each.text for each in left.dropped] == [each.text for each in kept.segments]
    assert [each.words for each in left.dropped] == [kept.words]
    assert all(each.flagged for each in left.dropped)
    assert (job.words, job.words_without_evidence) == (0, harness.job(marked).words)
    assert job.fingerprint != harness.job(marked).fingerprint
    assert_lawful(harness)


def test_speakers_found_later_keep_the_verdicts(harness: WorkerHarness) -> None:
    job_id = harness.submit(spoken(harness), witness=True, diarization={"speakers": 1})
    assert harness.run(job_id) == "done"
    transcript = transcript_of(harness, job_id)
    assert {segment.speaker for segment in transcript.segments} == {"speaker_0"}
    assert all(segment.flagged for segment in transcript.segments)
    again = harness.submit(spoken(harness), witness=True)
    assert harness.run(again) == "done"
    with harness.db.begin() as tx:
        diarize_job(tx, again, Diarization.model_validate({"speakers": 1}))
    assert harness.run(again) == "done"
    assert transcript_of(harness, again).segments == transcript.segments
    assert harness.job(again).fingerprint == harness.job(job_id).fingerprint
    assert harness.job(again).words_without_evidence == harness.job(job_id).words_without_evidence
    assert_lawful(harness)


def test_an_attempt_that_follows_hears_nothing_twice(harness: WorkerHarness) -> None:
    job_id = harness.submit(spoken(harness), witness=True)
    with harness.db.begin() as tx:
        claim = claim_job(tx, job_id, harness.worker_id, harness.settings.lease_seconds)
    assert claim is not None
    refused, harness.objects.put_bytes = harness.objects.put_bytes, _refuse  # type: ignore[method-assign]
    assert run_claimed(harness.services, claim) == "handed back"
    harness.objects.put_bytes = refused  # type: ignore[method-assign]
    decoded = harness.decoded
    with harness.db.read() as tx:
        (saved,) = load_passes(tx, job_id, "witness")
    assert saved.frames is not None
    assert harness.run(job_id) == "done"
    assert harness.decoded == decoded, "neither words nor sounds"
    assert all(segment.flagged for segment in transcript_of(harness, job_id).segments)
    assert_lawful(harness)
    with harness.db.begin() as tx:
        mark_deleted(tx, [job_id], Content.TRANSCRIPT, "operator")
    with harness.db.read() as tx:
        assert load_passes(tx, job_id, "witness") == []
        assert list(sounds(tx, [job_id])) == []
    assert not [b for b in audit(harness.db, harness.objects).breaches if "traces" in b.message]


def _refuse(*_: object, **__: object) -> Any:
    raise StorageError("The object store does not answer.")
