"""Deadlines: which batches can still make theirs, and the order of jobs that follows from it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, update

from ops.testbed.rows import bill, new_job, queued, registered, reread
from spool.background import update_deadlines
from spool.domain import HIGH, NEVER, NORMAL, Load, forecast_deadlines
from spool.settings import Settings
from spool.store import Database, add_jobs, create_batch, get_batch, heartbeat, seconds_from_now, write_charge
from spool.tables import batches, cost_lines, jobs
from spool.tables.batches import Batch, NewBatch
from tests.spool.store.choosing import finish, order, taken

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def load(name: str, hours: float, left: float | None, *, priority: int = NORMAL, late: bool = False) -> Load:
    seconds = None if left is None else left * 3600
    return Load(name, priority, NOW + timedelta(hours=hours), seconds, late)


def late(*loads: Load, rate: float | None = 10.0) -> set[str]:
    return {verdict.id for verdict in forecast_deadlines(loads, rate, NOW) if verdict.late}


def test_what_can_be_made_is_and_what_cannot_stands_in_nobodys_way() -> None:
    assert late(load("a", 1, 5), load("b", 2, 14)) == set()
    assert late(load("a", 1, 11), load("b", 2, 14)) == {"a"}, "b is judged as if a were not there"
    assert late(load("a", 1, 9), load("b", 2, 12)) == {"b"}, "who comes first has it"
    assert late(load("a", 2, 12), load("b", 1, 9, priority=HIGH)) == {"a"}
    assert late(load("a", 2, 12, priority=HIGH), load("b", 1, 9)) == {"b"}, "a class before the next"


def test_what_has_passed_or_cannot_be_told() -> None:
    assert late(load("a", -1, 0.1), load("b", 1, 9)) == {"a"}
    verdicts = forecast_deadlines([load("a", 1, None), load("b", 1, 1)], 10.0, NOW)
    assert [(one.id, one.expected_at) for one in verdicts] == [
        ("a", None),
        ("b", NOW + timedelta(hours=0.1)),
    ]
    (unknown,) = forecast_deadlines([load("a", 1, 1)], None, NOW)
    assert (unknown.late, unknown.basis) == (False, "No worker of its pool has been measured yet.")


def test_a_late_one_needs_some_room_to_come_back() -> None:
    assert late(load("a", 1, 9.5)) == set()
    assert late(load("a", 1, 9.5, late=True)) == {"a"}
    assert late(load("a", 1, 8.9, late=True)) == set()


@given(
    st.lists(
        st.tuples(st.floats(-1, 50), st.floats(0, 100), st.integers(0, 2), st.booleans()),
        min_size=1,
        max_size=8,
    )
)
def test_those_on_time_are_done_in_time_one_after_another(
    asked: list[tuple[float, float, int, bool]],
) -> None:
    loads = [load(f"b{n}", h, left, priority=p, late=was) for n, (h, left, p, was) in enumerate(asked)]
    verdicts = {one.id: one for one in forecast_deadlines(loads, 10.0, NOW)}
    assert set(verdicts) == {one.id for one in loads}
    end = NOW
    for one in sorted(loads, key=lambda each: (each.priority, each.deadline, each.id)):
        if not verdicts[one.id].late:
            end += timedelta(seconds=(one.left_seconds or 0) / 10.0)
            assert end <= one.deadline + timedelta(milliseconds=1)
            assert abs((verdicts[one.id].expected_at or end) - end) < timedelta(milliseconds=1)


# --- in SQL -------------------------------------------------------------------------------------------------


@pytest.fixture
def settings(make_settings: Callable[..., Settings], database_url: str) -> Settings:
    return make_settings(database_url=database_url)


def a_batch(db: Database, name: str, hours: float, seconds: float, number: int = 3) -> Batch:
    """Jobs of known length, the recordings having been opened before."""
    deadline = datetime.now(UTC) + timedelta(hours=hours)
    asked = NewBatch("default", name, "manifest", False, "0" * 64, deadline=deadline)
    with db.begin() as tx:
        batch, _ = create_batch(tx, asked)
        lines = [
            new_job(batch_id=batch.id, batch_line=n, custom_id=str(n), deadline=deadline)
            for n in range(number)
        ]
        add_jobs(tx, batch.id, lines)
        tx.execute(update(jobs).where(jobs.c.batch_id == batch.id).values(audio_seconds=seconds))
    return batch


def measured(db: Database) -> None:
    """One live worker that decodes 10 s of audio a second."""
    worker = registered(db)
    queued(db)
    claim = taken(db)
    with db.begin() as tx:
        heartbeat(tx, worker, "ready", 0)
        write_charge(tx, claim.job.id, 1, bill(worker, engine_ns=60 * 10**9, samples=600 * 16_000))
    finish(db, claim, 600.0)


def reckoned(db: Database, settings: Settings, batch: Batch) -> Batch:
    update_deadlines(db, settings)
    with db.read() as tx:
        return get_batch(tx, batch.id)


def test_the_batch_that_can_make_it_goes_first_and_the_other_says_that_it_cannot(
    db: Database, settings: Settings
) -> None:
    measured(db)
    hopeless = a_batch(db, "hopeless", hours=1, seconds=36_000.0)  # 3 times 1 h of work
    possible = a_batch(db, "possible", hours=2, seconds=12_000.0)
    plain = queued(db).id

    told = reckoned(db, settings, hopeless)
    assert told.late
    assert told.expected_at is not None
    assert told.expected_basis == (
        "30.0 h of audio left after 10.0 h ahead of it, at 10.0 s of audio a second. "
        "It can no longer meet its deadline and waits as if it had none."
    )
    fine = reckoned(db, settings, possible)
    assert (fine.late, fine.expected_basis) == (False, "10.0 h of audio left, at 10.0 s of audio a second.")
    names = {job_id: reread(db, job_id).batch_id for job_id in order(db)}
    assert [names[job_id] for job_id in names] == [possible.id] * 3 + [hopeless.id] * 3 + [None]
    assert list(names)[-1] == plain


def test_a_batch_that_can_make_it_again_goes_first_again(db: Database, settings: Settings) -> None:
    measured(db)
    batch = a_batch(db, "b", hours=1, seconds=36_000.0)
    assert reckoned(db, settings, batch).late
    with db.begin() as tx:
        assert set(tx.scalars(select(jobs.c.deadline_rank).where(jobs.c.batch_id == batch.id))) == {NEVER}
        tx.execute(update(cost_lines).values(audio_samples=cost_lines.c.audio_samples * 10))
    assert not reckoned(db, settings, batch).late
    with db.read() as tx:
        assert NEVER not in set(tx.scalars(select(jobs.c.deadline_rank).where(jobs.c.batch_id == batch.id)))


def test_without_a_measurement_nothing_is_late_before_its_time(db: Database, settings: Settings) -> None:
    batch = a_batch(db, "b", hours=1, seconds=36_000.0)
    told = reckoned(db, settings, batch)
    assert (told.late, told.expected_at) == (False, None)
    with db.begin() as tx:
        tx.execute(update(batches).values(deadline=seconds_from_now(-1)))
    assert reckoned(db, settings, batch).expected_basis == "The deadline has passed."


def test_a_job_whose_own_deadline_has_passed_waits_like_any_other(db: Database, settings: Settings) -> None:
    passed = queued(db, deadline=datetime.now(UTC) - timedelta(seconds=5)).id
    coming = queued(db, deadline=datetime.now(UTC) + timedelta(hours=1)).id
    update_deadlines(db, settings)
    assert (reread(db, passed).deadline_rank, reread(db, coming).deadline_rank < NEVER) == (NEVER, True)
    assert order(db) == [coming, passed]
