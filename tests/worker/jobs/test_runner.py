"""One job's life, over SQLite and a folder, with a real engine process and a tiny model."""

import contextlib
import hashlib
import random
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ops.testbed.fake_models import ABORT, RAISE, RATE, poisoned
from ops.testbed.jobs import RETRY, WorkerHarness, running_engine, speechlike
from ops.testbed.rows import let_lapse, new_job, registered
from ops.testbed.waiting import DEADLINE, until
from spool.domain import JobState, Source, Transcript
from spool.errors import Conflict, DiskFull, StorageError
from spool.formats import STORED
from spool.ids import new_id
from spool.objects import FolderStore, NewObject, ObjectInfo, hash_file
from spool.store import cancel_job, claim_job, create_job, hashes_of_source, retry_job
from worker.engine import Engine
from worker.jobs import JobServices, RetryPolicy

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine(slots=8, utterances=4) as engine:
        yield engine


@pytest.fixture
def worker_settings(gate: Path) -> dict[str, object]:
    return {
        "models": {
            "plain": "plain",
            "gated": f"gate={gate}",
            "slow": "sleep=0.05",
            "missing": "load-fails",
            "broken": "load-aborts",
        },
        "default_model": "plain",
        "lease_seconds": 3.0,
        "heartbeat_seconds": 1.0,
    }


def reached(gate: Path) -> None:
    until(gate.with_suffix(".reached").exists, "a batch at the gate")


def test_a_recording_becomes_a_transcript_and_a_bill(harness: WorkerHarness) -> None:
    job_id = harness.submit(harness.record("talk.wav", speechlike(130)))
    assert harness.run(job_id) == "done"

    job = harness.job(job_id)
    assert job.state is JobState.DONE
    assert (job.audio_seconds, job.done_seconds, job.coverage) == (130.0, 130.0, 1.0)
    assert job.transcript_key == f"jobs/{job_id}/attempt-1/transcript.json"
    data = harness.read(job.transcript_key)
    assert hashlib.sha256(data).hexdigest() == job.transcript_sha256
    transcript = Transcript.model_validate_json(data)
    assert transcript.job == job_id
    assert transcript.audio.name == "talk.wav"
    assert transcript.model.name == "plain"
    assert len(transcript.words) == job.words
    assert job.words is not None
    assert job.words > 100, "about one a second"
    starts = [word.start for word in transcript.words]
    assert starts == sorted(starts)
    assert transcript.words[-1].end <= 130.0
    for form in STORED:
        assert harness.objects.head(job.transcript_key.replace("json", form)) is not None
    cost = harness.cost(job_id)
    assert cost.audio_seconds == 130.0
    assert cost.wasted_cost == 0
    assert harness.assert_bills_equal_busy_time() > 0
    assert list((harness.folder / "tmp").glob("*")) == []


def test_a_job_that_ended_or_does_not_exist_is_not_taken(harness: WorkerHarness) -> None:
    job_id = harness.submit(harness.record("a.wav", speechlike(5)))
    assert harness.run(job_id) == "done"
    assert harness.run(job_id) is None
    assert harness.run("job_00000000000000000000000000") is None


def test_of_many_deliveries_at_once_one_runs(harness: WorkerHarness) -> None:
    job_id = harness.submit(harness.record("a.wav", speechlike(30)))
    running = [harness.start(job_id) for _ in range(5)]
    endings = [thread.end() for thread in running]
    assert sorted(endings, key=str) == [None, None, None, None, "done"]
    assert harness.job(job_id).attempt == 1


def test_silence_is_covered_and_asks_nothing_of_the_engine(harness: WorkerHarness) -> None:
    job_id = harness.submit(harness.record("zeros.wav", np.zeros(100 * RATE, np.float32)))
    assert harness.run(job_id) == "done"
    job = harness.job(job_id)
    assert (job.words, job.coverage, job.audio_seconds) == (0, 1.0, 100.0)
    assert harness.decoded == 0
    assert harness.assert_bills_equal_busy_time() == 0


