"""Jobs as people see them, on SQLite and on PostgreSQL."""

import base64
import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.exc import IntegrityError

from ops.testbed.postgres import PostgresServer
from ops.testbed.rows import claimed, new_job, queued, reread
from spool.domain import JobOptions, JobState, Source
from spool.errors import Conflict, InvalidRequest, NotFound, SettingsError, StorageError
from spool.ids import is_id, new_id
from spool.store import (
    Database,
    JobFilter,
    cancel_claimed,
    cancel_job,
    create_job,
    fail_job,
    get_job,
    job_counts,
    list_jobs,
    renew_lease,
    retry_job,
    retry_job_once,
)
from spool.tables import jobs, outbox


def outbox_of(db: Database, job_id: str) -> list[str]:
    with db.read() as tx:
        return list(tx.scalars(select(outbox.c.queue).where(outbox.c.job_id == job_id)))


def test_a_new_job_is_queued_with_its_message_beside_it(db: Database) -> None:
    source = Source("s3", "s3://b/Größe 1.wav", size=12, etag='"e"')
    options = JobOptions(model="demo-tdt", decoder="beam", beam=8, channels="separate")

    job = queued(db, source=source, options=options, project="radio", pool="metal", worker="mini-3")

    assert reread(db, job.id) == job
    assert is_id(job.id, "job")
    assert (job.state, job.attempt, job.crashes, job.done_seconds) == (JobState.QUEUED, 0, 0, 0.0)
    assert (job.source, job.options, job.project) == (source, options, "radio")
    assert job.created_at.tzinfo is UTC
    assert abs(job.created_at - datetime.now(UTC)) < timedelta(minutes=1)
    assert outbox_of(db, job.id) == ["spool.metal;at:mini-3"]


def test_row_and_message_commit_together_or_not_at_all(db: Database) -> None:
    class Crash(Exception):
        pass

    def crash() -> None:
        with db.begin() as tx:
            create_job(tx, new_job(id="job_lost"))
            raise Crash

    with pytest.raises(Crash):
        crash()

    with db.read() as tx, pytest.raises(NotFound, match="job_lost"):
        get_job(tx, "job_lost")
    assert outbox_of(db, "job_lost") == []


def test_a_repeated_request_answers_with_the_first_job(db: Database) -> None:
    asked = new_job(idempotency_key="k", request_hash="a" * 64)
    with db.begin() as tx:
        first, created = create_job(tx, asked)
    with db.begin() as tx:
        second, again = create_job(tx, asked)

    assert (created, again) == (True, False)
    assert second == first
    assert len(outbox_of(db, first.id)) == 1


def test_a_key_cannot_be_used_for_another_request_but_for_another_project(db: Database) -> None:
    with db.begin() as tx:
        create_job(tx, new_job(idempotency_key="k", request_hash="a" * 64))

    with db.begin() as tx, pytest.raises(Conflict, match="'k'"):
        create_job(tx, new_job(idempotency_key="k", request_hash="b" * 64))

    with db.begin() as tx:
        _, created = create_job(tx, new_job(idempotency_key="k", request_hash="b" * 64, project="other"))
    assert created


