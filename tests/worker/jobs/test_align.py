"""Alignment as a job: the words of the local command, on the bill, none heard twice."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from ops.testbed.jobs import WorkerHarness, running_engine
from spool import failpoints
from spool.audit import audit
from spool.domain import Content, JobState, Transcript, Typescript, read_typescript
from spool.errors import NotFound, StorageError
from spool.store import mark_deleted, typescript_of
from worker.engine import DEFAULT_LOADER, Engine
from worker.local import align_file
from worker.models import load_model

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "models" / "demo"
READERS = sorted((ROOT / "samples" / "open" / "readers").glob("*.flac"))[:3]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine(loader=DEFAULT_LOADER) as engine:
        yield engine


@pytest.fixture
def worker_settings() -> dict[str, object]:
    models = {"demo": str(DEMO), "tdt": str(ROOT / "tests" / "golden" / "tdt")}
    return {"models": models, "default_model": "demo"}


@pytest.fixture(scope="module")
def texts() -> list[str]:
    rows = map(json.loads, (ROOT / "samples" / "open" / "manifest.jsonl").read_text().splitlines())
    by_name = {Path(row["file"]).name: row["text"] for row in rows}
    return [by_name[path.name] for path in READERS]


@pytest.fixture(scope="module")
def samples() -> np.ndarray:
    """Three readers, each twice, a second apart: several chunks."""
    pause = np.zeros(16_000, np.float32)
    return np.concatenate([part for path in READERS * 2 for part in (soundfile.read(path)[0], pause)])


def script_of(texts: list[str]) -> str:
    return "\n".join(f"{name}: {text}" for name, text in zip("ABCABC", texts * 2, strict=True))


def transcript_of(harness: WorkerHarness, job_id: str) -> Transcript:
    job = harness.job(job_id)
    assert job.state is JobState.DONE, (job.error_code, job.error_message)
    return Transcript.model_validate_json(harness.read(job.transcript_key or ""))


def fail_once(place: str) -> None:
    if place == "align.placing":
        failpoints.install(None)
        raise StorageError("The failpoint was reached.")


def test_a_job_aligns_as_the_command_does_and_hears_no_chunk_twice(
    harness: WorkerHarness, texts: list[str], samples: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape, script = harness.record("tape.wav", samples), script_of(texts)
    job_id = harness.submit(tape, "demo", align={"text": script})
    monkeypatch.setattr(failpoints, "_act", fail_once)
    assert harness.run(job_id) == "handed back"
    heard, saved = harness.decoded, harness.chunks(job_id)
    assert heard >= 1
    assert len(saved) >= 2
    assert all(chunk.emissions for chunk in saved)
    assert harness.run(job_id) == "done"
    assert harness.decoded == heard, "every chunk was kept"

    result, job = transcript_of(harness, job_id), harness.job(job_id)
    local = align_file(load_model(DEMO), tape, Typescript(read_typescript(script.encode(), "script")))
    assert result.words == local.words
    assert result.segments == local.segments
    assert result.alignment == local.alignment
    assert result.alignment is not None
    assert result.alignment.belongs
    assert [speaker.name for speaker in result.speakers] == ["A", "B", "C"]
    assert result.text == " ".join(texts * 2)
    assert (job.words, job.warnings) == (len(result.words), None)
    assert [each["name"] for each in job.speakers or ()] == ["A", "B", "C"]
    assert [(chunk.emissions, chunk.heard.words) for chunk in harness.chunks(job_id)] == [
        (None, chunk.heard.words) for chunk in saved
    ]
    assert harness.assert_bills_equal_busy_time() > 0
    assert {each.rule for each in audit(harness.db, harness.objects).breaches} <= {"source"}


def test_a_text_of_another_tape_ends_done_with_a_warning(harness: WorkerHarness, texts: list[str]) -> None:
    tape = harness.record("tape.wav", soundfile.read(READERS[0], dtype="float32")[0])
    job_id = harness.submit(tape, "demo", align={"text": texts[1]})
    assert harness.run(job_id) == "done"
    result = transcript_of(harness, job_id)
    assert result.alignment is not None
    assert not result.alignment.belongs
    assert "does not seem to belong" in (harness.job(job_id).warnings or [""])[0]
    with harness.db.begin() as tx:
        mark_deleted(tx, [job_id], Content.TRANSCRIPT, "anybody")
        with pytest.raises(NotFound):
            typescript_of(tx, job_id, result.alignment.sha256)


@pytest.mark.parametrize(
    ("model", "text", "reason"),
    [
        ("tdt", "any words", "no CTC head"),
        ("demo", "word " * 2000, "too many for"),
        ("demo", "☃1 ☃2", "tokens for none"),
    ],
)
def test_what_cannot_be_aligned_fails_with_a_reason(
    harness: WorkerHarness, model: str, text: str, reason: str
) -> None:
    tape = harness.record("tape.wav", soundfile.read(READERS[0], dtype="float32")[0])
    job_id = harness.submit(tape, model, align={"text": text})
    assert harness.run(job_id) == "failed"
    job = harness.job(job_id)
    assert job.error_code == "invalid_request"
    assert reason in (job.error_message or "")
    assert harness.decoded == 0
