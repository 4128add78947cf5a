"""Claims, leases and the fence, on SQLite and on PostgreSQL."""

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import Connection, select

from ops.testbed.rows import LEASE, bill, chunk, claimed, let_lapse, queued, registered, reread
from spool.domain import JobState
from spool.errors import LeaseLost
from spool.store import (
    Claim,
    Database,
    Outcome,
    SweepLimits,
    cancel_claimed,
    cancel_job,
    claim_job,
    fail_job,
    finish_job,
    hand_back,
    load_chunks,
    renew_lease,
    retry_job,
    save_chunk,
    set_progress,
    sweep,
)
from spool.tables import cost_lines, jobs, outbox

OUTCOME = Outcome(60.0, "jobs/x/transcript.json", "0" * 64, 1.0, 12)


def test_a_claim_takes_the_job_and_raises_its_attempt(db: Database) -> None:
    job = queued(db)

    claim = claimed(db, job.id, "wrk_a")

    assert claim.attempt == claim.job.attempt == 1
    now = reread(db, job.id)
    assert (now.state, now.lease_owner) == (JobState.RUNNING, "wrk_a")
    assert now.lease_until is not None
    assert 50 < (now.lease_until - now.updated_at).total_seconds() <= 61
    assert now.started_at is not None


def test_there_is_nothing_to_claim_of_a_job_that_is_owned_ended_or_unknown(db: Database) -> None:
    owned = claimed(db).job.id
    done = claimed(db)
    with db.begin() as tx:
        finish_job(tx, done, OUTCOME)
    cancelled = queued(db).id
    with db.begin() as tx:
        cancel_job(tx, cancelled)

    for job_id in (owned, done.job.id, cancelled, "job_unknown"):
        with db.begin() as tx:
            assert claim_job(tx, job_id, "wrk_b", LEASE) is None
    assert reread(db, owned).attempt == 1


