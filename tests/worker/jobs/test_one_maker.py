"""Law 11: one transcript has one maker and one source."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ops.testbed.jobs import WorkerHarness, running_engine, speechlike
from ops.testbed.waiting import until
from spool.domain import JobState
from worker.engine import Engine
from worker.models import ModelInfo, load_model

pytestmark = pytest.mark.integration
DEMO = Path(__file__).parents[3] / "models" / "demo"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine(slots=4, utterances=2) as engine:
        yield engine


@pytest.mark.parametrize(
    "other",
    [
        {"sha256": "1" * 64},
        {"files": {"weights": "0" * 64, "tokenizer": "1" * 64}},
        {"files": {"weights": "0" * 64, "config": "1" * 64}},
        {"dtype": "bfloat16"},
        {"device": "Device(gpu, 0)"},
    ],
)
def test_whatever_an_answer_depends_on_makes_another_maker(
    other: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = ModelInfo("demo", "0" * 64, files={"weights": "0" * 64}, dtype="float32", device="Device(cpu, 0)")
    assert replace(info, name="elsewhere").digest == info.digest
    assert replace(info, device="Device(cpu, 1)").digest == info.digest
    assert replace(info, **other).digest != info.digest  # type: ignore[arg-type]
    before = info.digest
    monkeypatch.setattr("worker.models.base.DECODER_VERSION", 99)
    assert info.digest != before


def test_a_folder_with_another_vocabulary_is_another_maker(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(DEMO, folder)
    first = load_model(folder).info
    config = json.loads((folder / "config.json").read_text())
    config["spoken_by"] = "somebody else"
    (folder / "config.json").write_text(json.dumps(config))
    second = load_model(folder).info
    assert (second.sha256, second.digest == first.digest) == (first.sha256, False)


def test_a_file_swapped_for_one_of_equal_size_between_attempts_is_refused(
    harness: WorkerHarness, gate: Path
) -> None:
    path = harness.record("long.wav", speechlike(200, 0.3))
    job_id = harness.submit(path, model="gated")
    running = harness.start(job_id)
    until(gate.with_suffix(".reached").exists, "a batch at the gate")
    harness.draining.set()
    gate.touch()
    assert running.end() == "handed back"
    harness.draining.clear()
    size = path.stat().st_size
    assert harness.record("long.wav", speechlike(200, 0.5)).stat().st_size == size
    assert harness.run(job_id) == "failed"
    job = harness.job(job_id)
    assert job.error_code == "source_changed"
    assert "since an earlier attempt read it" in (job.error_message or "")


def test_a_file_swapped_while_it_is_decoded_is_refused(harness: WorkerHarness, gate: Path) -> None:
    path = harness.record("long.wav", speechlike(200, 0.3))
    job_id = harness.submit(path, model="gated")
    running = harness.start(job_id)
    until(gate.with_suffix(".reached").exists, "a batch at the gate")
    harness.record("other.wav", speechlike(200, 0.5)).rename(path)
    gate.touch()
    assert running.end() == "failed"
    assert harness.job(job_id).error_code == "source_changed"


def test_a_file_that_was_only_touched_is_the_same(harness: WorkerHarness, gate: Path) -> None:
    path = harness.record("long.wav", speechlike(60))
    job_id = harness.submit(path, model="gated")
    running = harness.start(job_id)
    until(gate.with_suffix(".reached").exists, "a batch at the gate")
    path.touch()
    gate.touch()
    assert running.end() == "done"
    assert harness.job(job_id).state is JobState.DONE
