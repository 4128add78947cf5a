"""What counts as a crash: only the end of a worker's process, however often its leases run out."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from ops.testbed.rows import LEASE, claimed, let_lapse, queued, registered, reread
from spool.background import Contact
from spool.domain import JobState, Machine, Rules
from spool.store import (
    ClaimRequest,
    Database,
    NeedsAlone,
    SweepLimits,
    SweepReport,
    cancel_job,
    claim_job,
    claim_next,
    finish_job,
    hand_back,
    heartbeat,
    renew_lease,
    retry_job,
    seconds_from_now,
    stop_worker,
    sweep,
)
from spool.tables import jobs, workers
from tests.spool.store.test_leases import OUTCOME


def swept(db: Database, **limits: Any) -> SweepReport:
    with db.begin() as tx:
        return sweep(tx, SweepLimits(**limits))


def beat(db: Database, worker_id: str) -> None:
    time.sleep(0.002)  # SQLite's clock has milliseconds
    with db.begin() as tx:
        heartbeat(tx, worker_id, "ready", 0)


def worker(db: Database, name: str = "alpha") -> str:
    """A new process of this name."""
    time.sleep(0.002)
    return registered(db, name)


def fell_silent(db: Database, job_id: str, worker_id: str) -> SweepReport:
    """The worker claims the job, and its lease runs out."""
    with db.begin() as tx:
        tx.execute(update(jobs).values(not_before=None))
    claimed(db, job_id, worker_id)
    let_lapse(db, job_id)
    return swept(db)


def suspects(db: Database, job_id: str) -> set[str]:
    with db.read() as tx:
        return set(tx.scalar(select(jobs.c.suspects).where(jobs.c.id == job_id)) or ())


def test_a_worker_frozen_three_times_is_no_crash(db: Database) -> None:
    job_id = queued(db).id
    frozen = worker(db)
    for _ in range(3):
        assert fell_silent(db, job_id, frozen).requeued == (job_id,)
        assert (reread(db, job_id).crashes, suspects(db, job_id)) == (0, {frozen})
        beat(db, frozen)  # it wakes
        assert swept(db).review.withdrawn == ((job_id, frozen),)
        assert (reread(db, job_id).crashes, suspects(db, job_id)) == (0, set())
    last = claimed(db, job_id, frozen)
    with db.begin() as tx:
        finish_job(tx, last, OUTCOME)
    assert reread(db, job_id).state is JobState.DONE


def test_three_workers_frozen_at_once_are_no_crash(db: Database) -> None:
    job_id = queued(db).id
    frozen = [registered(db, name) for name in ("alpha", "beta", "gamma")]
    for each in frozen:
        assert fell_silent(db, job_id, each).poisoned == ()
    assert (reread(db, job_id).state, reread(db, job_id).crashes) == (JobState.QUEUED, 0)
    assert suspects(db, job_id) == set(frozen)

    # A fourth may try, alone and after a pause: nobody knows yet whether the job killed the three.
    fourth = worker(db, "delta")
    with db.begin() as tx:
        assert claim_job(tx, job_id, fourth, LEASE, alone=False) is None
        pause = tx.scalar(select(jobs.c.not_before > seconds_from_now(5)).where(jobs.c.id == job_id))
    assert pause
    claimed(db, job_id, fourth)
    for each in frozen:
        beat(db, each)
    assert len(swept(db).review.withdrawn) == 3
    assert (reread(db, job_id).state, suspects(db, job_id)) == (JobState.RUNNING, set())


def test_three_killed_workers_are_three_crashes_once_each_is_started_again(db: Database) -> None:
    job_id = queued(db).id
    for crashes in (1, 2):
        fell_silent(db, job_id, worker(db))
        assert reread(db, job_id).crashes == crashes - 1
        worker(db)  # a service manager starts the next process of this name on the same host
        assert len(swept(db).review.crashed) == 1
        assert reread(db, job_id).crashes == crashes
    fell_silent(db, job_id, worker(db))
    assert reread(db, job_id).state is JobState.QUEUED
    worker(db)

    assert swept(db).poisoned == (job_id,)

    job = reread(db, job_id)
    assert (job.state, job.error_code, job.crashes) == (JobState.FAILED, "poison", 3)
    with db.begin() as tx:
        assert retry_job(tx, job_id).crashes == 0
    assert suspects(db, job_id) == set()


def test_a_crash_counts_at_once_where_the_process_was_replaced_before_the_lease_ran_out(db: Database) -> None:
    job_id = queued(db).id
    claimed(db, job_id, worker(db))
    worker(db)
    let_lapse(db, job_id)
    swept(db)
    assert (reread(db, job_id).crashes, suspects(db, job_id)) == (1, set())


@pytest.mark.parametrize("name", ["beta", "alpha"])
def test_a_process_of_another_name_or_host_proves_nothing(db: Database, name: str) -> None:
    job_id = queued(db).id
    first = worker(db)
    fell_silent(db, job_id, first)
    other = worker(db, name)
    if name == "alpha":
        with db.begin() as tx:
            tx.execute(update(workers).where(workers.c.id == other).values(host="elsewhere"))
    swept(db)
    assert (reread(db, job_id).crashes, suspects(db, job_id)) == (0, {first})


def test_a_process_that_signs_off_later_had_not_crashed(db: Database) -> None:
    job_id = queued(db).id
    frozen = worker(db)
    fell_silent(db, job_id, frozen)
    time.sleep(0.002)
    with db.begin() as tx:
        stop_worker(tx, frozen)
    assert swept(db).review.withdrawn == ((job_id, frozen),)


def test_a_worker_that_woke_and_was_killed_afterwards_had_not_crashed_before(db: Database) -> None:
    job_id = queued(db).id
    frozen = worker(db)
    fell_silent(db, job_id, frozen)
    beat(db, frozen)
    worker(db)
    swept(db)
    assert (reread(db, job_id).crashes, suspects(db, job_id)) == (0, set())


def test_a_job_that_runs_again_may_finish_though_its_third_crash_is_confirmed_meanwhile(db: Database) -> None:
    job_id = queued(db).id
    with db.begin() as tx:
        tx.execute(update(jobs).values(crashes=2))
    fell_silent(db, job_id, worker(db))
    claim = claimed(db, job_id, worker(db, "beta"))
    worker(db)
    swept(db)
    assert (reread(db, job_id).state, reread(db, job_id).crashes) == (JobState.RUNNING, 3)
    with db.begin() as tx:
        hand_back(tx, claim)
    assert swept(db).poisoned == ()
    last = worker(db, "beta")
    with db.begin() as tx:
        assert claim_job(tx, job_id, last, LEASE) is None
    assert reread(db, job_id).error_code == "poison"


def test_a_suspect_makes_the_last_chance_run_alone(db: Database) -> None:
    job_id = queued(db).id
    for name in ("alpha", "beta"):
        fell_silent(db, job_id, worker(db, name))
    request = ClaimRequest(worker(db, "gamma"), "cpu", "gamma", LEASE, alone=False, machine=Machine())
    with db.begin() as tx:
        assert claim_next(tx, request, Rules()) == NeedsAlone(job_id)


def test_after_an_outage_only_leases_of_ended_processes_are_taken_back(db: Database) -> None:
    first, second = queued(db), queued(db)
    alive = worker(db, "beta")
    claim = claimed(db, first.id, alive)
    killed = worker(db)
    claimed(db, second.id, killed)
    worker(db)
    for job in (first, second):
        let_lapse(db, job.id)

    assert swept(db, only_ended=True).requeued == (second.id,)

    with db.begin() as tx:
        assert renew_lease(tx, claim, LEASE) is False
    assert swept(db).taken == ()
    assert (reread(db, first.id).attempt, suspects(db, first.id)) == (1, set())


def test_a_silent_workers_job_that_was_to_be_cancelled_is_cancelled(db: Database) -> None:
    job_id = queued(db).id
    claimed(db, job_id, worker(db))
    with db.begin() as tx:
        cancel_job(tx, job_id)
    let_lapse(db, job_id)
    assert swept(db).cancelled == (job_id,)
    worker(db)
    assert swept(db).review.crashed == (), "what has ended is not looked at any more"


START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "steady"),
    [
        ([0], [False]),
        ([0, 3, 6, 9, 12, 15, 18, 21], [False] * 7 + [True]),
        ([*range(0, 60, 9)], [False, False, False, True, True, True, True]),
        ([*range(0, 30, 3), 52, 55, 58, 61, 64, 67, 70, 73], [False] * 7 + [True] * 3 + [False] * 7 + [True]),
    ],
    ids=["started", "started a lease ago", "slow sweeps", "an outage"],
)
def test_live_workers_have_the_time_of_a_lease_after_an_outage(
    seconds: Sequence[int], steady: list[bool]
) -> None:
    contact = Contact(lease_seconds=20, sweep_seconds=3)
    assert [contact.note(START + timedelta(seconds=each)) for each in seconds] == steady
