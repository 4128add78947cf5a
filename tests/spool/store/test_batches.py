"""Batches in SQL, on both databases: written in blocks, once a custom id, cancelled and retried whole."""

import pytest
from sqlalchemy import func, select

from ops.testbed.rows import bill, claimed, new_job, registered, reread
from spool.domain import BadLine, JobState, ManifestReport
from spool.errors import Conflict, InvalidRequest, NotFound
from spool.store import (
    Database,
    NewJob,
    batch_counts,
    batches,
    fail_job,
    read_batch_progress,
    set_progress,
    write_charge,
)
from spool.store import batches as batch_changes
from spool.tables import outbox
from spool.tables.batches import Batch, NewBatch


def batch(db: Database, key: str | None = None, request: str = "a", project: str = "default") -> Batch:
    with db.begin() as tx:
        new = NewBatch(project, "reels", "manifest", True, request, key)
        return batches.create_batch(tx, new)[0]


def lines(batch_id: str, *numbers: int) -> list[NewJob]:
    return [
        new_job(batch_id=batch_id, batch_line=n, custom_id=f"reel-{n}", tags={"box": "7"}) for n in numbers
    ]


def add(db: Database, batch_id: str, *numbers: int) -> int:
    with db.begin() as tx:
        return batches.add_jobs(tx, batch_id, lines(batch_id, *numbers))


def in_order(db: Database, batch_id: str) -> list[str]:
    with db.read() as tx:
        return [job.id for job in batches.batch_jobs(tx, batch_id, None, 1000)]


def waiting(db: Database) -> int:
    with db.read() as tx:
        return int(tx.scalar(select(func.count()).select_from(outbox)) or 0)


def test_a_block_and_its_outbox_lines_commit_together_and_a_custom_id_makes_one_job(db: Database) -> None:
    made = batch(db)
    assert add(db, made.id, 1, 2, 3) == 3
    assert add(db, made.id, 2, 3, 4) == 1, "a submission that is repeated goes on where it broke off"
    assert waiting(db) == 4
    with db.read() as tx:
        assert batches.get_batch(tx, made.id).accepted == 4
        found = batches.batch_jobs(tx, made.id, None, 2)
        rest = batches.batch_jobs(tx, made.id, (found[-1].batch_line or 0, found[-1].id), 10)
    assert [job.custom_id for job in (*found, *rest)] == ["reel-1", "reel-2", "reel-3", "reel-4"]
    assert found[0].tags == {"box": "7"}
    assert found[0].batch_id == made.id
    other = batch(db)
    assert add(db, other.id, 1) == 1, "ids are free in another batch"


def test_many_lines_in_one_block(db: Database) -> None:
    made = batch(db)
    assert add(db, made.id, *range(1, 2001)) == 2000
    assert waiting(db) == 2000
    with db.read() as tx:
        assert batch_counts(tx, [made.id])[made.id][JobState.QUEUED] == 2000


def test_an_idempotency_key_answers_with_the_first_batch(db: Database) -> None:
    first = batch(db, "key")
    assert batch(db, "key").id == first.id
    assert batch(db, "key", project="other").id != first.id
    with pytest.raises(Conflict, match="another request"):
        batch(db, "key", request="b")


def test_closing_is_done_once(db: Database) -> None:
    made = batch(db)
    with db.begin() as tx:
        closed = batches.close_batch(tx, made.id, ManifestReport(5, 1, [BadLine(3, "not_json", "Not JSON.")]))
    assert (closed.lines, closed.bad) == (5, 1)
    with db.begin() as tx:
        again = batches.close_batch(tx, made.id, ManifestReport(9, 9))
    assert again == closed
    with db.read() as tx, pytest.raises(NotFound):
        batches.get_batch(tx, "bat_00000000000000000000000000")


