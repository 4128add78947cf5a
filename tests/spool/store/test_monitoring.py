"""What a monitor is told is what the tables say."""

from dataclasses import replace

from sqlalchemy import update

from ops.testbed.rows import bill, chunk, claimed, let_lapse, queued, registered
from spool.domain import HIGH, JobState, WorkCounts
from spool.store import (
    Audited,
    Database,
    SweepLimits,
    fail_job,
    heartbeat,
    keep_audit,
    read_gauges,
    save_chunk,
    seconds_from_now,
    stop_worker,
    sweep,
    write_charge,
)
from spool.tables import audits, jobs, workers


def test_an_empty_house(db: Database) -> None:
    with db.read() as tx:
        gauges = read_gauges(tx)
    assert (gauges.waiting, gauges.running, gauges.fleet, gauges.today) == ((), {}, (), ())
    assert {(one.state, one.jobs) for one in gauges.ended} == {(JobState.DONE, 0), (JobState.CANCELLED, 0)}


def test_jobs_money_and_workers_are_counted(db: Database) -> None:
    worker, gone = registered(db), registered(db)
    first = queued(db)
    queued(db)
    urgent_id = queued(db).id
    with db.begin() as tx:
        tx.execute(update(jobs).where(jobs.c.id == urgent_id).values(priority=HIGH))
    claim = claimed(db, worker_id=worker)
    broken = claimed(db, worker_id=worker)
    with db.begin() as tx:
        save_chunk(tx, claim, chunk(0), bill(worker, 2_000_000_000))
        write_charge(tx, claim.job.id, 1, bill(worker, 500_000_000), wasted=True)
        fail_job(tx, broken, "audio_unreadable", "It is a text file.")
        heartbeat(tx, worker, "ready", 2_500_000_000)
        stop_worker(tx, gone)

    with db.read() as tx:
        gauges = read_gauges(tx)

    urgent, waiting = gauges.waiting
    assert (urgent.priority, urgent.jobs, waiting.priority) == ("high", 1, "normal")
    assert (waiting.pool, waiting.jobs, waiting.oldest) == (first.pool, 2, first.queued_at)
    assert gauges.now >= waiting.oldest
    assert gauges.running == {first.pool: 1}
    failed = [one for one in gauges.ended if one.state is JobState.FAILED]
    assert [(one.error, one.jobs) for one in failed] == [("audio_unreadable", 1)]
    assert gauges.unsent == 5, "one a job: nothing was sent here"
    (spent,) = gauges.today
    assert gauges.month == gauges.today
    assert (spent.engine_seconds, spent.wasted_seconds, spent.audio_seconds) == (2.0, 0.5, 30.0)
    assert spent.billable_nanos == 4 * spent.wasted_nanos > 0
    assert [one.worker.id for one in gauges.fleet] == [worker]
    with db.read() as tx:
        own, other = read_gauges(tx, claim.job.project), read_gauges(tx, "another")
    assert (own.today, own.waiting, own.running, own.ended) == (
        gauges.today,
        gauges.waiting,
        gauges.running,
        gauges.ended,
    )
    assert (own.fleet, own.unsent) == ((), 0), "the house's alone"
    assert gauges.month_by_project == {claim.job.project: spent.billable_nanos}
    assert (other.today, other.waiting, other.running) == ((), (), {})
    assert not any(one.jobs for one in other.ended)


def test_what_a_worker_counted_outlives_its_processes(db: Database) -> None:
    # Given a worker that died, came back, and beats; and one that stopped in good order
    first, second, stopped = registered(db), registered(db), registered(db, name="gone")
    with db.begin() as tx:
        heartbeat(tx, first, "ready", 5_000, counts=WorkCounts(idle_ns=7).with_batch((3, 1)).with_batch((2,)))
        heartbeat(tx, second, "ready", 1_000, counts=replace(WorkCounts(), attempts={"failed/poison": 2}))
        stop_worker(tx, stopped, 9_000, 0, WorkCounts(idle_ns=9))

    # Then its counts are one sum, told once, under the process that lives
    with db.read() as tx:
        (member,) = read_gauges(tx).fleet
    assert (member.worker.id, member.engine_busy_ns) == (second, 6_000)
    counts = member.counts
    assert (counts.idle_ns, counts.utterance_samples, counts.padding_samples) == (7, 6, 2)
    assert (counts.utterances, counts.sizes[:3], counts.attempts) == (3, (1, 1, 0), {"failed/poison": 2})

    # And when the name stops in good order nobody misses it
    with db.begin() as tx:
        stop_worker(tx, second)
        stop_worker(tx, first)
        assert read_gauges(tx).fleet == ()


def test_a_dead_worker_is_missed_for_a_week(db: Database) -> None:
    missed, forgotten = registered(db, name="missed"), registered(db, name="forgotten")
    with db.begin() as tx:
        for worker, days in ((missed, 6), (forgotten, 8)):
            silent = seconds_from_now(-days * 24 * 3600.0)
            tx.execute(update(workers).where(workers.c.id == worker).values(seen_at=silent))
        (member,) = read_gauges(tx).fleet
    assert (member.worker.id, member.worker.alive) == (missed, False)


def test_leases_that_ran_out_and_audits_are_told(db: Database) -> None:
    worker = registered(db)
    for _ in range(2):
        let_lapse(db, claimed(db, worker_id=worker).job.id)
    with db.begin() as tx:
        assert read_gauges(tx).audited is None
        sweep(tx, SweepLimits())
    for breaches in (3, 0):
        with db.begin() as tx:
            tx.execute(update(audits).values(ended_at=seconds_from_now(-60)))
            keep_audit(tx, Audited({"owned": breaches}, {"jobs": 2}, objects=True, version="1"))
    with db.read() as tx:
        gauges = read_gauges(tx)
    assert gauges.leases_lost == {"cpu": 2}
    assert gauges.audited is not None
    assert gauges.audited.breaches == {"owned": 0}, "the latest counts"
