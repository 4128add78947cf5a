"""Messages to be sent, the sweep and the locks, on SQLite and on PostgreSQL."""

import threading
from typing import Any

import pytest
from sqlalchemy import select, update

from ops.testbed.rows import claimed, let_lapse, new_job, queued, reread
from spool.domain import JobState, Rules
from spool.store import (
    Database,
    Hint,
    NewJob,
    SweepLimits,
    SweepReport,
    cancel_job,
    count_runnable,
    create_job,
    due_hints,
    due_queues,
    fail_job,
    give_back_hints,
    hand_back,
    mark_sent,
    seconds_from_now,
    sweep,
    try_lock,
    unlock,
)
from spool.tables import idempotency, jobs, outbox

NOTHING = SweepReport((), (), (), ())


def take(db: Database, limit: int = 100, queue: str | None = None) -> list[Hint]:
    with db.begin() as tx:
        return due_hints(tx, limit, queue)


def sent(db: Database) -> list[str]:
    """Send all there is to send; the job ids."""
    hints = take(db)
    with db.begin() as tx:
        mark_sent(tx, hints)
    return [hint.job_id for hint in hints]


def swept(db: Database, **limits: Any) -> SweepReport:
    with db.begin() as tx:
        return sweep(tx, SweepLimits(**limits))


def long_ago(db: Database) -> None:
    """As if every queued job had been queued and sent an hour ago."""
    with db.begin() as tx:
        hour = seconds_from_now(-3600)
        tx.execute(update(jobs).where(jobs.c.hinted_at.is_not(None)).values(hinted_at=hour))
        tx.execute(update(jobs).values(queued_at=hour))


def test_hints_come_in_the_order_of_submission_and_go_once(db: Database) -> None:
    made = [queued(db).id for _ in range(3)]

    first = take(db, limit=2)
    assert [hint.job_id for hint in first] == made[:2]
    assert [hint.job_id for hint in take(db)] == made[2:]
    assert take(db) == [], "taken hints are not due"

    with db.begin() as tx:
        mark_sent(tx, first)
    with db.read() as tx:
        assert [row.job_id for row in tx.execute(select(outbox))] == made[2:]


def test_hints_of_jobs_that_ended_are_swept(db: Database) -> None:
    ended = [claimed(db) for _ in range(5)]
    waiting, running = queued(db).id, claimed(db).job.id
    for claim in ended:
        with db.begin() as tx:
            fail_job(tx, claim, "audio", "No.")
    swept(db, batch=2)
    with db.read() as tx:
        assert sorted(tx.scalars(select(outbox.c.job_id))) == sorted([waiting, running])


def test_hints_of_a_relay_that_died_or_failed_are_due_again(db: Database) -> None:
    job = queued(db)
    hints = take(db)
    with db.begin() as tx:
        give_back_hints(tx, hints)
    assert [hint.job_id for hint in take(db)] == [job.id]

    with db.begin() as tx:  # half a minute later, nobody having said anything
        tx.execute(update(outbox).values(due_at=seconds_from_now(-1)))
    assert [hint.job_id for hint in take(db)] == [job.id]


