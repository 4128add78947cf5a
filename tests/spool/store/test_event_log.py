"""The log of events, on both databases: written with the change and numbered by visibility."""

import threading
from typing import Any

from sqlalchemy import func, select, update

from ops.testbed.rows import claimed, let_lapse, new_job, queued
from spool.domain import Event, ManifestReport
from spool.store import (
    Database,
    Outcome,
    SweepLimits,
    batch_is_open,
    batches,
    claim_job,
    event_log,
    fail_job,
    finish_job,
    hand_back,
    jobs,
    place_events,
    seconds_from_now,
    sweep,
)
from spool.store import batches as batch_changes
from spool.tables import event_inbox
from spool.tables import events as log
from spool.tables.batches import NewBatch

OUTCOME = Outcome(3.0, "jobs/x/transcript.1.json", "0" * 64, 1.0, 2)


def placed(db: Database, limit: int = 500) -> list[Event]:
    with db.begin() as tx:
        return place_events(tx, limit)


def logged(db: Database, after: int = 0, **which: Any) -> list[Event]:
    while placed(db):
        pass
    with db.read() as tx:
        return event_log.read_events(tx, after, 1000, **which)


def types(found: list[Event]) -> list[str]:
    return [event.type for event in found]


def batch_of(db: Database, lines: int, *, closed: bool = True) -> tuple[str, list[str]]:
    with db.begin() as tx:
        made, _ = batches.create_batch(tx, NewBatch("alpha", "reels", "manifest", True, "a"))
        told = [
            new_job(project="alpha", batch_id=made.id, batch_line=n, custom_id=f"reel-{n}")
            for n in range(lines)
        ]
        batches.add_jobs(tx, made.id, told)
        ids = [job.id for job in batches.batch_jobs(tx, made.id, None, 1000)]
        if closed:
            batches.close_batch(tx, made.id, ManifestReport(lines))
    return made.id, ids


def finish(db: Database, job_id: str) -> None:
    claim = claimed(db, job_id)
    with db.begin() as tx:
        finish_job(tx, claim, OUTCOME)


def test_each_move_of_a_job_is_told(db: Database) -> None:
    job = queued(db, project="alpha")
    claim = claimed(db, job.id)
    with db.begin() as tx:
        hand_back(tx, claim)
    let_lapse(db, claimed(db, job.id).job.id)
    with db.begin() as tx:
        sweep(tx, SweepLimits())
    claim = claimed(db, job.id)
    with db.begin() as tx:
        fail_job(tx, claim, "audio_unreadable", "x" * 10_000)
    with db.begin() as tx:
        jobs.retry_job(tx, job.id)
    with db.begin() as tx:
        jobs.cancel_job(tx, job.id)
    found = logged(db, job_id=job.id)
    assert types(found) == [
        "job.queued",
        "job.started",
        "job.queued",
        "job.started",
        "job.queued",
        "job.started",
        "job.failed",
        "job.queued",
        "job.cancelled",
    ]
    failed = found[6]
    assert (failed.project, failed.job_id, failed.data["attempt"]) == ("alpha", job.id, 3)
    assert failed.data["error"] == {"code": "audio_unreadable", "message": "x" * 500}
    assert found[1].data["attempt"] == 1, "an event tells what was then"


def test_what_did_not_happen_is_not_told(db: Database) -> None:
    with db.begin() as tx, tx.begin_nested() as broken:
        jobs.create_job(tx, new_job())
        broken.rollback()
    assert logged(db) == []
    with db.begin() as tx:
        assert claim_job(tx, "job_none", "wrk_1", 60) is None
    assert logged(db) == []


def test_poison_is_told_as_failed(db: Database) -> None:
    job = queued(db)
    for _ in range(3):
        claimed(db, job.id)
        let_lapse(db, job.id)
        with db.begin() as tx:
            sweep(tx, SweepLimits())
    last = logged(db, job_id=job.id)[-1]
    assert (last.type, last.data["error"]["code"]) == ("job.failed", "poison")


def test_a_number_is_given_to_what_is_committed_alone(postgres_url: str) -> None:
    """An event whose commit is late comes after those that were seen before it, and is not missed."""
    db = Database(postgres_url)
    with db.begin() as late:
        first, _ = jobs.create_job(late, new_job(name="late"))
        second = queued(db, name="early")
        seen = logged(db)
        assert [event.job_id for event in seen] == [second.id]
    rest = logged(db, seen[-1].id)
    assert [event.job_id for event in rest] == [first.id]
    assert rest[0].id > seen[-1].id
    db.close()