@pytest.mark.parametrize("lapsed", [False, True])
def test_of_many_claims_at_once_exactly_one_wins(db: Database, lapsed: bool) -> None:
    job_id = queued(db).id
    if lapsed:
        claimed(db, job_id, "wrk_dead")
        let_lapse(db, job_id)
    start = threading.Barrier(12)
    won: list[Claim] = []

    def run(name: str) -> None:
        start.wait()
        with db.begin() as tx:
            claim = claim_job(tx, job_id, name, LEASE)
        if claim is not None:
            won.append(claim)

    threads = [threading.Thread(target=run, args=(f"wrk_{number}",)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(won) == 1
    job = reread(db, job_id)
    assert (job.lease_owner, job.attempt) == (won[0].worker_id, 2 if lapsed else 1)
    assert job.crashes == (1 if lapsed else 0)


def test_a_job_is_finished(db: Database) -> None:
    claim = claimed(db)
    with db.begin() as tx:
        set_progress(tx, claim, 30.0, 60.0)
    assert (reread(db, claim.job.id).done_seconds, reread(db, claim.job.id).audio_seconds) == (30.0, 60.0)

    with db.begin() as tx:
        finish_job(tx, claim, OUTCOME)

    job = reread(db, claim.job.id)
    assert (job.state, job.done_seconds, job.coverage, job.words) == (JobState.DONE, 60.0, 1.0, 12)
    assert (job.transcript_key, job.transcript_sha256) == (OUTCOME.transcript_key, OUTCOME.transcript_sha256)
    assert (job.lease_owner, job.lease_until) == (None, None)
    assert job.finished_at is not None


def test_handing_back_queues_the_job_without_a_death(db: Database) -> None:
    claim = claimed(db)

    with db.begin() as tx:
        hand_back(tx, claim)

    job = reread(db, claim.job.id)
    assert (job.state, job.crashes, job.lease_owner) == (JobState.QUEUED, 0, None)
    with db.read() as tx:
        assert len(tx.execute(select(outbox).where(outbox.c.job_id == job.id)).all()) == 2
    assert claimed(db, job.id).attempt == 2


def test_the_error_of_an_attempt_shows_until_the_next_one_ends(db: Database) -> None:
    error = ("storage", "The object store does not answer.")
    first, other = claimed(db), claimed(db)
    with db.begin() as tx:
        for claim in (first, other):
            hand_back(tx, claim, error=error)
    assert (reread(db, first.job.id).error_code, reread(db, first.job.id).error_message) == error

    again, lapsed = claimed(db, first.job.id, "wrk_b"), claimed(db, other.job.id, "wrk_b")
    with db.begin() as tx:
        cancel_job(tx, again.job.id)
        cancel_claimed(tx, again)
    let_lapse(db, lapsed.job.id)
    with db.begin() as tx:
        sweep(tx, SweepLimits())
    for job_id, state in ((first.job.id, JobState.CANCELLED), (other.job.id, JobState.QUEUED)):
        job = reread(db, job_id)
        assert (job.state, job.error_code, job.error_message) == (state, None, None)


def test_handing_back_a_job_that_was_to_be_cancelled_cancels_it(db: Database) -> None:
    claim = claimed(db)
    with db.begin() as tx:
        cancel_job(tx, claim.job.id)
    with db.begin() as tx:
        hand_back(tx, claim, error=("storage", "The object store does not answer."))

    job = reread(db, claim.job.id)
    assert (job.state, job.error_code) == (JobState.CANCELLED, None)
    with db.begin() as tx:  # and a retry starts afresh
        assert not retry_job(tx, claim.job.id).cancel_requested


FENCED: dict[str, Callable[[Connection, Claim], object]] = {
    "renew": lambda tx, claim: renew_lease(tx, claim, LEASE),
    "progress": lambda tx, claim: set_progress(tx, claim, 1.0),
    "hand back": lambda tx, claim: hand_back(tx, claim),
    "finish": lambda tx, claim: finish_job(tx, claim, OUTCOME),
    "fail": lambda tx, claim: fail_job(tx, claim, "audio", "No."),
    "cancel": lambda tx, claim: cancel_claimed(tx, claim),
    "save": lambda tx, claim: save_chunk(tx, claim, chunk(), bill(claim.worker_id)),
}


@pytest.mark.parametrize("write", FENCED.values(), ids=FENCED.keys())
@pytest.mark.parametrize("after", ["taken over", "handed back", "taken over by itself", "ended"])
def test_a_worker_that_lost_its_lease_writes_nothing(
    db: Database, write: Callable[[Connection, Claim], object], after: str
) -> None:
    # Given a worker that slept through its lease
    zombie = registered(db, "zombie")
    claim = claimed(db, worker_id=zombie)
    let_lapse(db, claim.job.id)
    if after == "taken over":
        claimed(db, claim.job.id, registered(db, "heir"))
    elif after == "taken over by itself":
        claimed(db, claim.job.id, zombie)
    elif after == "handed back":
        with db.begin() as tx:
            hand_back(tx, claim)
    else:
        with db.begin() as tx:
            fail_job(tx, claim, "audio", "Ended.")
    before = reread(db, claim.job.id)

    # When it wakes and writes
    with pytest.raises(LeaseLost, match=claim.job.id), db.begin() as tx:
        write(tx, claim)

    # Then nothing has changed
    assert reread(db, claim.job.id) == before
    with db.read() as tx:
        assert load_chunks(tx, claim.job.id) == []
        assert tx.execute(select(cost_lines)).all() == []


def test_a_late_worker_that_nobody_replaced_goes_on(db: Database) -> None:
    claim = claimed(db)
    let_lapse(db, claim.job.id)
    with db.begin() as tx:
        assert renew_lease(tx, claim, LEASE) is False
    with db.begin() as tx:
        assert claim_job(tx, claim.job.id, "wrk_b", LEASE) is None


def test_a_job_whose_workers_die_is_set_aside_at_the_third(db: Database) -> None:
    job_id = queued(db).id
    for death in (1, 2):
        claimed(db, job_id, f"wrk_{death}")
        let_lapse(db, job_id)
    last = claimed(db, job_id, "wrk_3")
    assert (last.job.crashes, last.attempt) == (2, 3)
    let_lapse(db, job_id)

    with db.begin() as tx:
        assert claim_job(tx, job_id, "wrk_4", LEASE) is None

    job = reread(db, job_id)
    assert (job.state, job.error_code, job.crashes) == (JobState.FAILED, "poison", 3)
    assert job.error_message is not None
    assert "3 attempts" in job.error_message
    with db.begin() as tx:  # a person may insist
        retried = retry_job(tx, job_id)
    assert (retried.crashes, retried.retries) == (0, 1)
    assert claimed(db, job_id).attempt == 4


def test_a_lower_limit_sets_a_waiting_job_aside(db: Database) -> None:
    job_id = queued(db).id
    claimed(db, job_id)
    let_lapse(db, job_id)
    claim = claimed(db, job_id)
    with db.begin() as tx:
        hand_back(tx, claim)

    with db.begin() as tx:
        assert claim_job(tx, job_id, "wrk_b", LEASE, max_crashes=1) is None

    assert reread(db, job_id).error_code == "poison"


def test_a_dead_workers_job_that_was_to_be_cancelled_is_cancelled(db: Database) -> None:
    claim = claimed(db)
    with db.begin() as tx:
        cancel_job(tx, claim.job.id)
    let_lapse(db, claim.job.id)

    with db.begin() as tx:
        assert claim_job(tx, claim.job.id, "wrk_b", LEASE) is None

    assert reread(db, claim.job.id).state is JobState.CANCELLED


def test_a_takeover_waits_for_a_save_in_progress(postgres_url: str) -> None:
    """PostgreSQL: the fence is a row lock; no takeover slips between a save's check and its commit."""
    db = Database(postgres_url)
    worker = registered(db)
    claim = claimed(db, worker_id=worker)
    let_lapse(db, claim.job.id)
    heirs: list[Claim | None] = []

    def take_over() -> None:
        with db.begin() as tx:
            heirs.append(claim_job(tx, claim.job.id, "wrk_heir", LEASE))

    with db.begin() as tx:
        save_chunk(tx, claim, chunk(), bill(worker))
        thread = threading.Thread(target=take_over)
        thread.start()
        while not _waiting_for_a_lock(db):
            thread.join(0.01)
            assert thread.is_alive(), "the takeover did not wait"
    thread.join()

    assert [heir.attempt for heir in heirs if heir] == [2]
    with db.read() as tx:
        assert [saved.attempt for saved in load_chunks(tx, claim.job.id)] == [1]
    db.close()


def _waiting_for_a_lock(db: Database) -> bool:
    with db.read() as tx:
        waiting = tx.exec_driver_sql(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        return bool(waiting.scalar_one())


def test_every_job_keeps_its_lease_columns_in_step_with_its_state(db: Database) -> None:
    claimed(db)
    queued(db)
    with db.read() as tx:
        for state, owner, until in tx.execute(select(jobs.c.state, jobs.c.lease_owner, jobs.c.lease_until)):
            assert (state == "running") == (owner is not None) == (until is not None)
