"""What a job leaves out of its texts, from option to file, over SQLite and a real engine process."""

from pathlib import Path
from typing import Any

import pytest

from ops.testbed.jobs import WorkerHarness, speechlike
from spool.audit import audit
from spool.domain import JobState, Transcript
from spool.domain.ledger import NOTHING

pytestmark = pytest.mark.integration


@pytest.fixture
def worker_settings(gate: Path) -> dict[str, Any]:
    return {"models": {"hesitates": "hesitates"}, "default_model": "hesitates"}


def transcript_of(harness: WorkerHarness, job_id: str) -> Transcript:
    job = harness.job(job_id)
    assert job.state is JobState.DONE, job.error_message
    assert job.transcript_key is not None
    return Transcript.model_validate_json(harness.read(job.transcript_key))


def test_fillers_are_left_out_of_texts_and_kept_in_the_record(harness: WorkerHarness) -> None:
    path = harness.record("a.wav", speechlike(6))
    plain, omitting = (
        harness.submit(path, "hesitates", language="en", reuse=True, **options)
        for options in ({}, {"verbatim": "omit"})
    )
    assert [harness.run(job_id) for job_id in (plain, omitting)] == ["done", "done"]
    before, after = transcript_of(harness, plain), transcript_of(harness, omitting)
    assert harness.job(omitting).reused_from == plain, "no word is decoded again"
    assert harness.cost(omitting) == NOTHING
    assert "um" in before.text.split()
    assert not any(word.disfluency or word.omitted for word in before.words)
    assert [(word.text, word.start) for word in after.words] == [
        (word.text, word.start) for word in before.words
    ]
    assert [word.omitted for word in after.words] == [word.text == "um" for word in after.words]
    assert (before.options["verbatim"], after.options["verbatim"]) == ("keep", "omit")
    key = harness.job(omitting).transcript_key
    assert key is not None
    for form in ("txt", "srt", "vtt"):
        text = harness.read(key.replace("json", form)).decode()
        assert "level" in text
        assert "um" not in text.split()
    assert harness.job(omitting).words == len(before.words)
    assert audit(harness.db, harness.objects).breaches == []


def test_a_model_of_unknown_language_leaves_nothing_out(harness: WorkerHarness) -> None:
    job_id = harness.submit(harness.record("a.wav", speechlike(6)), "hesitates", verbatim="omit")
    assert harness.run(job_id) == "done"
    assert "um" in transcript_of(harness, job_id).text.split()
    (warning,) = harness.job(job_id).warnings or []
    assert warning.startswith("verbatim: nothing is marked where the language is unknown")