def test_pages_hold_their_cursor_to_their_query(db: Database) -> None:
    made = [batch(db, project="a").id for _ in range(3)]
    batch(db, project="b")
    with db.read() as tx:
        page = batches.list_batches(tx, "a", limit=2)
        assert page.next_cursor is not None
        rest = batches.list_batches(tx, "a", page.next_cursor, 2)
        assert {one.id for one in (*page.items, *rest.items)} == set(made)
        assert rest.next_cursor is None
        with pytest.raises(InvalidRequest, match="another query"):
            batches.list_batches(tx, "b", page.next_cursor)


def test_cancelling_ends_what_waits_asks_what_runs_and_takes_no_more(db: Database) -> None:
    made = batch(db)
    add(db, made.id, 1, 2, 3)
    running = claimed(db, in_order(db, made.id)[0])
    with db.begin() as tx:
        assert batch_changes.cancel_batch(tx, made.id) == 3
    states = [reread(db, job).state for job in in_order(db, made.id)]
    assert states == [JobState.RUNNING, JobState.CANCELLED, JobState.CANCELLED]
    assert reread(db, running.job.id).cancel_requested
    with pytest.raises(Conflict, match="cancelled"):
        add(db, made.id, 4)
    assert len(in_order(db, made.id)) == 3


def test_a_batch_that_ended_cannot_be_cancelled(db: Database) -> None:
    made = batch(db)
    with db.begin() as tx:
        batches.close_batch(tx, made.id, ManifestReport())
    with db.begin() as tx, pytest.raises(Conflict, match="ended"):
        batch_changes.cancel_batch(tx, made.id)


def test_failed_jobs_are_queued_again_a_block_at_a_time(db: Database) -> None:
    made = batch(db)
    add(db, made.id, 1, 2, 3, 4)
    jobs = in_order(db, made.id)
    for job_id in jobs[:3]:
        claim = claimed(db, job_id)
        with db.begin() as tx:
            fail_job(tx, claim, "audio_empty", "nothing in it")
    before = waiting(db)
    with db.begin() as tx:
        assert batch_changes.retry_failed(tx, made.id, limit=2) == [1, 2]
    again = claimed(db, jobs[0])
    with db.begin() as tx:
        fail_job(tx, again, "audio_empty", "nothing in it still")
    with db.begin() as tx:
        assert batch_changes.retry_failed(tx, made.id, 2, limit=2) == [3]
        assert batch_changes.retry_failed(tx, made.id, 3, limit=2) == []
    assert reread(db, jobs[0]).state is JobState.FAILED, "it is not tried for as long as it fails"
    with db.begin() as tx:
        assert batch_changes.retry_failed(tx, made.id) == [1]
    assert waiting(db) == before + 4
    assert all(reread(db, job_id).state is JobState.QUEUED for job_id in jobs)
    assert reread(db, jobs[0]).error_code is None


def test_the_standing_sums_audio_and_money(db: Database) -> None:
    made = batch(db)
    add(db, made.id, 1, 2, 3)
    worker = registered(db)
    claim = claimed(db, in_order(db, made.id)[0], worker)
    with db.begin() as tx:
        set_progress(tx, claim, 30.0, 100.0)
        write_charge(tx, claim.job.id, claim.attempt, bill(worker, samples=480_000))
        write_charge(tx, claim.job.id, claim.attempt, bill(worker, samples=160_000), wasted=True)
    claimed(db)  # a job of no batch is nobody's
    with db.read() as tx:
        progress = read_batch_progress(tx, made.id)
    assert progress.counts[JobState.RUNNING] == 1
    assert progress.counts[JobState.QUEUED] == 2
    assert (progress.done_seconds, progress.open_known_seconds, progress.open_unknown) == (30.0, 70.0, 2)
    assert (progress.known, progress.known_seconds) == (1, 100.0)
    assert (progress.billed_audio_seconds, progress.billed_engine_seconds) == (30.0, 1.0)
    assert progress.billable_nanos == progress.wasted_nanos == 100_000
    assert (progress.recent_audio_seconds, progress.recent_engine_seconds) == (30.0, 1.0)
    assert 0 <= progress.recent_wall_seconds < 60
