"""kill -9 of worker, engine child and API at every failpoint: nothing is lost, nothing is billed twice.

The short selection runs by default; `pytest -m long tests/faults` runs the rest.
"""

import json
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from ops.testbed.stack import Stack, gone, until
from ops.testbed.waiting import PATIENCE
from spool.audit import Grace, audit, measure_lost_time
from spool.domain import Diarization, JobState, SpokenWord, Typescript
from spool.store import cancel_job, job_cost, worker_sums
from tests.worker.speech.voices import TWO_SPEAKERS

long = pytest.mark.long

OPEN = Path(__file__).parents[2] / "samples" / "open"
READERS = sorted((OPEN / "readers").glob("*.flac"))[:4]
ROWS = map(json.loads, (OPEN / "manifest.jsonl").read_text().splitlines())
TEXTS = {Path(row["file"]).name: row["text"] for row in ROWS}


def later(name: str) -> object:
    """A point of the long selection."""
    return pytest.param(name, marks=long)


OF_A_JOB = (
    "claim.committed",
    later("source.fetched"),
    later("save.begun"),
    "save.written",
    later("save.committed"),
    later("deliver.begun"),
    later("deliver.stored"),
    "finish.written",
    later("finish.committed"),
)
OF_SEVERAL = (later("deliver.stored"), "endings.written", later("endings.committed"))
OF_THE_QUEUE = tuple(map(later, ("relay.taken", "relay.sent", "sweep.locked", "sweep.swept")))
OF_THE_SPEAKERS = (later("speakers.begun"), later("speakers.done"))
OF_THE_WITNESS = tuple(map(later, ("witness.begun", "witness.heard", "witness.done")))
OF_THE_ALIGNMENT = tuple(map(later, ("save.written", "save.committed", "align.placing", "finish.written")))
OF_ONE_MACHINE = tuple(map(later, ("save.written", "save.committed", "finish.written")))
OF_THE_ENGINE = (
    later("engine.loading"),
    later("engine.started"),
    "engine.computed",
    later("engine.reported"),
)


def kill_the_worker_at(stack: Stack, point: str) -> None:
    worker = stack.worker()
    recording = stack.record()
    where = " (SQLite, folder)" if stack.db.dialect == "sqlite" else ""
    with stack.fault(f"kill -9 of the worker at {point}{where}") as fault:
        stack.arm(**{point: "kill"})
        fault.jobs = [stack.submit_stored(recording)]
        gone(worker)
        fault.injected = time.monotonic()
        assert stack.fired(point)
        saved = stack.chunks(fault.jobs[0])
        stack.disarm()
        stack.worker()
    (job_id,) = fault.jobs
    stack.assert_done(fault.jobs)
    chunks = stack.chunks(job_id)
    assert [chunk for chunk in chunks if chunk in saved] == saved, "what was saved stays as it was"
    assert fault.repeated == 0, "what was saved, or finished by the engine, is not decoded again (law 4)"
    assert not list((stack.home / "handover").glob(f"{job_id}.*")), "what is taken over is not kept"


@pytest.mark.parametrize("point", OF_A_JOB)
def test_a_worker_killed_in_a_job(stack: Stack, point: str) -> None:
    kill_the_worker_at(stack, point)


