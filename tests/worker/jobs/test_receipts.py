"""What a job that ends states for its receipt: whichever way it ends, whoever decoded its chunks."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from ops.testbed.jobs import WorkerHarness, running_engine, speechlike
from spool.bundled import bundled_folder
from spool.domain.options import JobOptions
from spool.domain.receipts import Statement, canonical, digest, receipts_of
from spool.domain.recognition import ChunkSpan, DecodedChunk
from spool.errors import InvalidRequest
from spool.store.archive.receipts import receipt_of
from spool.tables import receipts
from worker.engine.protocol import DEFAULT_LOADER
from worker.jobs.code import running_code
from worker.local.verify import choose_sample, report, verify

pytestmark = pytest.mark.integration


def statement_of(harness: WorkerHarness, job_id: str, attempt: int | None = None) -> Statement:
    with harness.db.read() as tx:
        text = receipt_of(tx, job_id, attempt).statement
    statement = Statement.model_validate_json(text)
    assert canonical(statement.model_dump(mode="json")).decode() == text
    return statement


@pytest.mark.parametrize("seconds", [5, 130], ids=["with others", "by itself"])
def test_a_job_that_ends_states_what_it_was_made_of(harness: WorkerHarness, seconds: int) -> None:
    path = harness.record("talk.wav", speechlike(seconds))
    job_id = harness.submit(path)
    assert harness.run(job_id) == "done"
    job, statement = harness.job(job_id), statement_of(harness, job_id)
    assert job.transcript_key is not None
    record = harness.read(job.transcript_key)
    assert (statement.job, statement.attempt, statement.words_from) == (job_id, 1, None)
    assert statement.audio_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert statement.transcript_sha256 == hashlib.sha256(record).hexdigest()
    assert statement.options_sha256 == digest(json.loads(record)["options"])
    assert statement.fingerprint == job.fingerprint
    assert statement.code == running_code()
    chunks = harness.chunks(job_id)
    assert statement.chunks == receipts_of(chunks)
    assert len(statement.chunks) == (1 if seconds == 5 else len(chunks))
    assert sum(each.core_end - each.core_start for each in statement.chunks) == seconds * 16_000


def test_a_reused_transcript_names_where_its_words_come_from(harness: WorkerHarness) -> None:
    path = harness.record("talk.wav", speechlike(5))
    first = harness.submit(path)
    harness.run(first)
    second = harness.submit(path, reuse=True)
    assert harness.run(second) == "done"
    statement = statement_of(harness, second)
    assert statement.words_from is not None
    assert statement.words_from.job == first
    assert statement.words_from.transcript_sha256 == statement_of(harness, first).transcript_sha256
    assert statement.chunks == ()
    assert statement.transcript_sha256 == harness.job(second).transcript_sha256


def test_a_job_that_fails_states_nothing(harness: WorkerHarness) -> None:
    (harness.folder / "noise.wav").write_bytes(b"no audio")
    job_id = harness.submit(harness.folder / "noise.wav")
    assert harness.run(job_id) == "failed"
    with harness.db.read() as tx:
        assert tx.execute(select(receipts)).all() == []


MODEL = str(bundled_folder("models/demo"))
RECORDING = next((bundled_folder("samples") / "demo-tdt" / "long").glob("*.*"))
Verified = tuple[Statement, dict[str, Any], Path]


@pytest.fixture(scope="module")
def real_engine() -> Any:
    with running_engine(slots=4, utterances=3, loader=DEFAULT_LOADER) as engine:
        yield engine


@pytest.fixture
def transcribed(make_harness: Callable[..., WorkerHarness], real_engine: Any) -> Verified:
    """A long recording, transcribed by the demo model in an engine of its own process."""
    harness = make_harness(real_engine, models={"demo-tdt": MODEL}, default_model="demo-tdt")
    path = harness.folder / RECORDING.name
    path.write_bytes(RECORDING.read_bytes())
    job_id = harness.submit(path, "demo-tdt", decoder="beam", nbest=2, speech_detector=True)
    assert harness.run(job_id) == "done"
    record = json.loads(harness.read(harness.job(job_id).transcript_key or ""))
    return statement_of(harness, job_id), record["options"], path


def test_chunks_decoded_again_are_equal_and_a_changed_one_is_named(transcribed: Verified) -> None:
    statement, given, path = transcribed
    options = JobOptions.model_validate(given)
    assert len(statement.chunks) > 2
    again = verify(statement, options, path, "100%", 1, model=MODEL)
    assert again.differences == []
    assert again.decoded == len(statement.chunks) == again.chunks
    assert again.notes == []
    equal = f"{again.chunks} of {again.chunks} decoded again are equal (float32/cpu, seed 1)."
    assert report(again).endswith(equal)

    # Other words in one chunk, another place for the next
    changed = list(statement.chunks)
    changed[1] = changed[1].model_copy(update={"sha256": "0" * 64})
    changed[2] = changed[2].model_copy(update={"end": changed[2].end - 1})
    forged = statement.model_copy(update={"chunks": tuple(changed), "numerics": "float16/gpu"})
    found = verify(forged, options, path, "100%", 1, model=MODEL)
    said = [(each.number, each.what.split()[0]) for each in found.differences]
    assert said == [(1, "other"), (2, "begins,")]
    assert "decoded in float16/gpu, this is float32/cpu" in found.notes[0]
    assert "chunk 1, " in report(found)
    other = statement.model.model_copy(update={"sha256": "0" * 64})
    forged = statement.model_copy(update={"model": other})
    with pytest.raises(InvalidRequest, match="weights are not those of the job"):
        verify(forged, options, path, "1", 1, model=MODEL)


def test_a_sample_is_drawn_by_its_seed() -> None:
    spans = [ChunkSpan(0, number, number, number + 1, number, number + 1) for number in range(1_000)]
    chunks = receipts_of(list(map(DecodedChunk, spans)))
    drawn = [choose_sample(chunks, "1%", seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert [len(choose_sample(chunks, each, 1)) for each in ("1%", "0.01%", "7", "100%", "9999")] == [
        10,
        1,
        7,
        1_000,
        1_000,
    ]
    for wrong in ("0%", "101%", "0", "-1", "1.5", "some", "1%%", "nan%", ""):
        with pytest.raises(InvalidRequest, match="--sample"):
            choose_sample(chunks, wrong, 1)
