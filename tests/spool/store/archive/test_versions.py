"""Versions of one recording in SQL, on SQLite and PostgreSQL."""

from dataclasses import replace
from datetime import timedelta

import pytest

from ops.testbed.rows import claimed, new_job, queued
from spool.domain import Content, Source
from spool.errors import Conflict, Deleted
from spool.store import (
    Database,
    Outcome,
    create_job,
    fail_job,
    find_expired_jobs,
    finish_job,
    get_job,
    last_done_versions,
    mark_deleted,
    rerun_job,
    versions_of,
)


def uploaded(db: Database) -> str:
    source = Source("upload", "jobs/first/source", 44, "etag")
    with db.begin() as tx:
        return create_job(tx, replace(new_job(), source=source, source_hashes=bytes(32)))[0].id


def ended(db: Database, job_id: str) -> None:
    claim = claimed(db, job_id)
    with db.begin() as tx:
        fail_job(tx, claim, "audio_unreadable", "no audio")


def test_a_recording_stays_until_every_version_of_it_is_made(db: Database) -> None:
    first = uploaded(db)
    ended(db, first)
    with db.begin() as tx:
        second, created = rerun_job(tx, get_job(tx, first), new_job())
        assert created
        third, _ = rerun_job(tx, second, new_job())
        assert (second.source, second.rerun_of, third.rerun_of) == (get_job(tx, first).source, first, first)
        assert [job.id for job in versions_of(tx, third)] == [first, second.id, third.id]
    ended(db, second.id)
    with db.begin() as tx:
        assert find_expired_jobs(tx, third.project, Content.SOURCE, timedelta(0), 10) == []
        assert mark_deleted(tx, [first], Content.SOURCE, "operator") == []
    ended(db, third.id)
    with db.begin() as tx:
        old = find_expired_jobs(tx, third.project, Content.SOURCE, timedelta(seconds=-60), 10)
        assert sorted(old) == sorted([first, second.id, third.id])
        lines = mark_deleted(tx, [second.id], Content.SOURCE, "operator")
        assert {line.job_id for line in lines} == {first, second.id, third.id}
        with pytest.raises(Deleted):
            rerun_job(tx, get_job(tx, third.id), new_job())


def test_the_version_before_is_the_newest_that_is_done_of_the_same_project(db: Database) -> None:
    def done(content: str, project: str = "default") -> str:
        claim = claimed(db, queued(db, project=project).id)
        with db.begin() as tx:
            finish_job(tx, claim, Outcome(1.0, "key", "0" * 64, 1.0, 1, content_sha256=content * 64))
        return claim.job.id

    def before(job_id: str) -> str | None:
        with db.look() as tx:
            return last_done_versions(tx, [get_job(tx, job_id)]).get(job_id)

    alone = done("a")
    assert before(alone) is None
    done("b")
    done("a", project="other")
    newest = done("a")
    assert (before(newest), before(alone)) == (alone, newest)
    with db.begin() as tx:
        rerun, _ = rerun_job(tx, get_job(tx, alone), new_job())
    assert before(rerun.id) == alone, "that it runs again, whose content it is not known to have yet"


def test_a_live_session_has_no_recording_before_it_is_done(db: Database) -> None:
    with db.begin() as tx:
        job, _ = create_job(tx, replace(new_job(), source=Source("live", "jobs/live/source")))
        with pytest.raises(Conflict, match="not stored yet"):
            rerun_job(tx, job, new_job())
