"""Workers that come back from the dead, messages that come five times, sweepers that are many, and poison."""

import signal
import time

import pytest
from sqlalchemy import update

from ops.testbed.fake_models import ABORT, poisoned
from ops.testbed.jobs import speechlike, write_wav
from ops.testbed.rows import bill_of
from ops.testbed.stack import Stack, gone, post_upload, until
from spool.background import Sweeper
from spool.broker.celery_app import celery_app
from spool.domain import JobState
from spool.store import SweepLimits, job_cost, seconds_from_now, sweep
from spool.tables import jobs

long = pytest.mark.long


def files_of(stack: Stack, job_id: str) -> dict[str, str]:
    return {item.key: item.etag for item in stack.objects.list(f"jobs/{job_id}/")}


def test_a_zombie_writes_nothing(stack: Stack) -> None:
    stack.stop_workers()
    first = stack.worker()
    recording = stack.record()
    with stack.fault(
        "SIGSTOP past the lease, taken over, SIGCONT", note="of the zombie: billed as wasted"
    ) as fault:
        fault.jobs = [stack.submit_stored(recording, "gated")]
        (job_id,) = fault.jobs
        until(stack.gate.with_suffix(".reached").exists, "a batch on the device")
        first.send_signal(signal.SIGSTOP)
        fault.injected = time.monotonic()
        stack.worker("beta")
        until(lambda: stack.job(job_id).attempt == 2, "the job was taken over")
        stack.gate.touch()  # both engines go on
        until(lambda: stack.ended(fault.jobs), "the second worker finished")
        job, saved, files = stack.job(job_id), stack.chunks(job_id), files_of(stack, job_id)
        wasted = stack.billed_ns(wasted=True)
        first.send_signal(signal.SIGCONT)
        until(lambda: stack.billed_ns(wasted=True) > wasted, "the zombie's time was billed as wasted")
    stack.assert_done(fault.jobs)
    assert (job.attempt, job.crashes) == (2, 0)
    assert {chunk.attempt for chunk in saved} == {2}
    assert stack.job(job_id) == job, "not even its time of change"
    assert stack.chunks(job_id) == saved
    assert files_of(stack, job_id) == files
    with stack.db.read() as tx:
        lines = bill_of(tx, job_id)
    assert {(line.attempt, line.wasted) for line in lines} == {(1, True), (2, False)}
    assert 0 < fault.repeated <= len(saved), "what the zombie had in its engine, and nothing that was saved"


@long
def test_a_zombie_killed_as_it_bills_its_waste_bills_it_once(stack: Stack) -> None:
    stack.stop_workers()
    first = stack.worker()
    stack.gate.unlink(missing_ok=True)
    stack.gate.with_suffix(".reached").unlink(missing_ok=True)
    recording = stack.record()
    with stack.fault("kill -9 of a zombie at wasted.committed") as fault:
        fault.jobs = [stack.submit_stored(recording, "gated")]
        (job_id,) = fault.jobs
        until(stack.gate.with_suffix(".reached").exists, "a batch on the device")
        first.send_signal(signal.SIGSTOP)
        stack.worker("beta")
        until(lambda: stack.job(job_id).attempt == 2, "the job was taken over")
        stack.gate.touch()
        until(lambda: stack.ended(fault.jobs), "the second worker finished")
        stack.arm(**{"wasted.committed": "kill"})
        first.send_signal(signal.SIGCONT)
        gone(first)
        fault.injected = time.monotonic()
    stack.assert_done(fault.jobs)
    with stack.db.read() as tx:
        wasted = [line for line in bill_of(tx, job_id) if line.wasted]
    assert len(wasted) == 1


@long
def test_a_zombie_about_to_deliver_writes_nothing_that_counts(stack: Stack) -> None:
    stack.stop_workers()
    first = stack.worker()
    recording = stack.record()
    with stack.fault("SIGSTOP between transcript and row, taken over, SIGCONT") as fault:
        stack.arm(**{"deliver.stored": "stop"})
        fault.jobs = [stack.submit_stored(recording)]
        (job_id,) = fault.jobs
        until(lambda: stack.fired("deliver.stored"), "a transcript stored and no row")
        fault.injected = time.monotonic()
        stack.disarm()
        stack.worker("beta")
        until(lambda: stack.ended(fault.jobs), "the second worker finished")
        job = stack.job(job_id)
        first.send_signal(signal.SIGCONT)
        until(lambda: not any("/attempt-1/" in key for key in files_of(stack, job_id)), "the zombie withdrew")
    stack.assert_done(fault.jobs)
    assert stack.job(job_id) == job
    assert job.transcript_key == f"jobs/{job_id}/attempt-2/transcript.json"
    assert fault.repeated == 0, "all chunks were saved"


@long
def test_a_worker_that_takes_its_own_job_back_does_not_hurt_itself(stack: Stack) -> None:
    stack.stop_workers()
    stack.worker()
    recording = stack.record(600)
    with stack.fault("a worker loses its lease and claims the same job itself") as fault:
        stack.arm(**{"save.begun": "sleep:2"})
        fault.jobs = [stack.submit_stored(recording, "slow")]
        (job_id,) = fault.jobs
        until(lambda: stack.fired("save.begun"), "a thread about to save")
        with stack.db.begin() as tx:
            tx.execute(update(jobs).where(jobs.c.id == job_id).values(lease_until=seconds_from_now(-1)))
            assert sweep(tx, SweepLimits(max_crashes=5)).requeued == (job_id,)
        fault.injected = time.monotonic()
        until(lambda: stack.job(job_id).attempt == 2, "the other thread has it")
    stack.assert_done(fault.jobs)
    assert stack.job(job_id).attempt == 2