@pytest.mark.parametrize("point", OF_SEVERAL)
def test_a_worker_killed_while_it_ends_several_jobs(stack: Stack, point: str) -> None:
    worker = stack.worker()
    with stack.fault(f"kill -9 of the worker at {point}, of short jobs") as fault:
        # While the first to end holds the others up, they gather: several then end in one commit.
        stack.arm(**{point: "kill", "finish.written": "sleep:1.5"})
        fault.jobs = [stack.submit_stored(stack.record(3 + n / 10)) for n in range(12)]
        gone(worker)
        fault.injected = time.monotonic()
        assert stack.fired(point)
        ended = [job_id for job_id in fault.jobs if stack.job(job_id).state is JobState.DONE]
        assert point != "endings.committed" or len(ended) > 1
        saved = {job_id: stack.chunks(job_id) for job_id in fault.jobs}
        assert all(saved[job_id] for job_id in ended), "the chunk comes with the ending"
        stack.disarm()
        stack.worker()
    stack.assert_done(fault.jobs)
    assert {stack.job(job_id).attempt for job_id in ended} <= {1}, "what was done stays done"
    assert all(stack.chunks(job_id) == chunks for job_id, chunks in saved.items() if chunks)
    assert fault.repeated == 0, "what was saved, or finished by the engine, is not decoded again (law 4)"


def test_a_worker_killed_while_its_engine_is_in_a_batch(stack: Stack) -> None:
    """The engine finishes the batch; the next worker saves it, on the bill of the killed one."""
    stack.gate.unlink(missing_ok=True)
    worker = stack.worker()

    def given() -> int:
        return len(stack.decoded_list.read_text().splitlines())

    def billed_ns() -> int:
        with stack.db.read() as tx:
            (own_ns,) = [each.billed_ns for each in worker_sums(tx) if each.id == worker_id]
        return own_ns

    (worker_id,) = [each.id for each in stack.workers() if each.pid == worker.pid]
    given_before, billed_before = given(), billed_ns()
    with stack.fault("kill -9 of the worker while its engine is in a batch") as fault:
        fault.jobs = [stack.submit_stored(stack.record(), "gated")]
        until(lambda: given() > given_before, "a batch on the device")
        batch = given() - given_before
        fault.injected = time.monotonic()
        worker.kill()
        gone(worker)
        until(lambda: list((stack.home / "handover").glob("*.lock")), "its engine knows")
        stack.gate.touch()
        stack.worker()
    stack.assert_done(fault.jobs)
    assert fault.repeated == 0
    chunks = stack.chunks(fault.jobs[0])
    assert {chunk.attempt for chunk in chunks} == {2}
    taken_ns = sum(chunk.heard.engine_ns for chunk in chunks[:batch])
    assert billed_ns() - billed_before == taken_ns > 0, "by whose engine it was computed"


@pytest.mark.parametrize("point", OF_THE_QUEUE)
def test_a_worker_killed_between_outbox_and_redis(stack: Stack, point: str) -> None:
    kill_the_worker_at(stack, point)


@pytest.mark.parametrize("point", OF_THE_SPEAKERS)
def test_a_worker_killed_between_words_and_speakers(stack: Stack, point: str) -> None:
    worker = stack.worker()
    with stack.fault(f"kill -9 of the worker at {point}") as fault:
        stack.arm(**{point: "kill"})
        fault.jobs = [stack.submit_stored(TWO_SPEAKERS, diarization=Diarization(speakers=2))]
        gone(worker)
        fault.injected = time.monotonic()
        assert stack.fired(point)
        saved = stack.chunks(fault.jobs[0])
        assert saved, "every word was saved before anybody listened for speakers"
        stack.disarm()
        stack.worker()
    (job_id,) = fault.jobs
    stack.assert_done(fault.jobs)
    assert stack.chunks(job_id) == saved
    assert fault.repeated == 0, "no word is decoded again (law 4)"
    assert [each["words"] > 0 for each in stack.job(job_id).speakers or ()] == [True, True]