def test_channels_kept_apart(harness: WorkerHarness) -> None:
    both = np.stack([speechlike(50, 0.2), speechlike(50, 0.6)], axis=1)
    job_id = harness.submit(harness.record("two.wav", both), channels="separate")
    assert harness.run(job_id) == "done"
    job = harness.job(job_id)
    assert (job.audio_seconds, job.done_seconds, job.coverage) == (50.0, 50.0, 1.0)
    assert job.transcript_key is not None
    transcript = Transcript.model_validate_json(harness.read(job.transcript_key))
    assert {word.channel for word in transcript.words} == {0, 1}
    assert {s.channel for s in transcript.segments} == {0, 1}


def test_an_upload_is_read_from_the_object_store(harness: WorkerHarness) -> None:
    path = harness.record("up.wav", speechlike(5))
    stored = harness.objects.put_file("jobs/job_x/source", path)
    with harness.db.begin() as tx:
        source = Source("upload", stored.key, stored.size, stored.etag)
        job_id = create_job(tx, new_job(source=source, name="up.wav", options=_plain()))[0].id
    assert harness.run(job_id) == "done"
    with harness.db.begin() as tx:
        source = Source("upload", "jobs/gone/source")
        gone = create_job(tx, new_job(source=source, name="gone.wav", options=_plain()))[0].id
    assert harness.run(gone) == "failed"
    assert harness.job(gone).error_code == "source_missing"


def _plain() -> Any:
    return new_job().options.model_copy(update={"model": "plain"})


# --- bad input fails alone, at once, with its reason --------------------------------------------------------


def test_who_first_reads_an_upload_that_came_past_the_api_hashes_it(harness: WorkerHarness) -> None:
    path = harness.record("direct.wav", speechlike(20))
    sha256, blocks = hash_file(path)
    jobs = {}
    for announced in (sha256, None, "0" * 64):
        stored = harness.objects.put_file(f"jobs/{(job_id := new_id('job'))}/source", path)
        source = Source("upload", stored.key, stored.size, stored.etag)
        new = replace(new_job(source=source, options=_plain()), id=job_id, content_sha256=announced)
        with harness.db.begin() as tx:
            create_job(tx, new)
        jobs[announced] = job_id
        harness.run(job_id)
    with harness.db.read() as tx:
        kept = {announced: hashes_of_source(tx, job_id) for announced, job_id in jobs.items()}
    assert kept == {sha256: blocks, None: blocks, "0" * 64: None}
    assert {harness.job(jobs[each]).content_sha256 for each in (sha256, None)} == {sha256}
    refused = harness.job(jobs["0" * 64])
    assert (refused.state, refused.error_code) == (JobState.FAILED, "source_changed")
    assert "announced" in (refused.error_message or "")


def test_what_cannot_succeed_fails_at_once(harness: WorkerHarness, tmp_path: Path) -> None:
    good = harness.record("good.wav", speechlike(5))
    outside = tmp_path / "outside.wav"
    outside.write_bytes(good.read_bytes())
    link = harness.folder / "link.wav"
    link.symlink_to(outside)
    changing = harness.record("changing.wav", speechlike(5))
    cases = {
        harness.submit(link): ("source_forbidden", "link.wav"),
        harness.submit(harness.folder): ("source_forbidden", "regular file"),
        harness.submit(changing): ("source_changed", "changing.wav"),
        harness.submit(good, model="nobody"): ("unknown_model", "this worker knows"),
    }
    changing.write_bytes(good.read_bytes()[:-4000])
    for job_id, (code, words) in cases.items():
        assert harness.run(job_id) == "failed"
        job = harness.job(job_id)
        assert (job.state, job.error_code, job.attempt) == (JobState.FAILED, code, 1)
        assert job.error_message is not None
        assert words in job.error_message
    assert harness.run(harness.submit(good)) == "done"
    harness.assert_bills_equal_busy_time()


def test_a_file_that_its_folder_lacks_is_looked_for_twice(harness: WorkerHarness) -> None:
    harness.record("other.wav", speechlike(5))
    late = harness.record("late.wav", speechlike(5))
    data = late.read_bytes()
    job_id = harness.submit(late)
    late.unlink()
    assert harness.run(job_id) == "handed back"
    assert "late.wav does not exist" in (harness.job(job_id).error_message or "")
    late.write_bytes(data)
    assert harness.run(job_id) == "done"
    gone = harness.submit(late)
    late.unlink()
    assert [harness.run(gone), harness.run(gone)] == ["handed back", "failed"]
    assert harness.job(gone).error_code == "source_missing"