@long
def test_the_same_message_five_times_at_once(stack: Stack) -> None:
    stack.stop_workers()
    for name in ("alpha", "beta"):
        stack.worker(name, SPOOL_LEASE_SECONDS="60")
    recordings = [stack.record(60) for _ in range(4)]
    with stack.fault("every message five times, two workers") as fault:
        fault.jobs = [stack.submit_stored(recording) for recording in recordings]
        for job_id in fault.jobs * 5:
            stack.send(job_id)
        fault.injected = time.monotonic()
    stack.assert_done(fault.jobs)
    assert {stack.job(job_id).attempt for job_id in fault.jobs} == {1}
    assert fault.repeated == 0
    stack.stop_workers()


@long
def test_many_sweepers_count_one_death(stack: Stack) -> None:
    worker = stack.worker()
    stack.worker("beta")
    recordings = [stack.record(200) for _ in range(2)]
    apps = [celery_app(stack.settings) for _ in range(3)]
    sweepers = [Sweeper(stack.db, app, stack.settings) for app in apps]
    with stack.fault("kill -9 of a worker under five sweepers") as fault:
        for sweeper in sweepers:
            sweeper.start()
        fault.jobs = [stack.submit_stored(recording, "slow") for recording in recordings]
        until(lambda: all(stack.chunks(job_id) for job_id in fault.jobs), "a chunk of each saved")
        owners = {stack.job(job_id).lease_owner for job_id in fault.jobs}
        worker.kill()
        gone(worker)
        fault.injected = time.monotonic()
        stack.worker()  # which proves the death of the one before
    for sweeper, app in zip(sweepers, apps, strict=True):
        sweeper.stop()
        app.close()
    stack.assert_done(fault.jobs)
    died = {w.id for w in stack.workers() if w.pid == worker.pid}
    for job_id in fault.jobs:
        job = stack.job(job_id)
        # A job that ends before its death is proven has none.
        assert (job.attempt, job.crashes) in {(1, 0), (2, 0), (2, 1)}
    assert owners & died or {stack.job(job_id).crashes for job_id in fault.jobs} == {0}


def test_poison_fails_alone(stack: Stack) -> None:
    stack.worker()
    bad = write_wav(stack.home / "bad.wav", poisoned(speechlike(30, 0.25), ABORT))
    recordings = [stack.record(60) for _ in range(8)]
    with stack.fault("one utterance among nine jobs aborts the engine, as Metal does") as fault:
        job_ids = [stack.submit_stored(recording) for recording in recordings]
        job_ids.insert(3, stack.submit_stored(bad))
        fault.jobs = job_ids
        fault.injected = time.monotonic()
    poison = job_ids.pop(3)
    stack.assert_done(job_ids)
    job = stack.job(poison)
    assert (job.state, job.error_code, job.attempt) == (JobState.FAILED, "engine_crashed", 1)
    with stack.db.read() as tx:
        costs = [job_cost(tx, job_id) for job_id in job_ids]
    assert all(cost.wasted_cost == 0 for cost in costs), "the others pay nothing for it"
    assert all(cost.audio_seconds == 60 for cost in costs)


@long
def test_a_job_that_kills_its_worker_is_set_aside(stack: Stack) -> None:
    recording, innocent = stack.record(60), stack.record(60)
    stack.stop_workers()
    with stack.fault(
        "a job whose every attempt ends with a dead worker", note="set aside at 5 crashes"
    ) as fault:
        fault.jobs = [stack.submit_stored(recording)]
        for _ in range(5):
            stack.arm(**{"claim.committed": "kill"})
            gone(stack.launch("victim"))
        fault.injected = time.monotonic()
        stack.disarm()
        fault.jobs.append(stack.submit_stored(innocent))
        stack.worker("victim")
    job = stack.job(fault.jobs[0])
    assert (job.state, job.error_code, job.crashes) == (JobState.FAILED, "poison", 5)
    stack.assert_done(fault.jobs[1:])


@long
def test_clocks_that_disagree(stack: Stack) -> None:
    stack.stop_workers()
    workers = []
    # Leases that a busy machine cannot lose by being slow: what might end them here is a clock alone.
    environment = {"SPOOL_LEASE_SECONDS": "15"}
    for name, shift in (("ahead", 600), ("behind", -600)):
        workers.append(stack.launch(name, SPOOL_TEST_CLOCK_SHIFT=str(shift), **environment))
    until(lambda: all(map(stack.is_ready, workers)), "both ready")
    stack.stop_apis()
    url = stack.serve("fast", SPOOL_TEST_CLOCK_SHIFT="1200")
    recordings = [stack.record(300) for _ in range(4)]
    name = "kill -9 of one of two workers whose clocks are 20 min apart, an API's 20 min ahead"
    with stack.fault(name, note="leases of 15 s") as fault:
        sent = [post_upload(url, each, f"clocks-{number}", "slow") for number, each in enumerate(recordings)]
        fault.jobs = [str(answer.json()["id"]) for answer in sent]
        until(lambda: all(stack.chunks(job_id) for job_id in fault.jobs), "a chunk of each saved")
        assert [stack.job(job_id).crashes for job_id in fault.jobs] == [0] * 4, "no lease ran out"
        workers[0].kill()
        gone(workers[0])
        fault.injected = time.monotonic()
    stack.assert_done(fault.jobs)
    assert {stack.job(job_id).attempt for job_id in fault.jobs} <= {1, 2}


def test_at_the_end_bills_and_engines_agree(stack: Stack) -> None:
    stack.stop_workers()
    report = stack.audit()
    assert report.clean, report.breaches