def test_several_that_number_at_once_give_each_number_once(db: Database) -> None:
    made = [queued(db).id for _ in range(60)]

    def number() -> None:
        while placed(db, 7):
            pass

    threads = [threading.Thread(target=number) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = logged(db)
    assert [event.id for event in found] == list(range(1, 61))
    assert [event.job_id for event in found] == made
    with db.read() as tx:
        assert event_log.last_event(tx) == 60
        assert not event_log.any_unplaced(tx)


def test_lines_of_a_batch_are_not_told_one_by_one(db: Database) -> None:
    batch_id, _ = batch_of(db, 50)
    with db.read() as tx:
        assert tx.scalar(select(func.count()).select_from(event_inbox)) == 2
    found = logged(db, batch_id=batch_id)
    assert types(found) == ["batch.created", "batch.received"]
    assert found[1].data == {"accepted": 50, "lines": 50, "bad": 0, "unchanged": 0, "skipped": 0}


def test_a_batch_ends_once_and_again_after_a_retry(db: Database) -> None:
    batch_id, (first, second) = batch_of(db, 2)
    finish(db, first)
    assert "batch.done" not in types(logged(db))
    claim = claimed(db, second)
    with db.begin() as tx:
        fail_job(tx, claim, "audio_unreadable", "no")
        assert batch_is_open(tx, batch_id) is False
    found = logged(db, batch_id=batch_id)
    assert types(found)[-2:] == ["job.failed", "batch.done"]
    assert found[-1].data["jobs"] == {"queued": 0, "running": 0, "done": 1, "failed": 1, "cancelled": 0}
    assert (found[-2].custom_id, found[-1].job_id) == ("reel-1", None)
    with db.read() as tx:
        assert batches.get_batch(tx, batch_id).ended_at is not None

    with db.begin() as tx:
        assert len(batch_changes.retry_failed(tx, batch_id)) == 1
    assert types(logged(db, found[-1].id)) == ["batch.retried"]
    with db.read() as tx:
        assert batches.get_batch(tx, batch_id).ended_at is None
        assert batch_is_open(tx, batch_id)
    finish(db, second)
    assert types(logged(db, found[-1].id)) == ["batch.retried", "job.started", "job.done", "batch.done"]


def test_a_batch_that_is_still_handed_in_has_not_ended(db: Database) -> None:
    batch_id, (only,) = batch_of(db, 1, closed=False)
    finish(db, only)
    assert "batch.done" not in types(logged(db))
    with db.begin() as tx:
        assert batch_is_open(tx, batch_id)
        batches.close_batch(tx, batch_id, ManifestReport(1))
    assert types(logged(db))[-2:] == ["batch.received", "batch.done"]
    with db.begin() as tx:
        batches.close_batch(tx, batch_id, ManifestReport(1))
    assert types(logged(db)).count("batch.received") == 1


def test_a_cancelled_batch_tells_of_each_job_it_stopped(db: Database) -> None:
    batch_id, (first, running, *_) = batch_of(db, 5)
    with db.begin() as tx:
        jobs.cancel_job(tx, first)
    claim = claimed(db, running)
    with db.begin() as tx:
        assert batch_changes.cancel_batch(tx, batch_id) == 4
    found = logged(db, batch_id=batch_id)
    assert types(found).count("job.cancelled") == 4
    assert len({event.job_id for event in found if event.type == "job.cancelled"}) == 4
    assert types(found)[-1] == "batch.cancelled"
    assert found[-1].data == {"cancelled": 3, "asked_to_stop": 1}
    with db.begin() as tx:
        hand_back(tx, claim)
    assert types(logged(db, found[-1].id)) == ["job.cancelled", "batch.done"]


def test_old_events_are_forgotten_and_their_numbers_never_given_again(db: Database) -> None:
    queued(db)
    last = logged(db)[-1].id
    with db.begin() as tx:
        tx.execute(update(log).values(at=seconds_from_now(-3 * 86_400)))
        assert event_log.prune_events(tx, 4) == 0
        assert event_log.prune_events(tx, 2) == 1
    queued(db)
    assert [event.id for event in logged(db)] == [last + 1]