@pytest.mark.parametrize("point", OF_THE_WITNESS)
def test_a_worker_killed_while_the_witness_listens(stack: Stack, point: str) -> None:
    worker = stack.worker()
    with stack.fault(f"kill -9 of the worker at {point}") as fault:
        stack.arm(**{point: "kill"})
        fault.jobs = [stack.submit_stored(TWO_SPEAKERS, witness=True)]
        gone(worker)
        fault.injected = time.monotonic()
        assert stack.fired(point)
        (job_id,) = fault.jobs
        saved, heard = stack.chunks(job_id), stack.passes(job_id, "witness")
        assert saved, "every word was saved before the witness listened"
        assert len(heard) == (point == "witness.done")
        stack.disarm()
        stack.worker()
    stack.assert_done(fault.jobs)
    assert stack.chunks(job_id) == saved
    assert fault.repeated == 0, "no word is decoded again (law 4)"
    (again,) = stack.passes(job_id, "witness")
    assert again.attempt == (1 if heard else 2), "what was saved is not heard again"
    assert stack.job(job_id).words_without_evidence


@long
@pytest.mark.parametrize("model", ["default", "sortformer"])
def test_a_worker_killed_while_it_listens_for_speakers(stack: Stack, model: str) -> None:
    worker = stack.worker()

    def uncharged() -> int:
        """Nanoseconds that the worker's engine has told of and that nobody was charged for."""
        (row,) = [each for each in stack.workers() if each.pid == worker.pid]
        return row.engine_busy_ns - row.busy_ns

    def reported(worker_id: str) -> int:
        """What the audit says of that."""
        with stack.db.read() as tx:
            (row,) = [each for each in worker_sums(tx) if each.id == worker_id]
        return measure_lost_time(row, Grace()).least_ns

    with stack.fault(f"kill -9 of the worker while {model} listens for speakers") as fault:
        stack.arm(**{"speakers.heard": "sleep:600"})  # the thread that listens; the worker lives on
        fault.jobs = [stack.submit_stored(TWO_SPEAKERS, diarization=Diarization(model=model))]
        until(lambda: stack.fired("speakers.heard") and uncharged() > 0, "a step heard and told of")
        fault.injected = time.monotonic()
        worker.kill()
        gone(worker)
        lost_ns, saved = uncharged(), stack.chunks(fault.jobs[0])
        (worker_id,) = [each.id for each in stack.workers() if each.pid == worker.pid]
        assert saved, "every word was saved before anybody listened for speakers"
        assert stack.passes(fault.jobs[0]) == []
        stack.disarm()
        stack.worker()
    (job_id,) = fault.jobs
    stack.assert_done(fault.jobs)
    assert stack.chunks(job_id) == saved
    assert fault.repeated == 0, "no word is decoded again (law 4)"
    (turns,) = stack.passes(job_id)
    assert (turns.attempt, stack.job(job_id).attempt) == (2, 2)
    assert turns.turns
    assert all(word.speaker for word in stack.transcript(job_id).words)
    with stack.db.read() as tx:
        bill = job_cost(tx, job_id)
    kept_ns = sum(chunk.heard.engine_ns for chunk in saved) + turns.engine_ns
    assert round(bill.engine_seconds * 1e9) == kept_ns, "the killed attempt's listening is on no bill"
    until(lambda: reported(worker_id) == lost_ns, "the audit reports it as lost")


@pytest.mark.parametrize("point", OF_THE_ALIGNMENT)
def test_a_worker_killed_while_it_aligns_a_text(stack: Stack, tmp_path: Path, point: str) -> None:
    tape, words = tmp_path / "tape.wav", []
    pieces = []
    for path in READERS:
        pieces += [soundfile.read(path, dtype="float32")[0], np.zeros(16_000, np.float32)]
        words += [SpokenWord(word, path.stem) for word in TEXTS[path.name].split()]
    soundfile.write(tape, np.concatenate(pieces), 16_000)
    text = Typescript(tuple(words))
    worker = stack.worker()
    with stack.fault(f"kill -9 of the worker at {point} of an alignment") as fault:
        stack.arm(**{point: "kill"})
        fault.jobs = [stack.submit_stored(tape, "demo", typescript=text)]
        gone(worker)
        fault.injected = time.monotonic()
        assert stack.fired(point)
        saved = len(stack.chunks(fault.jobs[0]))
        stack.disarm()
        stack.worker()
    stack.assert_done(fault.jobs)
    assert fault.repeated <= len(stack.chunks(fault.jobs[0])) - saved, "nothing saved is heard again (law 4)"
    with stack.fault("no fault, to compare: an alignment") as calm:
        calm.jobs = [stack.submit_stored(tape, "demo", typescript=text)]
    killed, undisturbed = (stack.transcript(job_id) for job_id in (*fault.jobs, *calm.jobs))
    assert killed.words == undisturbed.words
    assert killed.alignment == undisturbed.alignment
    assert killed.alignment is not None
    assert killed.alignment.belongs
    assert killed.text == " ".join(text.texts)
    assert not any(chunk.emissions for job_id in (*fault.jobs, *calm.jobs) for chunk in stack.chunks(job_id))