def test_the_same_request_many_times_at_once_makes_one_job(db: Database) -> None:
    start = threading.Barrier(6)
    answers: list[tuple[str, bool]] = []

    def submit() -> None:
        start.wait()
        with db.begin() as tx:
            job, created = create_job(tx, new_job(idempotency_key="k", request_hash="a" * 64))
        answers.append((job.id, created))

    threads = [threading.Thread(target=submit) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(answers) == 6
    assert len({job_id for job_id, _ in answers}) == 1
    assert [created for _, created in answers].count(True) == 1
    with db.read() as tx:
        assert sum(job_counts(tx).values()) == 1


def test_a_retry_under_a_key_is_done_once(db: Database) -> None:
    job = queued(db, project="radio")
    other = queued(db, project="radio")
    # Given a key that was tried too early, which leaves it free
    with pytest.raises(Conflict, match="only a failed or cancelled"), db.begin() as tx:
        retry_job_once(tx, job.id, "again")
    with db.begin() as tx:
        cancel_job(tx, job.id)
    with db.begin() as tx:
        first, done = retry_job_once(tx, job.id, "again")
    assert (first.state, done) == (JobState.QUEUED, True)

    # When the job has been cancelled anew, the repeat is known, and changes nothing
    with db.begin() as tx:
        cancelled = cancel_job(tx, job.id)
    messages = outbox_of(db, job.id)
    with db.begin() as tx:
        assert retry_job_once(tx, job.id, "again") == (cancelled, False)
    assert outbox_of(db, job.id) == messages

    # And the key is for this retry alone
    with db.begin() as tx:
        cancel_job(tx, other.id)
    with pytest.raises(Conflict, match="another request"), db.begin() as tx:
        retry_job_once(tx, other.id, "again")
    with pytest.raises(Conflict, match="another request"), db.begin() as tx:
        create_job(tx, new_job(project="radio", idempotency_key="again", request_hash="a" * 64))
    with pytest.raises(NotFound), db.begin() as tx:
        retry_job_once(tx, "job_none", "again")


def test_the_same_retry_many_times_at_once_is_one(db: Database) -> None:
    job = queued(db)
    with db.begin() as tx:
        cancel_job(tx, job.id)
    start = threading.Barrier(6)
    answers: list[tuple[JobState, bool]] = []

    def retry() -> None:
        start.wait()
        with db.begin() as tx:
            retried, done = retry_job_once(tx, job.id, "k")
        answers.append((retried.state, done))

    threads = [threading.Thread(target=retry) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(answers) == [(JobState.QUEUED, False)] * 5 + [(JobState.QUEUED, True)]


def test_pages_hold_every_job_once_newest_first(db: Database) -> None:
    made = [queued(db).id for _ in range(7)]
    with db.begin() as tx:  # equal times have to page as well
        tx.execute(
            update(jobs).where(jobs.c.id.in_(made[2:5])).values(created_at=datetime(2026, 1, 1, tzinfo=UTC))
        )

    seen: list[str] = []
    cursor = None
    pages = 0
    while True:
        with db.read() as tx:
            page = list_jobs(tx, JobFilter(), cursor, limit=2)
        seen += [job.id for job in page.items]
        pages += 1
        cursor = page.next_cursor
        if cursor is None:
            break

    assert pages == 4
    assert seen == [made[6], made[5], made[1], made[0], *sorted(made[2:5], reverse=True)]


def test_jobs_that_come_in_between_do_not_shift_a_page(db: Database) -> None:
    made = [queued(db).id for _ in range(4)]
    with db.read() as tx:
        first = list_jobs(tx, JobFilter(), limit=2)
    queued(db)
    with db.read() as tx:
        second = list_jobs(tx, JobFilter(), first.next_cursor, limit=2)

    assert [job.id for job in second.items] == [made[1], made[0]]


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        (JobFilter(name="reel"), [1, 0]),
        (JobFilter(name="50%"), [2]),
        (JobFilter(name="_"), []),
        (JobFilter(tag=("series", None)), [2, 0]),
        (JobFilter(tag=("series", "harbour")), [0]),
        (JobFilter(tag=('se"ries', "x")), []),
        (JobFilter(name="REEL", tag=("year", "1961")), [1]),
    ],
    ids=str,
)
def test_a_part_of_the_name_and_a_tag_choose(db: Database, wanted: JobFilter, chosen: list[int]) -> None:
    made = [
        queued(db, name="Reel 1.wav", tags={"series": "harbour"}).id,
        queued(db, name="reel 2.wav", tags={"year": "1961"}).id,
        queued(db, name="50% of it.wav", tags={"series": "radio"}).id,
        queued(db, name="talk.wav", tags=None).id,
    ]
    with db.read() as tx:
        assert [job.id for job in list_jobs(tx, wanted).items] == [made[n] for n in chosen]


def test_filters_choose(db: Database) -> None:
    plain = queued(db)
    other = queued(db, project="radio", pool="metal", worker="mini")
    failed = claimed(db)
    with db.begin() as tx:
        fail_job(tx, failed, "audio", "No.")

    def ids(**wanted: Any) -> set[str]:
        with db.read() as tx:
            return {job.id for job in list_jobs(tx, JobFilter(**wanted)).items}

    assert ids(project="radio") == ids(pool="metal") == ids(worker="mini") == {other.id}
    assert ids(state=JobState.FAILED) == {failed.job.id}
    assert ids(state=JobState.QUEUED, project="default") == {plain.id}
    assert ids(created_from=plain.created_at) == {plain.id, other.id, failed.job.id}
    assert ids(created_to=plain.created_at) == set()
    assert ids(created_from=plain.created_at + timedelta(hours=1)) == set()


def forged(*place: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor", ["", "x", "%%%", "é", forged(), forged("a", "b"), forged("a", "b", "c"), forged(1, 2, 3)]
)
def test_a_cursor_that_is_none_is_refused(sqlite_url: str, cursor: str) -> None:
    db = Database(sqlite_url)
    with db.read() as tx, pytest.raises(InvalidRequest, match="cursor"):
        list_jobs(tx, JobFilter(), cursor)
    db.close()


