"""Identifiers and database time."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import literal, select
from sqlalchemy.exc import StatementError

from spool.ids import is_id, new_id
from spool.store import Database, now_utc, seconds_from_now, today_utc
from spool.tables.base import UtcDateTime


def test_identifiers_are_unique_and_of_one_form() -> None:
    made = [new_id("job") for _ in range(1000)]
    assert len(set(made)) == 1000
    assert all(is_id(one, "job") and len(one) == 30 for one in made)


def test_identifiers_sort_by_the_time_they_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for seconds in (1, 2, 1_800_000_000, 4_000_000_000):
        monkeypatch.setattr("time.time_ns", lambda now=seconds: now * 10**9)
        made.append(new_id("job"))
    assert sorted(made) == made


def test_identifiers_of_one_millisecond_sort_in_the_order_they_were_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_800_000_000 * 10**9)
    made = [new_id("job") for _ in range(1000)]
    assert sorted(made) == made


@given(st.text(max_size=40))
def test_other_text_is_no_identifier(text: str) -> None:
    assert not is_id(text, "job")
    assert not is_id(f"job_{text}", "job") or len(text) == 26


def test_the_database_tells_the_time(db: Database) -> None:
    with db.read() as tx:
        row = tx.execute(
            select(
                now_utc().label("now"),
                seconds_from_now(90.5).label("later"),
                seconds_from_now(-3600).label("earlier"),
                today_utc().label("today"),
            )
        ).one()
    assert row.now.tzinfo is UTC
    assert abs(row.now - datetime.now(UTC)) < timedelta(minutes=1)
    assert abs((row.later - row.now).total_seconds() - 90.5) < 0.1
    assert abs((row.now - row.earlier).total_seconds() - 3600) < 0.1
    assert row.today in {row.now.date(), row.later.date()}


def test_the_databases_clock_moves_within_a_transaction(postgres_url: str) -> None:
    db = Database(postgres_url)
    with db.read() as tx:
        first = tx.execute(select(now_utc())).scalar_one()
        assert tx.execute(select(now_utc())).scalar_one() > first
    db.close()


@given(moment=st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9, minutes=-30))])))
def test_an_instant_survives_sqlites_text(moment: datetime) -> None:
    kind = UtcDateTime()

    class Dialect:
        name = "sqlite"

    try:
        stored = kind.process_bind_param(moment, Dialect())  # type: ignore[arg-type]
    except OverflowError:  # the first and last hours of the calendar have no UTC
        return
    assert kind.process_result_value(stored, Dialect()) == moment  # type: ignore[arg-type]


def test_an_instant_without_a_zone_is_refused(db: Database) -> None:
    with db.read() as tx, pytest.raises(StatementError, match="time zone"):
        tx.execute(select(literal(datetime(2026, 1, 1), UtcDateTime())))


def test_instants_compare_as_instants(db: Database) -> None:
    moment = datetime(2026, 1, 1, 0, 30, tzinfo=timezone(timedelta(hours=1)))
    with db.read() as tx:
        back = tx.execute(select(literal(moment, UtcDateTime()).label("back"))).scalar_one()
    assert back == moment
    assert back.tzinfo is UTC