def test_what_a_worker_lacks_fails_no_job(harness: WorkerHarness, tmp_path: Path) -> None:
    good = harness.record("good.wav", speechlike(5))
    outside = tmp_path / "outside.wav"
    outside.write_bytes(good.read_bytes())
    health = harness.services.context.health
    job_id = harness.submit(outside)
    assert harness.run(job_id) == "handed back"
    assert "SPOOL_SOURCE_ROOTS" in (health.reason or "")
    assert str(outside) not in (health.reason or ""), "other projects can read the reason"
    assert "SPOOL_SOURCE_ROOTS" in (health.lack_problem({job_id}) or "")
    assert health.lack_problem({"another"}) is None
    health.set(None)
    job_id = harness.submit(good)
    away = harness.folder.rename(tmp_path / "away")
    assert harness.run(job_id) == "handed back"
    assert "cannot be read: No such file" in (health.lack_problem({job_id}) or "")
    away.rename(harness.folder)
    assert health.lack_problem({job_id}) is None
    health.set(None)
    assert harness.run(job_id) == "done"


@pytest.mark.parametrize(
    ("model", "words"), [("missing", "only a name"), ("broken", "ends the engine's process")]
)
def test_a_model_that_does_not_load_here_is_tried_again(
    harness: WorkerHarness, model: str, words: str
) -> None:
    job_id = harness.submit(harness.record("good.wav", speechlike(5)), model=model)
    endings = [harness.run(job_id) for _ in range(RETRY.attempts)]
    assert endings == ["handed back"] * (RETRY.attempts - 1) + ["failed"]
    job = harness.job(job_id)
    assert job.error_code == "model_unreadable"
    assert words in (job.error_message or "")
    assert harness.services.context.health.reason is None, "its other models work"


@pytest.mark.parametrize(("value", "code"), [(ABORT, "engine_crashed"), (RAISE, "engine")])
def test_a_poison_utterance_fails_its_own_job_alone(
    harness: WorkerHarness, gate: Path, value: float, code: str
) -> None:
    bad = harness.submit(harness.record("bad.wav", poisoned(speechlike(60), value)), model="gated")
    good = [harness.submit(harness.record(f"good{i}.wav", speechlike(60)), model="gated") for i in range(3)]
    harness.engine.describe(f"gate={gate}").result()
    running = [harness.start(job_id) for job_id in (bad, *good)]
    until(lambda: harness.engine._slots.free == 0, "all jobs in the engine")
    gate.touch()
    assert [thread.end() for thread in running] == ["failed", "done", "done", "done"]
    job = harness.job(bad)
    assert (job.error_code, job.attempt, job.crashes) == (code, 1, 0)
    assert job.error_message is not None
    assert job.error_message.startswith("bad.wav: at ")
    assert all(harness.cost(job_id).wasted_cost == 0 for job_id in good)
    harness.assert_bills_equal_busy_time()


# --- nothing is decoded twice ----------------------------------------------------------------------------


def test_a_drain_hands_back_and_the_next_attempt_goes_on_from_there(
    harness: WorkerHarness, gate: Path
) -> None:
    job_id = harness.submit(harness.record("long.wav", speechlike(300)), model="gated")
    running = harness.start(job_id)
    reached(gate)
    harness.draining.set()
    gate.touch()
    assert running.end() == "handed back"
    job = harness.job(job_id)
    assert (job.state, job.crashes) == (JobState.QUEUED, 0)
    first = harness.chunks(job_id)
    assert 1 <= len(first) < 10, "the batch on the device was kept, the rest was not decoded"
    assert harness.decoded == len(first)
    harness.draining.clear()
    assert harness.run(job_id) == "done"
    chunks = harness.chunks(job_id)
    assert {chunk.attempt for chunk in chunks} == {1, 2}
    assert (
        chunks[: len(first)] == sorted(first, key=lambda chunk: chunk.span.index)[: len(first)]
        or len(first) > 0
    )
    assert harness.decoded == len(chunks), "each chunk once"
    assert harness.cost(job_id).wasted_cost == 0
    harness.assert_bills_equal_busy_time()


