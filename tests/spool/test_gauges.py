"""What a monitor is told is what the tables say."""

from spool.jobs import JobState
from spool.store import Database
from spool.store.chunks import save_chunk
from spool.store.costs import charge
from spool.store.gauges import read_gauges
from spool.store.leases import fail_job
from spool.store.workers import heartbeat, stop_worker
from tests.spool.making import bill, chunk, claimed, queued, registered


def test_an_empty_house(db: Database) -> None:
    with db.read() as tx:
        gauges = read_gauges(tx)
    assert (gauges.waiting, gauges.running, gauges.workers, gauges.today) == ((), {}, (), ())
    assert {(one.state, one.jobs) for one in gauges.ended} == {(JobState.DONE, 0), (JobState.CANCELLED, 0)}


def test_jobs_money_and_workers_are_counted(db: Database) -> None:
    worker, gone = registered(db), registered(db)
    first = queued(db)
    queued(db)
    claim = claimed(db, worker_id=worker)
    broken = claimed(db, worker_id=worker)
    with db.begin() as tx:
        save_chunk(tx, claim, chunk(0), bill(worker, 2_000_000_000))
        charge(tx, claim.job.id, 1, bill(worker, 500_000_000), wasted=True)
        fail_job(tx, broken, "audio_unreadable", "It is a text file.")
        heartbeat(tx, worker, "ready", 2_500_000_000)
        stop_worker(tx, gone)

    with db.read() as tx:
        gauges = read_gauges(tx)

    (waiting,) = gauges.waiting
    assert (waiting.pool, waiting.jobs, waiting.oldest) == (first.pool, 2, first.queued_at)
    assert gauges.now >= waiting.oldest
    assert gauges.running == {first.pool: 1}
    failed = [one for one in gauges.ended if one.state is JobState.FAILED]
    assert [(one.error, one.jobs) for one in failed] == [("audio_unreadable", 1)]
    assert gauges.unsent == 4, "one a job: nothing was sent here"
    (spent,) = gauges.today
    assert gauges.month == gauges.today
    assert (spent.engine_seconds, spent.wasted_seconds, spent.audio_seconds) == (2.0, 0.5, 30.0)
    assert spent.billable_nanos == 4 * spent.wasted_nanos > 0
    assert [one.info.id for one in gauges.workers] == [worker]
    with db.read() as tx:
        own, other = read_gauges(tx, claim.job.project), read_gauges(tx, "another")
    assert (own.today, own.waiting, own.running, own.ended) == (
        gauges.today,
        gauges.waiting,
        gauges.running,
        gauges.ended,
    )
    assert (own.workers, own.unsent) == ((), 0), "the house's alone"
    assert gauges.month_by_project == {claim.job.project: spent.billable_nanos}
    assert (other.today, other.waiting, other.running) == ((), (), {})
    assert not any(one.jobs for one in other.ended)