def test_a_cursor_of_another_query_is_refused(db: Database) -> None:
    for _ in range(3):
        queued(db)
    with db.read() as tx:
        cursor = list_jobs(tx, JobFilter(), limit=1).next_cursor
    assert cursor is not None

    with db.read() as tx, pytest.raises(InvalidRequest, match="another query"):
        list_jobs(tx, JobFilter(project="radio"), cursor)


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_page_has_a_sane_size(sqlite_url: str, limit: int) -> None:
    db = Database(sqlite_url)
    with db.read() as tx, pytest.raises(InvalidRequest, match="1000"):
        list_jobs(tx, JobFilter(), limit=limit)
    db.close()


def test_cancelling_a_queued_job_ends_it(db: Database) -> None:
    job = queued(db)

    with db.begin() as tx:
        cancelled = cancel_job(tx, job.id)

    assert cancelled.state is JobState.CANCELLED
    assert cancelled.finished_at is not None
    assert not cancelled.cancel_requested
    with db.begin() as tx, pytest.raises(Conflict, match="cancelled"):
        cancel_job(tx, job.id)


def test_cancelling_a_running_job_asks_its_worker(db: Database) -> None:
    claim = claimed(db)

    with db.begin() as tx:
        asked = cancel_job(tx, claim.job.id)
    assert (asked.state, asked.cancel_requested, asked.finished_at) == (JobState.RUNNING, True, None)
    with db.begin() as tx:  # asking twice is no error
        assert cancel_job(tx, claim.job.id).cancel_requested
    with db.begin() as tx:
        assert renew_lease(tx, claim, 60) is True
    with db.begin() as tx:
        cancel_claimed(tx, claim)

    job = reread(db, claim.job.id)
    assert (job.state, job.lease_owner) == (JobState.CANCELLED, None)


def test_a_failed_job_can_be_retried_and_is_like_new(db: Database) -> None:
    claim = claimed(db)
    with db.begin() as tx:
        fail_job(tx, claim, "audio_empty", "The file holds no samples.")
    assert reread(db, claim.job.id).error_code == "audio_empty"
    before = len(outbox_of(db, claim.job.id))

    with db.begin() as tx:
        job = retry_job(tx, claim.job.id)

    assert (job.state, job.crashes, job.error_code, job.error_message) == (JobState.QUEUED, 0, None, None)
    assert (job.started_at, job.finished_at) == (None, None)
    assert job.attempt == 1, "the fence goes on counting"
    assert len(outbox_of(db, job.id)) == before + 1


def test_only_an_ended_job_can_be_retried(db: Database) -> None:
    running = claimed(db).job.id
    waiting = queued(db).id
    for job_id in (running, waiting):
        with db.begin() as tx, pytest.raises(Conflict, match="only a failed or cancelled"):
            retry_job(tx, job_id)
    assert reread(db, running).state is JobState.RUNNING
    with db.begin() as tx, pytest.raises(NotFound):
        retry_job(tx, new_id("job"))
    with db.begin() as tx, pytest.raises(NotFound):
        cancel_job(tx, new_id("job"))


def test_counts_name_every_state(db: Database) -> None:
    queued(db)
    claimed(db, queued(db, project="radio").id)

    with db.read() as tx:
        assert job_counts(tx) == {
            JobState.QUEUED: 1,
            JobState.RUNNING: 1,
            JobState.DONE: 0,
            JobState.FAILED: 0,
            JobState.CANCELLED: 0,
        }
        assert job_counts(tx, "radio")[JobState.QUEUED] == 0


def test_sql_itself_refuses_a_state_that_does_not_exist_and_running_without_a_lease(db: Database) -> None:
    job = queued(db)
    for state in ("lost", "running"):
        with pytest.raises(IntegrityError), db.begin() as tx:
            tx.execute(update(jobs).where(jobs.c.id == job.id).values(state=state))


def test_a_reader_cannot_write_and_the_next_writer_can(db: Database) -> None:
    job = queued(db)
    with pytest.raises(StorageError), db.read() as tx:
        tx.execute(update(jobs).values(name="changed"))
    with db.begin() as tx:
        tx.execute(update(jobs).values(name="changed"))
    assert reread(db, job.id).name == "changed"


def test_a_database_that_is_not_there_is_a_storage_error(tmp_path: Path, postgres: PostgresServer) -> None:
    for url in (f"sqlite:///{tmp_path / 'empty.db'}", postgres.url("nowhere")):
        db = Database(url)
        with pytest.raises(StorageError), db.read() as tx:
            tx.execute(text("SELECT 1 FROM jobs"))
        db.close()


@pytest.mark.parametrize("url", ["mysql://h/d", "nonsense", "sqlite://", "sqlite:///:memory:"])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(SettingsError):
        Database(url)


def test_a_password_is_not_shown() -> None:
    db = Database("postgresql://spool:hunter2@localhost/spool")
    assert "hunter2" not in repr(db)
    db.close()