def test_progress_goes_on_from_the_saved_chunks(harness: WorkerHarness, gate: Path) -> None:
    job_id = harness.submit(harness.record("long.wav", speechlike(300)), model="gated")
    running = harness.start(job_id)
    reached(gate)
    harness.draining.set()
    gate.touch()
    assert running.end() == "handed back"
    saved = sum(chunk.span.core_end - chunk.span.core_start for chunk in harness.chunks(job_id)) / 16_000
    assert harness.job(job_id).done_seconds == saved > 0
    harness.draining.clear()
    gate.unlink()
    gate.with_suffix(".reached").unlink()

    running = harness.start(job_id)
    reached(gate)
    assert harness.job(job_id).done_seconds == saved

    gate.touch()
    assert running.end() == "done"
    assert harness.job(job_id).done_seconds == 300


def test_a_transcript_does_not_depend_on_how_often_the_job_was_retried(
    harness: WorkerHarness, gate: Path
) -> None:
    path = harness.record("long.wav", speechlike(200))
    gate.touch()
    whole = harness.submit(path, model="gated")
    assert harness.run(whole) == "done"
    gate.unlink()
    gate.with_suffix(".reached").unlink()
    broken = harness.submit(path, model="gated")
    running = harness.start(broken)
    reached(gate)
    harness.draining.set()
    gate.touch()
    assert running.end() == "handed back"
    harness.draining.clear()
    assert harness.run(broken) == "done"
    assert _words(harness, whole) == _words(harness, broken)


def _words(harness: WorkerHarness, job_id: str) -> tuple[object, ...]:
    key = harness.job(job_id).transcript_key
    assert key is not None
    return Transcript.model_validate_json(harness.read(key)).words


def test_a_job_taken_over_writes_nothing_more_and_its_time_is_wasted(
    harness: WorkerHarness, gate: Path
) -> None:
    job_id = harness.submit(harness.record("long.wav", speechlike(100)), model="gated")
    running = harness.start(job_id)
    reached(gate)
    other = registered(harness.db, "other")
    let_lapse(harness.db, job_id)
    with harness.db.begin() as tx:
        claim = claim_job(tx, job_id, other, 60)
    assert claim is not None
    gate.touch()
    assert running.end() == "lost"
    job = harness.job(job_id)
    assert (job.state, job.lease_owner, job.attempt, job.crashes) == (JobState.RUNNING, other, 2, 0)
    assert harness.chunks(job_id) == []
    cost = harness.cost(job_id)
    assert cost.wasted_cost > 0
    assert cost.billable_cost == 0
    harness.assert_bills_equal_busy_time()


def test_a_cancel_waits_for_nothing_that_the_job_waits_for(harness: WorkerHarness, gate: Path) -> None:
    job_id = harness.submit(harness.record("long.wav", speechlike(300)), model="gated")
    running = harness.start(job_id)
    reached(gate)
    with harness.db.begin() as tx:
        cancel_job(tx, job_id)
    until(lambda: harness.job(job_id).state is JobState.CANCELLED, "the cancel, before the device is done")
    assert running.is_alive()
    gate.touch()
    assert running.end() == "cancelled"
    assert harness.job(job_id).state is JobState.CANCELLED
    assert harness.chunks(job_id) == []
    assert harness.cost(job_id).wasted_cost > 0
    harness.assert_bills_equal_busy_time()
    with harness.db.begin() as tx:
        retry_job(tx, job_id)
    assert harness.run(job_id) == "done"
    harness.assert_bills_equal_busy_time()


def test_a_cancel_does_not_wait_for_the_object_store(harness: WorkerHarness) -> None:
    asked, answers = threading.Event(), threading.Event()

    class SilentStore(FolderStore):
        def put_several(self, objects: Sequence[NewObject]) -> None:
            asked.set()
            assert answers.wait(DEADLINE)
            super().put_several(objects)

    harness.services = replace(harness.services, objects=SilentStore(harness.folder / "objects"))
    job_id = harness.submit(harness.record("talk.wav", speechlike(30)))
    running = harness.start(job_id)
    assert asked.wait(DEADLINE)
    with harness.db.begin() as tx:
        cancel_job(tx, job_id)
    until(lambda: harness.job(job_id).state is JobState.CANCELLED, "the cancel, before the store answers")
    answers.set()
    assert running.end() == "cancelled"
    assert harness.job(job_id).state is JobState.CANCELLED
    assert not list((harness.folder / "objects").rglob("transcript.*")), "nothing is left behind"
    harness.assert_bills_equal_busy_time()