@pytest.mark.parametrize("point", OF_ONE_MACHINE)
def test_a_worker_killed_on_one_machine(embedded: Stack, point: str) -> None:
    kill_the_worker_at(embedded, point)


@pytest.mark.parametrize("point", OF_THE_ENGINE)
def test_an_engine_killed(stack: Stack, point: str) -> None:
    worker = stack.worker()
    model = "fresh" if point == "engine.loading" else "plain"
    recordings = [stack.record() for _ in range(2)]
    with stack.fault(f"kill -9 of the engine child at {point}") as fault:
        stack.arm(**{point: "kill"})
        fault.jobs = [stack.submit_stored(recording, model) for recording in recordings]
        until(lambda: stack.fired(point), "the engine reached the failpoint")
        fault.injected = time.monotonic()
    stack.assert_done(fault.jobs)
    assert worker.poll() is None, "the worker outlives its engine"
    assert {(stack.job(job_id).attempt, stack.job(job_id).crashes) for job_id in fault.jobs} == {(1, 0)}
    assert fault.repeated <= 2, "the batch on the device and nothing else"


@long
def test_an_engine_and_its_worker_killed_while_a_second_model_rescores(stack: Stack) -> None:
    worker = stack.worker()
    recording = stack.record(60)
    search: dict[str, Any] = {"decoder": "beam", "head": "ctc", "beam": 4}
    rescored: dict[str, Any] = {**search, "rescore": {"model": "reader", "weight": 0.5}}
    with stack.fault("kill -9 of the engine child at engine.rescoring, then of the worker") as fault:
        stack.arm(**{"engine.rescoring": "kill", "save.written": "kill"})
        fault.jobs = [stack.submit_stored(recording, "wenet", **rescored, nbest=3)]
        gone(worker)
        fault.injected = time.monotonic()
        assert stack.fired("engine.rescoring")
        assert stack.fired("save.written")
        stack.disarm()
        stack.worker()
    stack.assert_done(fault.jobs)
    # The same job undisturbed, under options that forbid reuse, and without the second model.
    with stack.fault("no fault, to compare: rescored and not") as calm:
        calm.jobs = [
            stack.submit_stored(recording, "wenet", **options, nbest=4) for options in (rescored, search)
        ]
    killed, undisturbed, alone = (stack.chunks(job_id) for job_id in (*fault.jobs, *calm.jobs))
    assert [chunk.heard.nbest for chunk in killed] == [chunk.heard.nbest[:3] for chunk in undisturbed]
    pairs = zip(undisturbed, alone, strict=True)
    assert all(one.heard.nbest[0].score < two.heard.nbest[0].score for one, two in pairs)
    assert stack.job(fault.jobs[0]).attempt >= 2


