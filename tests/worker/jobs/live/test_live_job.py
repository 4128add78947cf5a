"""A live session as a job: its log becomes chunks, a bill, a recording and a transcript, whoever dies."""

import os
import signal
import wave
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from ops.testbed.jobs import WorkerHarness
from ops.testbed.rows import let_lapse
from ops.testbed.waiting import until
from spool.domain import (
    JobOptions,
    JobState,
    Listening,
    LogParts,
    LogRecord,
    Source,
    Transcript,
    log_prefix,
    record_key,
)
from spool.errors import Conflict
from spool.ids import new_id
from spool.store import JobFilter, NewJob, cancel_job, claim_job, create_job, get_parts, list_jobs, open_part
from worker.engine import Engine, EngineOptions, EngineSession
from worker.jobs import LiveIntake, live_desk, run_next
from worker.jobs.live import decoding, log_reader
from worker.live import Event

pytestmark = pytest.mark.integration
GOLDEN = Path(__file__).parents[3] / "golden" / "streaming"
PIECE = 4000


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine(EngineOptions(slots=8, slot_samples=12 * 16_000, device="cpu")).start()
    yield engine
    engine.close()


@pytest.fixture
def worker_settings() -> dict[str, object]:
    return {"models": {"stream": str(GOLDEN / "model.nemo")}, "default_model": "stream"}


@pytest.fixture
def live(make_harness: Callable[..., WorkerHarness]) -> WorkerHarness:
    harness = make_harness()
    desk = live_desk(harness.settings, harness.engine)
    object.__setattr__(harness.services, "live", desk)
    return harness


def pcm(number: int) -> bytes:
    samples = soundfile.read(GOLDEN / f"{number}.flac", dtype="int16")[0]
    return bytes(samples.astype("<i2").tobytes())


def listen(harness: WorkerHarness, **options: object) -> str:
    job_id = new_id("job")
    listening = Listening.model_validate({"silence_ms": 240, "att_context": (70, 1), **options})
    with harness.db.begin() as tx:
        source = Source("live", f"jobs/{job_id}/source")
        asked = JobOptions(model="stream", head="rnnt", live=listening, speech_detector=False)
        create_job(tx, NewJob(source, asked, "live.wav", pool=None, id=job_id))
    return job_id


def write(harness: WorkerHarness, job_id: str, *records: LogRecord, first: int = 0, part: int = 0) -> int:
    for number, record in enumerate(records, first):
        harness.objects.put_bytes(record_key(job_id, number, part), record.encode())
    return first + len(records)


def pieces(audio: bytes, size: int = 2 * PIECE) -> list[LogRecord]:
    return [LogRecord("audio", audio[at : at + size]) for at in range(0, len(audio), size)]


def words_of(harness: WorkerHarness, job_id: str) -> list[tuple[str, float, float]]:
    job = harness.job(job_id)
    assert job.transcript_key is not None, (job.state, job.error_message)
    transcript = Transcript.model_validate_json(harness.read(job.transcript_key))
    assert transcript.coverage.ratio == 1
    return [(word.text, word.start, word.end) for word in transcript.words]


def test_a_session_becomes_a_transcript_a_recording_and_a_bill(live: WorkerHarness) -> None:
    audio = pcm(1) + pcm(2)
    job_id = listen(live)
    write(live, job_id, *pieces(pcm(1)), LogRecord("finalize"), *pieces(pcm(2)), LogRecord("end", b"closed"))
    assert run_next(live.services, None) is None, "it is in nobody's turn"
    assert run_next(live.services, None, live=True) == "done"
    assert words_of(live, job_id)
    job = live.job(job_id)
    assert job.source.kind == "upload"
    assert job.audio_seconds == pytest.approx(len(audio) / 2 / 16_000)
    with wave.open(BytesIO(live.read(job.source.uri))) as recording:
        assert recording.getframerate() == 16_000
        assert recording.readframes(recording.getnframes()) == audio
    chunks = live.chunks(job_id)
    assert [chunk.span.core_end for chunk in chunks[:-1]] == [chunk.span.core_start for chunk in chunks[1:]]
    assert [number for number, chunk in enumerate(chunks) if chunk.tail == ()][-1] == len(chunks) - 1
    assert not list(live.objects.list(log_prefix(job_id))), "the log is in the recording"
    live.assert_bills_equal_busy_time()