def test_a_cancelled_job_stops_and_pays_for_what_was_done(
    harness: WorkerHarness, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.jobs.lease.CANCEL_SECONDS", DEADLINE)
    job_id = harness.submit(harness.record("long.wav", speechlike(300)), model="gated")
    running = harness.start(job_id)
    reached(gate)
    with harness.db.begin() as tx:
        cancel_job(tx, job_id)
    until(lambda: running.is_alive() and _waits_for_device(harness), "the job noticed")
    gate.touch()
    assert running.end() == "cancelled"
    assert harness.job(job_id).state is JobState.CANCELLED
    decoded = harness.decoded
    harness.assert_bills_equal_busy_time()
    with harness.db.begin() as tx:
        retry_job(tx, job_id)
    before = len(harness.chunks(job_id))
    assert harness.run(job_id) == "done"
    assert harness.decoded == len(harness.chunks(job_id)) > before
    assert harness.decoded > decoded, "what waited was taken out"


def _waits_for_device(harness: WorkerHarness) -> bool:
    with harness.engine._pending._lock:
        entries = list(harness.engine._pending._open.values())
    return bool(entries) and all(entry.dropped for entry in entries)


def test_a_long_job_yields_to_those_that_wait(make_harness: Callable[..., WorkerHarness]) -> None:
    harness = make_harness(yield_seconds=0.1)
    long = harness.submit(harness.record("long.wav", speechlike(400)), model="slow")
    other = harness.submit(harness.record("short.wav", speechlike(5)))
    assert harness.run(long) == "handed back"
    assert 0 < len(harness.chunks(long)) < 16
    # The short one would yield in turn where the machine is slow.
    patient = harness.settings.model_copy(update={"yield_seconds": 600.0})
    harness.services = replace(harness.services, context=replace(harness.services.context, settings=patient))
    assert harness.run(other) == "done"
    assert harness.run(long) == "done", "nobody waits any more"
    assert harness.decoded == len(harness.chunks(long)) + 1
    harness.assert_bills_equal_busy_time()


def test_a_recording_that_changed_between_attempts_is_refused(harness: WorkerHarness, gate: Path) -> None:
    samples = speechlike(300)
    path = harness.record("long.wav", samples)
    job_id = harness.submit(path, model="gated")
    running = harness.start(job_id)
    reached(gate)
    harness.draining.set()
    gate.touch()
    assert running.end() == "handed back"
    harness.draining.clear()
    harness.record("long.wav", np.roll(samples, 2 * RATE))
    assert harness.run(job_id) == "failed"
    assert harness.job(job_id).error_code == "source_changed"


# --- what may pass is waited out, and not for ever ----------------------------------------------------------


class RefusingStore(FolderStore):
    """A real store that refuses writes with `error` while it has one."""

    error: StorageError | None = None

    def put_bytes(self, key: str, data: bytes, content_type: str = "application/octet-stream") -> ObjectInfo:
        if self.error is not None:
            raise self.error
        return super().put_bytes(key, data, content_type)


@pytest.mark.parametrize(
    ("error", "code"), [(DiskFull("full"), "disk_full"), (StorageError("no"), "storage")]
)
def test_a_store_that_refuses_is_tried_again_a_few_times(
    make_harness: Callable[..., WorkerHarness], error: StorageError, code: str
) -> None:
    harness = make_harness(lease_seconds=0.9, heartbeat_seconds=0.3)
    store = RefusingStore(harness.folder / "objects")
    harness.services = replace(harness.services, objects=store)
    passing = harness.submit(harness.record("a.wav", speechlike(60)))
    staying = harness.submit(harness.record("b.wav", speechlike(60)))
    store.error = error
    assert harness.run(passing) == "handed back"
    assert harness.run(staying) == "handed back"
    decoded = harness.decoded
    store.error = None
    assert harness.run(passing) == "done"
    assert harness.decoded == decoded, "the chunks were saved"
    store.error = error
    endings = [harness.run(staying) for _ in range(3)]
    assert endings == ["handed back", "handed back", "failed"]
    job = harness.job(staying)
    assert job.error_code == code
    assert job.error_message is not None
    assert f"{RETRY.attempts} attempts" in job.error_message
    assert harness.run(staying) is None
    harness.assert_bills_equal_busy_time()


def test_a_full_disk_is_named_and_not_retried_for_ever(harness: WorkerHarness) -> None:
    """The system itself refuses: no file may grow beyond a limit, so the copy fails for real."""
    path = harness.record("big.wav", speechlike(200))
    stored = harness.objects.put_file("jobs/job_big/source", path)
    with harness.db.begin() as tx:
        source = Source("upload", stored.key, stored.size, stored.etag)
        job_id = create_job(tx, new_job(source=source, name="big.wav", options=_plain()))[0].id
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (stored.size // 2, before[1]))
    try:
        endings = [harness.run(job_id) for _ in range(3)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert endings == ["handed back", "handed back", "failed"]
    job = harness.job(job_id)
    assert job.error_code == "disk_full"
    assert job.error_message is not None
    assert job.error_message.startswith("big.wav: ")
    assert list((harness.folder / "tmp").iterdir()) == [], "nothing is left of the copy"


def test_pauses_grow_and_end() -> None:
    policy = RetryPolicy(attempts=5, first_pause=1, longest_pause=3)
    assert [policy.pause(n) for n in range(7)] == [1, 1, 2, 3, 3, None, None]


def test_an_unexpected_error_fails_the_job_with_a_code(harness: WorkerHarness) -> None:
    class Surprise(FolderStore):
        def put_bytes(self, key: str, data: bytes, content_type: str = "") -> ObjectInfo:
            raise RuntimeError("secret detail")

    harness.services = JobServices(
        harness.services.context, Surprise(harness.folder / "objects"), harness.services.sources, RETRY
    )
    job_id = harness.submit(harness.record("a.wav", speechlike(5)))
    assert harness.run(job_id) == "failed"
    job = harness.job(job_id)
    assert job.error_code == "internal"
    assert job.error_message is not None
    assert "secret" not in job.error_message


# --- law 5 -----------------------------------------------------------------------------------------------


def _meddle(harness: WorkerHarness, jobs: dict[str, str], line: list[str], other: str) -> None:
    """Cancel some running jobs and take others away from their worker."""
    for job_id, fate in jobs.items():
        if fate not in {"cancel", "lose"}:
            continue
        until(partial(lambda one: harness.job(one).state is not JobState.QUEUED or not line, job_id))
        if harness.job(job_id).state.terminal:
            continue
        if fate == "cancel":
            with contextlib.suppress(Conflict), harness.db.begin() as tx:  # it may end just now
                cancel_job(tx, job_id)
        else:
            let_lapse(harness.db, job_id)
            with harness.db.begin() as tx:
                claim_job(tx, job_id, other, 60)


@pytest.mark.parametrize("seed", [1, 2])
def test_bills_equal_busy_time_whatever_happens_to_the_jobs(
    make_harness: Callable[..., WorkerHarness], seed: int
) -> None:
    harness = make_harness(yield_seconds=0.5)
    chance = random.Random(seed)
    other = registered(harness.db, "other")
    fates = ["done", "done", "raise", "cancel", "lose"] * 2 + ["poison"]
    chance.shuffle(fates)
    jobs: dict[str, str] = {}
    for number, fate in enumerate(fates):
        samples = speechlike(chance.uniform(20, 150), chance.uniform(0.1, 0.6))
        value = {"poison": ABORT, "raise": RAISE}.get(fate)
        path = harness.record(f"{number}.wav", samples if value is None else poisoned(samples, value))
        jobs[harness.submit(path, model="slow")] = fate
    line = list(jobs)
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if not line:
                    return
                job_id = line.pop()
            while harness.run(job_id) == "handed back":
                pass

    threads = [threading.Thread(target=work) for _ in range(5)] + [
        threading.Thread(target=_meddle, args=(harness, jobs, line, other))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    states = {job_id: harness.job(job_id).state for job_id in jobs}
    assert all(states[job_id] is JobState.DONE for job_id, fate in jobs.items() if fate == "done")
    assert all(
        states[job_id] is JobState.FAILED for job_id, fate in jobs.items() if fate in {"poison", "raise"}
    )
    assert harness.assert_bills_equal_busy_time() > 0
    assert harness.engine._slots.free == 8