@pytest.mark.parametrize("point", [later("upload.received"), "create.stored", later("create.committed")])
def test_an_api_killed_while_it_accepts_a_job(stack: Stack, point: str) -> None:
    stack.worker()
    stack.serve()
    recording = stack.record(30)
    with stack.fault(f"kill -9 of the API at {point}") as fault:
        stack.arm(**{point: "kill"})
        with pytest.raises(httpx.HTTPError):
            stack.upload(recording, key=point)
        gone(stack.api)
        fault.injected = time.monotonic()
        stack.disarm()
        # The client cannot know what happened, so it asks again with the same key.
        fault.jobs = [stack.upload(recording, key=point)]
        assert stack.upload(recording, key=point) == fault.jobs[0]
    stack.assert_done(fault.jobs)
    assert fault.repeated == 0
    aged = Grace(upload_seconds=-60.0)  # as if an hour had passed
    report = audit(stack.db, stack.objects, aged)
    assert report.counts["orphan"] == report.counts.total() == (point == "create.stored"), report.breaches
    assert audit(stack.db, stack.objects, aged, remove_orphans=True).clean
    assert stack.audit().clean


@long
@pytest.mark.parametrize("point", ["relay.taken", "relay.sent", "sweep.locked", "sweep.swept"])
def test_an_api_killed_while_it_relays_and_sweeps(stack: Stack, point: str) -> None:
    stack.stop_workers()  # so that it is the API that relays
    stack.serve()
    recording = stack.record(30)
    with stack.fault(f"kill -9 of the API at {point}") as fault:
        fault.jobs = [stack.submit_stored(recording)]
        stack.arm(**{point: "kill"})
        if point.startswith("relay"):
            fault.jobs.append(stack.submit_stored(stack.record(30)))
        gone(stack.api)
        fault.injected = time.monotonic()
        stack.disarm()
        stack.worker()
    stack.assert_done(fault.jobs)
    assert fault.repeated == 0


@pytest.mark.parametrize("point", [later("ending.written"), later("ending.committed")])
def test_a_worker_killed_while_it_writes_a_cancel(stack: Stack, point: str) -> None:
    worker = stack.worker()
    recording = stack.record(400)
    with stack.fault(f"kill -9 of the worker at {point}, of a cancelled job") as fault:
        fault.jobs = [stack.submit_stored(recording, "slow")]
        until(lambda: stack.chunks(fault.jobs[0]), "a chunk saved")
        stack.arm(**{point: "kill"})
        with stack.db.begin() as tx:
            cancel_job(tx, fault.jobs[0])
        gone(worker)
        fault.injected = time.monotonic()
        stack.disarm()
        stack.worker()
    assert stack.job(fault.jobs[0]).state is JobState.CANCELLED
    assert fault.repeated == 0


@long
@pytest.mark.parametrize("kind", ["stack", "embedded"])
def test_sigterm_repeats_nothing(request: pytest.FixtureRequest, kind: str) -> None:
    stack: Stack = request.getfixturevalue(kind)
    worker = stack.worker()
    recordings = [stack.record(300) for _ in range(2)]
    with stack.fault(f"SIGTERM in the middle of two jobs ({stack.db.dialect})") as fault:
        fault.jobs = [stack.submit_stored(recording, "slow") for recording in recordings]
        until(lambda: all(stack.chunks(job_id) for job_id in fault.jobs), "a chunk of each saved")
        fault.injected = time.monotonic()
        worker.terminate()
        assert worker.wait(PATIENCE) == 0
        assert not stack.ended(fault.jobs), "it drained in the middle"
        stack.worker("beta")
    stack.assert_done(fault.jobs)
    assert fault.repeated == 0
    stack.stop_workers()
    assert stack.audit().clean, "of stopped workers, bills and engines agree to the nanosecond"


def test_every_failpoint_is_killed_somewhere_here() -> None:
    from spool.failpoints import NAMES

    folder = Path(__file__).parent
    deletions = folder.parent / "spool" / "background" / "test_content_deleter.py"
    handover = folder.parent / "api" / "routes" / "test_killed.py"
    text = "".join(path.read_text() for path in [*sorted(folder.glob("test_*.py")), deletions, handover])
    assert [name for name in NAMES if f'"{name}"' not in text] == []
