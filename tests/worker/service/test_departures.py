"""A worker that ended by itself while the database was away is no crash of the jobs that it held."""

import time
from pathlib import Path

import pytest
from sqlalchemy import select

from ops.testbed.rows import claimed, let_lapse, queued, registered, reread
from spool.domain import JobState
from spool.store import Database, SweepLimits, cancel_job, stop_worker, sweep
from spool.tables import jobs, outbox
from worker.service.departures import Departures, hand_back_held, record_departure


def say_it_for(db: Database, folder: Path, worker_id: str) -> None:
    """The worker leaves a note, and the next process of its name reads it."""
    departures = Departures(folder)
    departures.note(worker_id)
    time.sleep(0.002)  # SQLite's clock has milliseconds
    with db.begin() as tx:
        for each in departures.list():
            record_departure(tx, each, 3)
    departures.forget([worker_id])
    assert departures.list() == []
    time.sleep(0.002)
    registered(db, "alpha")


def suspects(db: Database, job_id: str) -> set[str]:
    with db.read() as tx:
        return set(tx.scalar(select(jobs.c.suspects).where(jobs.c.id == job_id)) or ())


@pytest.mark.parametrize("lapsed", [False, True], ids=["lease holds", "lease ran out"])
def test_what_it_held_is_queued_again_and_no_crash(db: Database, tmp_path: Path, lapsed: bool) -> None:
    job_id, ended = queued(db).id, registered(db, "alpha")
    claimed(db, job_id, ended)
    if lapsed:
        let_lapse(db, job_id)
        with db.begin() as tx:
            assert sweep(tx, SweepLimits()).requeued == (job_id,)
        assert suspects(db, job_id) == {ended}
    say_it_for(db, tmp_path / "departed", ended)
    with db.begin() as tx:
        report = sweep(tx, SweepLimits())
    assert report.review.crashed == ()
    job = reread(db, job_id)
    assert (job.state, job.crashes, suspects(db, job_id)) == (JobState.QUEUED, 0, set())
    with db.read() as tx:
        assert job_id in set(tx.scalars(select(outbox.c.job_id)))


def test_what_is_held_at_the_sign_off_is_no_crash(db: Database) -> None:
    """The database answers again when a worker signs off, after it could not hand a job back."""
    job_id, ended = queued(db).id, registered(db, "alpha")
    claimed(db, job_id, ended)
    time.sleep(0.002)
    with db.begin() as tx:
        hand_back_held(tx, ended, 3)
        stop_worker(tx, ended)
    with db.begin() as tx:
        assert sweep(tx, SweepLimits()).review.crashed == ()
    job = reread(db, job_id)
    assert (job.state, job.crashes, suspects(db, job_id)) == (JobState.QUEUED, 0, set())


def test_a_job_that_was_to_be_cancelled_is_cancelled(db: Database, tmp_path: Path) -> None:
    job_id, ended = queued(db).id, registered(db, "alpha")
    claimed(db, job_id, ended)
    with db.begin() as tx:
        cancel_job(tx, job_id)
    say_it_for(db, tmp_path / "departed", ended)
    assert reread(db, job_id).state is JobState.CANCELLED


def test_a_worker_of_another_database_changes_nothing(db: Database, tmp_path: Path) -> None:
    job_id, alive = queued(db).id, registered(db, "beta")
    claimed(db, job_id, alive)
    say_it_for(db, tmp_path / "departed", "wrk_of_another_database")
    assert reread(db, job_id).state is JobState.RUNNING
