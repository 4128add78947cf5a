"""A job that replaces a stretch: real speech through the demo model, only the stretch decoded and paid."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from sqlalchemy import select

from ops.testbed.jobs import WorkerHarness, running_engine
from spool.audit import audit
from spool.domain import AskedOptions, Content, Diarization, JobState, Stretch, Transcript, WholeRecord, Word
from spool.domain.options import JobOptions
from spool.domain.receipts import Origin, Statement, receipts_of
from spool.errors import Deleted, InvalidRequest, StorageError
from spool.store import NewEdit, NewJob, add_edit, claim_job, diarize_job, get_job, mark_deleted, rerun_job
from spool.store.archive.receipts import receipt_of
from spool.tables import cost_lines
from worker.engine import DEFAULT_LOADER, Engine
from worker.jobs import run_claimed
from worker.local.verify import verify
from worker.segmentation.stretch import StretchCore

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
READER = ROOT / "samples" / "open" / "readers" / "reader-1.flac"
START, END = 21.37, 38.904


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine(loader=DEFAULT_LOADER) as engine:
        yield engine


@pytest.fixture
def worker_settings() -> dict[str, object]:
    return {"models": {"demo-tdt": str(ROOT / "models" / "demo")}, "default_model": "demo-tdt"}


def transcribed(harness: WorkerHarness, width: int = 1, **options: Any) -> str:
    samples, _ = soundfile.read(READER, dtype="float32")
    reading = np.tile(np.asarray(samples, np.float32), 12)
    stereo = np.stack([reading, np.roll(reading, 30_000)], axis=1)[:, :width]
    job_id = harness.submit(harness.record("reading.wav", stereo), model="demo-tdt", **options)
    assert harness.run(job_id) == "done"
    return job_id


def submit_stretch(harness: WorkerHarness, base: str, start: float, end: float, **options: object) -> str:
    with harness.db.begin() as tx:
        job = get_job(tx, base)
        asked = AskedOptions.model_validate(
            {"model": "demo-tdt", "speech_detector": False, "channels": job.options.channels, **options}
        )
        stretch = Stretch(job=base, start=start, end=end)
        new = NewJob(job.source, asked.job_options(), job.name, stretch=stretch)
        return rerun_job(tx, job, new)[0].id


def transcript_of(harness: WorkerHarness, job_id: str) -> Transcript:
    job = harness.job(job_id)
    assert job.state is JobState.DONE, (job.error_code, job.error_message)
    return Transcript.model_validate_json(harness.read(job.transcript_key or ""))


def outside(words: tuple[Word, ...], start: float, end: float) -> list[Word]:
    return [word for word in words if not start <= (word.start + word.end) / 2 < end]


def assert_lawful(harness: WorkerHarness) -> None:
    assert harness.assert_bills_equal_busy_time() > 0
    report = audit(harness.db, harness.objects)
    assert {b.rule for b in report.breaches} <= {"source"}, report.breaches


def verify_stretch(harness: WorkerHarness, stated: Statement, record: Transcript) -> None:
    """Its chunks are cut and decoded again as the receipt says; of another stretch they are not."""
    options = JobOptions.model_validate(record.options)
    assert record.stretch is not None
    model, path = str(ROOT / "models" / "demo"), harness.folder / "reading.wav"
    core = StretchCore.of(record.stretch, record.audio.duration)
    again = verify(stated, options, path, "100%", 1, model=model, core=core)
    assert (again.decoded, again.chunks, again.differences) == (len(stated.chunks), len(stated.chunks), [])
    later = core._replace(first=core.first + 16_000)
    assert verify(stated, options, path, "1", 1, model=model, core=later).differences
    with pytest.raises(InvalidRequest, match="Nothing was decoded for this receipt"):
        verify(stated.model_copy(update={"chunks": ()}), options, path, "1", 1, model=model)


@pytest.mark.parametrize(("channels", "options"), [(1, {}), (2, {"channels": "separate"})])
def test_the_same_model_finds_the_same_words_and_only_the_stretch_is_paid(
    harness: WorkerHarness, channels: int, options: dict[str, object]
) -> None:
    base = transcribed(harness, channels, **options)
    job_id = submit_stretch(harness, base, START, END)
    assert harness.run(job_id) == "done"
    before, after = transcript_of(harness, base), transcript_of(harness, job_id)
    kept = [word.model_copy(update={"end": word.start}) for word in outside(before.words, START, END)]
    left = [word.model_copy(update={"end": word.start}) for word in after.words]
    assert [word for word in left if word in kept] == kept, "nothing outside is lost or moved"
    counts = len(before.words), len(after.words)
    assert abs(counts[1] - counts[0]) <= 3 * channels, "chunks are cut at other places"
    assert after.stretch == Stretch(job=base, start=START, end=END)
    assert (after.coverage, after.audio.duration) == (before.coverage, before.audio.duration)
    cores = [(each.span.channel, each.span.core_start, each.span.core_end) for each in harness.chunks(job_id)]
    for channel in range(channels):
        own = [core for core in cores if core[0] == channel]
        assert (own[0][1], own[-1][2]) == (round(START * 16_000), round(END * 16_000))
    with harness.db.read() as tx:
        paid = tx.scalars(select(cost_lines.c.audio_samples).where(cost_lines.c.job_id == job_id)).all()
    assert sum(paid) == channels * (round(END * 16_000) - round(START * 16_000))
    job, first = harness.job(job_id), harness.job(base)
    assert job.done_seconds == pytest.approx(END - START)
    assert job.audio_seconds == first.audio_seconds
    assert job.fingerprint != first.fingerprint
    with harness.db.read() as tx:
        stated = Statement.model_validate_json(receipt_of(tx, job_id).statement)
    assert stated.words_from == Origin(job=base, transcript_sha256=first.transcript_sha256 or "")
    assert stated.chunks == receipts_of(harness.chunks(job_id))
    verify_stretch(harness, stated, after)
    assert_lawful(harness)


def test_corrections_outside_are_kept_and_those_inside_give_way(harness: WorkerHarness) -> None:
    base = transcribed(harness)
    record = transcript_of(harness, base)
    inside = next(at for at, word in enumerate(record.words) if word.start > START + 3)
    last = len(record.words) - 1
    job_id = submit_stretch(harness, base, START, END, decoder="beam")
    for at, text in ((0, "Corrected"), (inside, "Inside"), (last, "Last")):
        with harness.db.begin() as tx:
            add_edit(tx, base, WholeRecord(record), NewEdit(at, at, text, None, last, "Bo"))
    assert harness.run(job_id) == "done"
    words = transcript_of(harness, job_id).words
    assert [word.text for word in words if word.corrected] == ["Corrected", "Last"]
    assert transcript_of(harness, base) == record
    again = submit_stretch(harness, job_id, 0.0, 5.0)
    assert harness.run(again) == "done"
    assert [word.text for word in transcript_of(harness, again).words if word.corrected] == ["Last"]
    assert_lawful(harness)


@pytest.mark.parametrize(("start", "end"), [(0.0, 3.0), (60.0, None), (10.0, 10.3), (0.0, None)])
def test_stretches_at_the_ends_short_ones_and_the_whole(
    harness: WorkerHarness, start: float, end: float | None
) -> None:
    base = transcribed(harness)
    before = transcript_of(harness, base)
    until = before.audio.duration if end is None else end
    job_id = submit_stretch(harness, base, start, until)
    assert harness.run(job_id) == "done"
    after = transcript_of(harness, job_id)
    assert [w.text for w in outside(after.words, start, until)] == [
        w.text for w in outside(before.words, start, until)
    ]
    assert abs(len(after.words) - len(before.words)) <= 2
    assert_lawful(harness)


def test_speakers_stay_and_can_be_found_again(harness: WorkerHarness) -> None:
    base = transcribed(harness, diarization={"speakers": 1})
    job_id = submit_stretch(harness, base, START, END)
    assert harness.run(job_id) == "done"
    after = transcript_of(harness, job_id)
    assert {word.speaker for word in after.words} == {"speaker_0"}
    assert after.speakers[0].words == len(after.words)
    assert [each["label"] for each in harness.job(job_id).speakers or ()] == ["speaker_0"]
    with harness.db.begin() as tx:
        diarize_job(tx, job_id, Diarization.model_validate({"speakers": 1}))
    assert harness.run(job_id) == "done"
    assert [w.text for w in transcript_of(harness, job_id).words] == [w.text for w in after.words]
    assert_lawful(harness)


def test_an_attempt_that_follows_decodes_nothing_twice(make_harness: Callable[..., WorkerHarness]) -> None:
    harness = make_harness(lease_seconds=1.5, heartbeat_seconds=0.5)
    base = transcribed(harness)
    job_id = submit_stretch(harness, base, 5.0, 62.0)
    with harness.db.begin() as tx:
        claim = claim_job(tx, job_id, harness.worker_id, harness.settings.lease_seconds)
    assert claim is not None
    decoded, busy = harness.decoded, len(harness.chunks(job_id))
    store = harness.objects.put_bytes
    harness.objects.put_bytes = _refuse  # type: ignore[method-assign]
    assert run_claimed(harness.services, claim) == "handed back"
    harness.objects.put_bytes = store  # type: ignore[method-assign]
    chunks = harness.chunks(job_id)
    assert len(chunks) > 1 > busy
    assert harness.decoded == decoded + len(chunks)
    assert harness.run(job_id) == "done"
    assert harness.decoded == decoded + len(chunks)
    assert_lawful(harness)


def test_a_transcript_that_was_deleted_meanwhile_fails_the_job_with_a_reason(harness: WorkerHarness) -> None:
    base = transcribed(harness)
    job_id = submit_stretch(harness, base, START, END)
    with harness.db.begin() as tx:
        mark_deleted(tx, [base], Content.TRANSCRIPT, "operator")
    assert harness.run(job_id) == "failed"
    job = harness.job(job_id)
    assert job.error_code == Deleted.code
    assert base in (job.error_message or "")


def _refuse(*_: object, **__: object) -> Any:
    raise StorageError("The object store does not answer.")
