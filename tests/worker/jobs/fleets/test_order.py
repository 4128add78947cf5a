"""A worker takes the job whose turn it is, whatever messages lie in Redis: real Celery, Redis, SQLite."""

from pathlib import Path

from ops.testbed.jobs import speechlike, write_wav
from ops.testbed.processes import Fleet, drained
from ops.testbed.waiting import until
from spool.broker import queue_depth
from spool.broker.celery_app import celery_app
from spool.domain import HIGH, LOW, JobOptions, Source, queue_name
from spool.store import NewJob, create_job


def test_a_high_job_overtakes_what_lies_in_redis_and_a_quota_of_one_runs_one_by_one(
    tmp_path: Path, sqlite_url: str, redis_url: str
) -> None:
    gate = tmp_path / "gate"
    fleet = Fleet(
        tmp_path,
        sqlite_url,
        redis_url,
        SPOOL_MODELS=f"plain=plain,gated=gate={gate}",
        SPOOL_DEFAULT_MODEL="plain",
        SPOOL_LEASE_SECONDS="60",
        SPOOL_CONCURRENCY="2",
        SPOOL_QUOTAS="default=jobs_in_flight:1",
    )
    path = write_wav(tmp_path / "a.wav", speechlike(5))

    def submit(priority: int) -> str:
        source = Source("file", path.as_uri(), path.stat().st_size)
        new = NewJob(source, JobOptions(model="plain"), path.name, priority=priority)
        with fleet.db.begin() as tx:
            return create_job(tx, new)[0].id

    app = celery_app(fleet.settings)
    try:
        first = fleet.submit(path, model="gated")
        worker = fleet.start()
        until(gate.with_suffix(".reached").exists, "the first job runs")
        low = [submit(LOW) for _ in range(3)]
        # Their messages come, find the project at its limit, and are used up.
        queue = queue_name("cpu")
        until(lambda: _nothing_unsent(fleet) and not queue_depth(app, queue), "all messages used up")
        high = submit(HIGH)
        gate.touch()
        until(lambda: fleet.ended([first, *low, high]), "all jobs ended")
        started = sorted((fleet.job(one).started_at, one) for one in (first, *low, high))
        assert [one for _, one in started][:2] == [first, high]
        ends = [fleet.job(one).finished_at for _, one in started]
        for (begun, _), ended in zip(started[1:], ends, strict=False):
            assert begun is not None
            assert ended is not None
            assert begun >= ended, "never two at once"
        assert drained(worker) == 0
    finally:
        app.close()
        fleet.close()


def _nothing_unsent(fleet: Fleet) -> bool:
    with fleet.db.read() as tx:
        return tx.exec_driver_sql("SELECT count(*) FROM outbox").scalar_one() == 0
