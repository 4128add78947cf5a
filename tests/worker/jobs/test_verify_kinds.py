"""Receipts of live sessions and of aligned texts: heard again, and what was changed is named."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from ops.testbed.jobs import WorkerHarness, running_engine
from spool.domain import Listening, LogRecord, Source, Transcript, record_key
from spool.domain.options import JobOptions
from spool.domain.receipts import ChunkReceipt, Statement
from spool.errors import InvalidRequest
from spool.ids import new_id
from spool.store import NewJob, create_job
from spool.store.archive.receipts import receipt_of
from worker.engine import DEFAULT_LOADER, Engine
from worker.jobs import live_desk, run_next
from worker.jobs.live import decoding
from worker.local.verify import Verification, report, verify

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[3]
STREAMING = ROOT / "tests" / "golden" / "streaming"
MODELS = {"demo": str(ROOT / "models" / "demo"), "stream": str(STREAMING / "model.nemo")}
READERS = sorted((ROOT / "samples" / "open" / "readers").glob("*.flac"))[:3]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine(loader=DEFAULT_LOADER) as engine:
        yield engine


@pytest.fixture
def worker_settings() -> dict[str, object]:
    return {"models": MODELS, "default_model": "demo"}


def ended(harness: WorkerHarness, job_id: str) -> tuple[Statement, Transcript]:
    with harness.db.read() as tx:
        statement = Statement.model_validate_json(receipt_of(tx, job_id).statement)
    return statement, Transcript.model_validate_json(harness.read(harness.job(job_id).transcript_key or ""))


def forge(statement: Statement, number: int, **changes: object) -> Statement:
    chunks: list[ChunkReceipt] = list(statement.chunks)
    chunks[number] = chunks[number].model_copy(update=changes)
    return statement.model_copy(update={"chunks": tuple(chunks)})


def named(found: Verification) -> list[tuple[int, str]]:
    return [(each.number, each.what.split()[0]) for each in found.differences]


# --- aligned texts ------------------------------------------------------------------------------------------


def test_an_aligned_text_is_aligned_again(harness: WorkerHarness) -> None:
    rows = map(json.loads, (ROOT / "samples" / "open" / "manifest.jsonl").read_text().splitlines())
    texts = {Path(row["file"]).name: row["text"] for row in rows}
    script = "\n".join(
        f"{name}: {texts[path.name]}" for name, path in zip("ABC" * 2, READERS * 2, strict=True)
    )
    pause = np.zeros(16_000, np.float32)
    samples = [part for path in READERS * 2 for part in (soundfile.read(path, dtype="float32")[0], pause)]
    path = harness.record("tape.wav", np.concatenate(samples))
    job_id = harness.submit(path, "demo", align={"text": script})
    assert harness.run(job_id) == "done"
    statement, record = ended(harness, job_id)
    assert len(statement.chunks) > 1
    options = JobOptions.model_validate(record.options)

    def again(stated: Statement, sample: str = "100%", given: Transcript | None = record) -> Verification:
        return verify(stated, options, path, sample, 1, model=MODELS["demo"], aligned=given)

    whole = again(statement)
    assert (whole.decoded, whole.differences, whole.notes) == (len(statement.chunks), [], [])
    assert "--sample 100% compares them too" in again(statement, "1").notes[0]
    assert named(again(forge(statement, 1, sha256="0" * 64))) == [(1, "other")]
    first, *rest = record.words
    moved = (first.model_copy(update={"end": first.end + 0.02}), *rest)
    found = again(statement, given=record.model_copy(update={"words": moved}))
    assert named(found) == [(0, "words")]
    assert "placed elsewhere than in the transcript" in report(found)
    other = (first.model_copy(update={"text": "Another"}), *rest)
    with pytest.raises(InvalidRequest, match="not the text that the job aligned"):
        again(statement, given=record.model_copy(update={"words": other}))
    with pytest.raises(InvalidRequest, match="which is in its transcript"):
        again(statement, given=None)


# --- live sessions ------------------------------------------------------------------------------------------


@pytest.fixture
def live(make_harness: Callable[..., WorkerHarness]) -> WorkerHarness:
    harness = make_harness()
    object.__setattr__(harness.services, "live", live_desk(harness.settings, harness.engine))
    return harness


def pcm(number: int, rate: int, channels: int) -> bytes:
    import soxr

    """The beginning of a golden recording."""
    samples = soundfile.read(STREAMING / f"{number}.flac", dtype="float32", stop=24_000)[0]
    wide = samples if rate == 16_000 else soxr.resample(samples, 16_000, rate)
    return np.repeat((wide * 32767).astype("<i2")[:, None], channels, axis=1).tobytes()


def listened(harness: WorkerHarness, audio: bytes, piece: int, **asked: object) -> str:
    """A session that hears the audio in pieces, with a finalize in its middle."""
    job_id = new_id("job")
    listening = Listening.model_validate({"silence_ms": 240, "att_context": (70, 1), **asked})
    options = JobOptions(model="stream", head="rnnt", live=listening, speech_detector=False)
    with harness.db.begin() as tx:
        source = Source("live", f"jobs/{job_id}/source")
        create_job(tx, NewJob(source, options, "live.wav", pool=None, id=job_id))
    records = [LogRecord("audio", audio[at : at + piece]) for at in range(0, len(audio), piece)]
    records.insert(len(records) // 2, LogRecord("finalize"))
    for number, record in enumerate([*records, LogRecord("end", b"closed")]):
        harness.objects.put_bytes(record_key(job_id, number), record.encode())
    assert run_next(harness.services, None, live=True) == "done"
    return job_id


Again = Callable[[Statement], Verification]


def heard(live: WorkerHarness, rate: int, channels: int) -> tuple[Statement, Again]:
    """The receipt of a session of several segments, and what compares one with its recording."""
    audio = b"".join(pcm(number, rate, channels) for number in (1, 2, 1))
    job_id = listened(live, audio, 602 * channels, sample_rate=rate, channels=channels)
    statement, record = ended(live, job_id)
    options = JobOptions.model_validate(record.options)
    path = live.folder / "session.wav"
    path.write_bytes(live.read(live.job(job_id).source.uri))
    tails = [chunk.tail for chunk in live.chunks(job_id)]
    assert None in tails
    assert tails.count(()) > 1
    return statement, lambda stated: verify(stated, options, path, "1", 1, model=MODELS["stream"])


@pytest.mark.parametrize(("rate", "channels"), [pytest.param(16_000, 1, marks=pytest.mark.long), (44_100, 2)])
def test_a_live_session_is_heard_again_from_its_recording(
    live: WorkerHarness, monkeypatch: pytest.MonkeyPatch, rate: int, channels: int
) -> None:
    monkeypatch.setattr(decoding, "SEGMENT_SECONDS", 1.5)  # segments end at pauses, too
    statement, again = heard(live, rate, channels)
    whole = again(statement)
    assert whole.differences == []
    assert whole.decoded == len(statement.chunks)
    assert "all of them were decoded" in whole.notes[0]


def test_what_was_changed_in_the_receipt_of_a_session_is_named(
    live: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "SEGMENT_SECONDS", 1.5)
    statement, again = heard(live, 16_000, 1)
    last = len(statement.chunks) - 1
    for number in (0, last // 2, last):
        assert named(again(forge(statement, number, sha256="0" * 64))) == [(number, "other")]
    moved = again(forge(statement, 1, core_end=statement.chunks[1].core_end + 160))
    assert named(moved)[0] == (1, "begins,")
    shorter = statement.model_copy(update={"chunks": statement.chunks[:-1]})
    assert named(again(shorter))[-1] == (last, "not")


def test_a_recording_of_another_kind_is_refused(live: WorkerHarness) -> None:
    job_id = listened(live, pcm(1, 16_000, 1), 8000)
    statement, record = ended(live, job_id)
    options = JobOptions.model_validate(record.options)
    path = live.folder / "other.wav"
    soundfile.write(path, np.zeros(800), 8_000)
    with pytest.raises(InvalidRequest, match="rate and channels are not those"):
        verify(statement, options, path, "1", 1, model=MODELS["stream"])
    with pytest.raises(InvalidRequest, match="not the recording of a live session"):
        verify(statement, options, READERS[0], "1", 1, model=MODELS["stream"])