def test_a_stop_in_the_middle_of_a_segment_loses_and_doubles_nothing(
    live: WorkerHarness, engine: Engine
) -> None:
    records = [
        *pieces(pcm(1)),
        LogRecord("finalize"),
        *pieces(pcm(2)),
        *pieces(pcm(1)),
        LogRecord("end", b"closed"),
    ]
    unbroken = listen(live)
    write(live, unbroken, *records)
    assert run_next(live.services, None, live=True) == "done"

    broken = listen(live)
    half = len(records) - len(records) // 4
    write(live, broken, *records[: half - 2])
    running = live.start(broken)
    count = len(live.chunks(unbroken))
    until(lambda: len(live.chunks(broken)) >= count // 2 + 1, "finals beyond the first segment")
    child = engine.child_pid
    assert child is not None
    os.kill(child, signal.SIGKILL)  # its state is rebuilt within the attempt
    write(live, broken, *records[half - 2 : half], first=half - 2)
    until(lambda: engine.child_pid not in (None, child), "another child")
    live.draining.set()
    assert running.end() == "handed back"
    saved = live.chunks(broken)
    live.draining.clear()
    write(live, broken, *records[half:], first=half)
    assert run_next(live.services, None, live=True) == "done"
    assert words_of(live, broken) == words_of(live, unbroken)
    assert live.chunks(broken)[: len(saved)] == saved, "what was final stays as it was"
    assert live.cost(broken).wasted_ns > 0
    live.services.context.wasted.write()


@pytest.mark.parametrize("rate", [pytest.param(16_000, marks=pytest.mark.long), 11_025])
def test_what_waits_is_heard_at_once_and_gives_the_chunks_of_piece_by_piece(
    live: WorkerHarness, monkeypatch: pytest.MonkeyPatch, rate: int
) -> None:
    pushes: list[int] = []
    push = EngineSession.push

    def counted(session: EngineSession, samples: NDArray[np.float32], **asked: bool) -> list[Event]:
        pushes.append(len(samples))
        return push(session, samples, **asked)

    monkeypatch.setattr(EngineSession, "push", counted)
    monkeypatch.setattr(decoding, "SEGMENT_SECONDS", 1.5)  # some end at pauses, some at the finalize
    heard = []
    for seconds in (2.0, 0.0):
        monkeypatch.setattr(decoding, "CATCH_UP_SECONDS", seconds)
        pushes.clear()
        job_id = listen(live, sample_rate=rate)
        one, two = pieces(pcm(1) + pcm(2), 600), pieces(pcm(2) + pcm(1), 600)
        write(live, job_id, *one, LogRecord("finalize"), *two, LogRecord("end", b"closed"))
        assert run_next(live.services, None, live=True) == "done"
        chunks = [(c.span.core_start, c.span.core_end, c.heard.words, c.tail) for c in live.chunks(job_id)]
        heard.append((chunks, len(pushes)))
    (at_once, few), (piece_by_piece, many) = heard
    assert at_once == piece_by_piece
    assert sum(tail == () for *_, tail in at_once) > 2
    assert few * 4 < many


def begin_part(harness: WorkerHarness, job_id: str, size: int) -> None:
    """Another connection goes on behind so many bytes."""
    with harness.db.begin() as tx:
        assert open_part(tx, job_id, get_parts(tx, job_id), size)


def recording_of(harness: WorkerHarness, job_id: str) -> bytes:
    with wave.open(BytesIO(harness.read(harness.job(job_id).source.uri))) as recording:
        return recording.readframes(recording.getnframes())


def test_a_log_of_several_connections_is_one_session(live: WorkerHarness) -> None:
    audio = pcm(1) + pcm(2)
    unbroken = listen(live)
    write(live, unbroken, *pieces(audio), LogRecord("end", b"closed"))
    assert run_next(live.services, None, live=True) == "done"

    broken, third = listen(live), len(audio) // 6 * 2
    half = third // 2 // 2 * 2
    # What the first one wrote behind the place where another went on comes again; its end is none.
    write(
        live,
        broken,
        *pieces(audio[:half]),
        LogRecord("alive"),
        *pieces(audio[half : 2 * third]),
        LogRecord("end"),
    )
    begin_part(live, broken, half)
    begin_part(live, broken, half)  # a process that died before it wrote anything
    write(live, broken, *pieces(audio[half:third], 3000), LogRecord("alive"), part=2)
    begin_part(live, broken, third)
    write(live, broken, *pieces(audio[third:], 5000), LogRecord("end", b"closed"), part=3)
    assert live.run(broken) == "done"
    assert recording_of(live, broken) == audio
    assert words_of(live, broken) == words_of(live, unbroken)
    assert not list(live.objects.list(log_prefix(broken)))
    live.assert_bills_equal_busy_time()


def test_what_was_heard_of_a_lost_connection_is_not_heard_again(live: WorkerHarness) -> None:
    audio = pcm(1)
    job_id, half = listen(live), len(audio) // 4 * 2
    write(live, job_id, *pieces(audio))
    running = live.start(job_id)
    until(lambda: live.job(job_id).state is JobState.RUNNING and live.chunks(job_id), "it hears")
    begin_part(live, job_id, half)  # behind less than what is heard by now
    write(live, job_id, *pieces(audio[half:]), *pieces(pcm(2)), LogRecord("end", b"closed"), part=1)
    assert running.end() == "done"
    assert recording_of(live, job_id) == audio + pcm(2)


def test_another_attempt_goes_on_in_the_part_where_the_one_before_stopped(
    live: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "SEGMENT_SECONDS", 1.0)
    audio = pcm(1) + pcm(2) + pcm(1)
    job_id, cut = listen(live), len(pcm(1))
    count = write(live, job_id, *pieces(audio[:cut]), *pieces(audio[cut : cut + 30_000]))
    begin_part(live, job_id, cut)
    second = write(live, job_id, *pieces(audio[cut:-40_000], 7000), LogRecord("finalize"), part=1)
    assert count
    running = live.start(job_id)

    def is_in_second_part() -> bool:
        chunks = live.chunks(job_id)
        return bool(chunks) and chunks[-1].span.core_end * 2 > cut + 40_000

    until(is_in_second_part, "finals of the second part")
    live.draining.set()
    assert running.end() == "handed back"
    live.draining.clear()
    saved = live.chunks(job_id)
    write(live, job_id, *pieces(audio[-40_000:], 7000), LogRecord("end", b"closed"), first=second, part=1)
    assert run_next(live.services, None, live=True) == "done"
    assert live.chunks(job_id)[: len(saved)] == saved
    assert recording_of(live, job_id) == audio
    live.services.context.wasted.write()


def test_nobody_can_go_on_behind_the_end(live: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "ABANDONED_SECONDS", 0.0)
    job_id = listen(live)
    write(live, job_id, *pieces(pcm(1)))
    assert live.run(job_id) == "done"
    with live.db.begin() as tx:
        assert get_parts(tx, job_id) == LogParts(is_closed=True)
        with pytest.raises(Conflict, match=job_id):
            open_part(tx, job_id, LogParts(is_closed=True), 0)


def test_a_session_waits_for_its_client_as_long_as_it_was_asked_to(
    live: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "ABANDONED_SECONDS", 0.0)
    job_id = listen(live, resume_seconds=600)
    write(live, job_id, *pieces(pcm(1)))
    running = live.start(job_id)
    until(lambda: bool(live.chunks(job_id)), "it hears")
    begin_part(live, job_id, len(pcm(1)))
    write(live, job_id, *pieces(pcm(2)), LogRecord("end", b"closed"), part=1)
    assert running.end() == "done"
    assert recording_of(live, job_id) == pcm(1) + pcm(2)


def test_another_rate_and_two_channels_are_heard_and_kept(live: WorkerHarness) -> None:
    import soxr

    samples = soundfile.read(GOLDEN / "1.flac", dtype="float32")[0]
    wide = soxr.resample(samples, 16_000, 44_100)
    stereo = np.repeat((wide * 32767).astype("<i2")[:, None], 2, axis=1)
    job_id = listen(live, sample_rate=44_100, channels=2)
    write(live, job_id, *pieces(stereo.tobytes(), 44_100), LogRecord("end", b"closed"))
    assert run_next(live.services, None, live=True) == "done"
    with wave.open(BytesIO(live.read(f"jobs/{job_id}/source"))) as recording:
        assert (recording.getframerate(), recording.getnchannels()) == (44_100, 2)
        assert recording.readframes(recording.getnframes()) == stereo.tobytes()
    assert live.job(job_id).audio_seconds == pytest.approx(len(wide) / 44_100, abs=1e-3)


def test_what_was_asked_for_next_is_submitted_on_a_copy_of_the_recording(live: WorkerHarness) -> None:
    then = JobOptions(model="stream", decoder="beam").document()
    job_id = listen(live, then=then)
    write(live, job_id, *pieces(pcm(1)), LogRecord("end", b"closed"))
    assert run_next(live.services, None, live=True) == "done"
    with live.db.read() as tx:
        (following,) = list_jobs(tx, JobFilter(tag=("live", job_id))).items
    assert (following.state, following.options.decoder) == (JobState.QUEUED, "beam")
    assert following.options.live is None
    assert live.read(following.source.uri) == live.read(f"jobs/{job_id}/source")
    assert live.run(following.id) == "done"


def test_a_cancel_reaches_a_session_that_hears_nothing(live: WorkerHarness) -> None:
    job_id = listen(live)
    running = live.start(job_id)
    until(lambda: live.job(job_id).state is JobState.RUNNING, "it runs")
    with live.db.begin() as tx:
        cancel_job(tx, job_id)
    assert running.end() == "cancelled"


def test_a_session_whose_writer_is_gone_ends_with_what_there_is(
    live: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "ABANDONED_SECONDS", 0.0)
    job_id, empty = listen(live), listen(live)
    write(live, job_id, *pieces(pcm(1)))
    assert {live.run(job_id), live.run(empty)} == {"done", "failed"}
    assert live.job(empty).error_code == "audio_empty"


def test_a_worker_that_died_is_followed_by_another(live: WorkerHarness) -> None:
    job_id = listen(live)
    write(live, job_id, *pieces(pcm(1)), LogRecord("end", b"closed"))
    with live.db.begin() as tx:
        assert claim_job(tx, job_id, live.worker_id, 5) is not None
    let_lapse(live.db, job_id)
    assert live.run(job_id) == "done"


def test_the_intake_runs_sessions_beside_each_other(live: WorkerHarness) -> None:
    assert live.services.live is not None
    intake = LiveIntake(live.services, live.services.live)
    intake.start()
    both = [listen(live), listen(live)]
    until(lambda: all(live.job(each).state is JobState.RUNNING for each in both), "both are heard")
    for each in both:
        write(live, each, *pieces(pcm(2)), LogRecord("end", b"closed"))
    until(lambda: all(live.job(each).state is JobState.DONE for each in both), "both are done")
    intake.stop()