def test_relays_at_once_take_each_hint_once(db: Database) -> None:
    made = {queued(db).id for _ in range(20)}
    start = threading.Barrier(5)
    taken: list[str] = []

    def relay() -> None:
        start.wait()
        while hints := take(db, limit=3):
            taken.extend(hint.job_id for hint in hints)

    threads = [threading.Thread(target=relay) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(taken) == 20
    assert set(taken) == made


def test_queues_are_counted_and_taken_apart(db: Database) -> None:
    queued(db)
    pinned = queued(db, pool="metal", worker="mini")

    with db.read() as tx:
        assert sorted(due_queues(tx)) == ["spool.cpu", "spool.metal;at:mini"]
        assert count_runnable(tx, Rules(), 10) == {"spool.cpu": 1, "spool.metal;at:mini": 1}
    assert [hint.job_id for hint in take(db, queue="spool.metal;at:mini")] == [pinned.id]
    with db.read() as tx:
        assert due_queues(tx) == ["spool.cpu"]


def test_a_delayed_hint_is_not_due_yet(db: Database) -> None:
    claim = claimed(db)
    sent(db)
    with db.begin() as tx:
        hand_back(tx, claim, delay_seconds=60)
    assert take(db) == []
    assert swept(db, hint_stale_seconds=0.001) == NOTHING, "and the sweep leaves it its time"


def test_a_sweep_of_a_healthy_house_does_nothing(db: Database) -> None:
    queued(db)
    sent(db)
    queued(db)
    claimed(db)
    assert swept(db) == NOTHING


def test_a_queued_job_that_redis_forgot_is_sent_again(db: Database) -> None:
    forgotten = [queued(db).id for _ in range(3)]
    sent(db)
    running = claimed(db).job.id
    sent(db)
    ended = queued(db).id
    sent(db)
    with db.begin() as tx:
        cancel_job(tx, ended)
    long_ago(db)

    report = swept(db)

    assert set(report.rehinted) == set(forgotten)
    assert not {running, ended} & set(report.rehinted)
    assert {hint.job_id for hint in take(db)} == set(forgotten)
    assert swept(db).rehinted == (), "one message at a time"


def test_repeats_are_bounded_by_room_and_take_turns(db: Database) -> None:
    made = [queued(db).id for _ in range(5)]
    pinned = queued(db, worker="mini").id
    sent(db)
    long_ago(db)

    first = swept(db, room={"spool.cpu": 2})
    assert len(first.rehinted) == 2
    sent(db)
    second = swept(db, room={"spool.cpu": 2, "spool.cpu;at:mini": 0})
    assert len(second.rehinted) == 2
    assert not set(first.rehinted) & set(second.rehinted)
    assert pinned not in first.rehinted + second.rehinted
    assert set(first.rehinted + second.rehinted) < set(made)


def test_lapsed_leases_are_taken_back_each_as_it_deserves(db: Database) -> None:
    fresh = claimed(db).job.id
    dead = claimed(db).job.id
    poison = claimed(db).job.id
    asked = claimed(db).job.id
    with db.begin() as tx:
        cancel_job(tx, asked)
        tx.execute(update(jobs).where(jobs.c.id == poison).values(crashes=2))
    sent(db)
    for job_id in (dead, poison, asked):
        let_lapse(db, job_id)

    report = swept(db)

    assert report == SweepReport(requeued=(dead,), poisoned=(poison,), cancelled=(asked,), rehinted=())
    states = {job_id: reread(db, job_id).state for job_id in (fresh, dead, poison, asked)}
    assert states == {
        fresh: JobState.RUNNING,
        dead: JobState.QUEUED,
        poison: JobState.FAILED,
        asked: JobState.CANCELLED,
    }
    assert (reread(db, dead).crashes, reread(db, poison).error_code) == (1, "poison")
    assert [hint.job_id for hint in take(db)] == [dead]


def test_sweeps_at_once_count_a_death_once(db: Database) -> None:
    dead = [claimed(db).job.id for _ in range(6)]
    for job_id in dead:
        let_lapse(db, job_id)
    start = threading.Barrier(4)
    reports: list[SweepReport] = []

    def run() -> None:
        start.wait()
        reports.append(swept(db, batch=2))
        reports.append(swept(db))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(job_id for report in reports for job_id in report.requeued) == sorted(dead)
    assert [reread(db, job_id).crashes for job_id in dead] == [1] * 6


def test_old_idempotency_keys_are_forgotten_and_jobs_are_not(db: Database) -> None:
    asked = new_job(idempotency_key="k", request_hash="a" * 64)
    with db.begin() as tx:
        old, _ = create_job(tx, asked)
        create_job(tx, NewJob(**vars(asked) | {"idempotency_key": "young"}))
        tx.execute(
            update(idempotency)
            .where(idempotency.c.key == "k")
            .values(created_at=seconds_from_now(-8 * 24 * 3600))
        )
    swept(db)

    with db.read() as tx:
        assert list(tx.scalars(select(idempotency.c.key))) == ["young"]
    assert reread(db, old.id).state is JobState.QUEUED


def test_marking_sent_what_has_been_deleted_or_finished_does_no_harm(db: Database) -> None:
    claim = claimed(db)
    hints = take(db)
    with db.begin() as tx:
        fail_job(tx, claim, "audio", "No.")
    with db.begin() as tx:
        mark_sent(tx, hints)
        mark_sent(tx, hints)
        mark_sent(tx, [])
    assert reread(db, claim.job.id).state is JobState.FAILED


def test_a_lock_has_one_owner_until_it_is_given_up_or_runs_out(db: Database) -> None:
    def locked(owner: str, seconds: float = 60) -> bool:
        with db.begin() as tx:
            return try_lock(tx, "sweep", owner, seconds)

    assert locked("a")
    assert not locked("b")
    assert locked("a"), "its owner may keep it"
    with db.begin() as tx:
        unlock(tx, "sweep", "b")
    assert not locked("b"), "nobody else gives it up"
    with db.begin() as tx:
        unlock(tx, "sweep", "a")
    assert locked("b", seconds=-1)
    assert locked("a"), "it ran out"


def test_of_many_that_want_a_lock_one_gets_it(db: Database) -> None:
    start = threading.Barrier(8)
    owners: list[str] = []

    def want(owner: str) -> None:
        start.wait()
        with db.begin() as tx:
            if try_lock(tx, "sweep", owner, 60):
                owners.append(owner)

    threads = [threading.Thread(target=want, args=(f"o{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(owners) == 1


def test_who_does_not_get_a_lock_waits_for_nobody(postgres_url: str) -> None:
    db, other = Database(postgres_url), Database(postgres_url)
    with db.begin() as tx:
        assert try_lock(tx, "sweep", "a", 60)
    with db.begin() as owner:
        assert try_lock(owner, "sweep", "a", 60)  # holds the row until the end of its transaction
        with other.begin() as tx:
            tx.exec_driver_sql("SET LOCAL lock_timeout = '1ms'")
            assert not try_lock(tx, "sweep", "b", 60)
    db.close()
    other.close()


@pytest.mark.parametrize("value", ["ü" * 200, "a b/c;DROP TABLE jobs", "😀"])
def test_names_of_any_kind_are_kept(db: Database, value: str) -> None:
    assert reread(db, queued(db, name=value, project=value[:200]).id).name == value
