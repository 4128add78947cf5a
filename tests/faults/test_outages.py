"""Outages longer than a lease: of the database, and of workers that freeze and come back. None is a crash."""

import os
import signal
import subprocess
import time
from functools import partial

import psutil
import pytest

from ops.testbed.postgres import PostgresServer
from ops.testbed.stack import Stack, gone, until
from spool.domain import JobState

LIMIT = {"SPOOL_MAX_CRASHES": "3"}
LONG_SECONDS = 1500.0


@pytest.fixture(autouse=True)
def _no_workers(stack: Stack) -> None:
    """None of the test before."""
    stack.stop_workers()


def long_job(stack: Stack) -> str:
    """A job that takes long, since each chunk is saved slowly."""
    stack.arm(**{"save.begun": "sleep:0.4"})
    return stack.submit_stored(stack.record(LONG_SECONDS), "slow")


def next_chunk(stack: Stack, job_id: str) -> None:
    """Wait until another chunk is saved; the job is not over then."""
    saved = len(stack.chunks(job_id))
    until(lambda: len(stack.chunks(job_id)) > saved, "another chunk saved")
    assert not stack.job(job_id).state.terminal, "the recording was too short for this test"


def more_than_a_lease(stack: Stack) -> float:
    return 1.6 * stack.settings.lease_seconds


def signal_all(worker: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    """To the worker and its engine, as to a Mac that sleeps."""
    engine = psutil.Process(worker.pid).children(recursive=True)
    for pid in (*(process.pid for process in engine), worker.pid):
        os.kill(pid, number)


def test_a_database_that_stops_three_times_for_longer_than_a_lease(
    stack: Stack, postgres: PostgresServer
) -> None:
    worker = stack.worker(**LIMIT)
    with stack.fault("PostgreSQL stopped three times for longer than a lease, and one kill -9") as fault:
        job_id = long_job(stack)
        fault.jobs = [job_id]
        next_chunk(stack, job_id)
        worker.kill()
        gone(worker)
        stack.worker(**LIMIT)
        for _ in range(3):
            next_chunk(stack, job_id)
            postgres.stop(abruptly=True)
            time.sleep(more_than_a_lease(stack))
            postgres.start()
        fault.injected = time.monotonic()
        next_chunk(stack, job_id)
        stack.disarm()
    stack.assert_done([job_id])
    job = stack.job(job_id)
    assert (job.attempt, job.crashes) == (2, 1), "the kill alone, and the outages cost no attempt"


@pytest.mark.long
@pytest.mark.parametrize(
    "others",
    [pytest.param((), id="nobody else"), pytest.param(("beta",), id="taken over")],
)
def test_a_worker_frozen_three_times_for_longer_than_its_lease(stack: Stack, others: tuple[str, ...]) -> None:
    names = ("alpha", *others)
    workers = {name: stack.worker(name, **LIMIT) for name in names}
    with stack.fault(f"SIGSTOP of a worker three times beyond its lease, {len(others)} others") as fault:
        job_id = long_job(stack)
        fault.jobs = [job_id]
        for _ in range(3):
            until(lambda: stack.job(job_id).state is JobState.RUNNING, "the job runs")
            next_chunk(stack, job_id)
            owner = stack.job(job_id).lease_owner
            name = next(w.name for w in stack.workers() if w.id == owner)
            signal_all(workers[name], signal.SIGSTOP)
            fault.injected = time.monotonic()
            if others:
                attempt = stack.job(job_id).attempt
                until(
                    partial(lambda before: stack.job(job_id).attempt > before, attempt),
                    "another took it over",
                )
            else:
                time.sleep(more_than_a_lease(stack))
            signal_all(workers[name], signal.SIGCONT)
        next_chunk(stack, job_id)
        stack.disarm()
    stack.assert_done([job_id])
    assert stack.job(job_id).crashes == 0
    stack.stop_workers()
    assert stack.audit().clean


@pytest.mark.long
def test_three_workers_frozen_one_after_the_other(stack: Stack) -> None:
    workers = {name: stack.worker(name, **LIMIT) for name in ("alpha", "beta", "gamma")}
    with stack.fault("three workers stopped one after the other, and woken when all sleep") as fault:
        job_id = long_job(stack)
        fault.jobs = [job_id]
        for number in range(1, 4):
            until(partial(lambda wanted: stack.job(job_id).attempt == wanted, number), "the next has it")
            next_chunk(stack, job_id)
            owner = stack.job(job_id).lease_owner
            name = next(w.name for w in stack.workers() if w.id == owner)
            signal_all(workers[name], signal.SIGSTOP)
        fourth = stack.worker("delta", **LIMIT)
        until(lambda: stack.job(job_id).attempt == 4, "a fourth has it, alone")
        assert fourth.poll() is None
        fault.injected = time.monotonic()
        for worker in workers.values():
            signal_all(worker, signal.SIGCONT)
        stack.disarm()
    stack.assert_done([job_id])
    assert stack.job(job_id).crashes == 0


def test_three_kills_of_restarted_workers_are_poison(stack: Stack) -> None:
    """As a service manager restarts them, which proves that the process before has ended."""
    with stack.fault("kill -9 of a worker at its claim, three times", note="set aside at 3 crashes") as fault:
        fault.jobs = [stack.submit_stored(stack.record(60))]
        for _ in range(3):
            stack.arm(**{"claim.committed": "kill"})
            gone(stack.launch("victim", **LIMIT))
        fault.injected = time.monotonic()
        stack.disarm()
        stack.worker("victim", **LIMIT)
    job = stack.job(fault.jobs[0])
    assert (job.state, job.error_code, job.crashes) == (JobState.FAILED, "poison", 3)


def test_at_the_end_bills_and_engines_agree(stack: Stack) -> None:
    report = stack.audit()
    assert report.clean, report.breaches
