"""When a worker works: written as people write it, true on every wall clock."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from spool.domain import WorkHours, format_until, parse_hours
from spool.errors import SettingsError
from spool.settings import load_settings

BERLIN = ZoneInfo("Europe/Berlin")
NIGHTS = parse_hours("19:00-07:00,sat,sun")


def at(text: str, fold: int = 0) -> float:
    """Berlin's wall clock as an instant."""
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).timestamp()


def berlin(instant: float) -> datetime:
    return datetime.fromtimestamp(instant, BERLIN)


def changes(hours: WorkHours, text: str, fold: int = 0) -> str | None:
    found = hours.changes(at(text, fold), berlin)
    return None if found is None else berlin(found).isoformat(timespec="minutes")


@pytest.mark.parametrize(
    ("when", "works"),
    [
        ("2026-11-20 18:59", False),  # a Friday
        ("2026-11-20 19:00", True),
        ("2026-11-20 23:59", True),
        ("2026-11-21 00:00", True),  # Saturday, all day
        ("2026-11-21 12:00", True),
        ("2026-11-22 18:00", True),
        ("2026-11-23 06:59", True),  # Monday: the night of Sunday goes on
        ("2026-11-23 07:00", False),
    ],
)
def test_nights_and_the_weekend(when: str, works: bool) -> None:
    assert NIGHTS.at(at(when), berlin) is works


def test_a_span_over_midnight_belongs_to_the_day_on_which_it_begins() -> None:
    hours = parse_hours("fri 20:00-06:00")
    assert not hours.at(at("2026-11-20 05:00"), berlin)  # Friday morning: the night of Thursday
    assert hours.at(at("2026-11-20 20:00"), berlin)
    assert hours.at(at("2026-11-21 05:59"), berlin)
    assert not hours.at(at("2026-11-21 06:00"), berlin)


def test_days_in_a_row_may_go_round_the_week() -> None:
    hours = parse_hours("sat-mon 9:00-17:00")
    works = [hours.at(at(f"2026-11-{day} 12:00"), berlin) for day in range(16, 23)]  # Monday to Sunday
    assert works == [True, False, False, False, False, True, True]


def test_without_hours_it_always_works() -> None:
    assert parse_hours("").at(at("2026-11-20 12:00"), berlin)
    assert changes(parse_hours(""), "2026-11-20 12:00") is None
    assert changes(parse_hours("mon-sun"), "2026-11-20 12:00") is None


def test_the_next_change_is_to_the_minute() -> None:
    assert changes(NIGHTS, "2026-11-19 12:34") == "2026-11-19T19:00+01:00"
    assert changes(NIGHTS, "2026-11-19 19:00") == "2026-11-20T07:00+01:00"
    assert changes(NIGHTS, "2026-11-20 19:00") == "2026-11-23T07:00+01:00"  # over the weekend
    assert changes(parse_hours("sun"), "2026-11-23 00:00") == "2026-11-29T00:00+01:00"  # nearly a week


def test_when_clocks_go_forward_the_missing_hour_is_not_waited_for() -> None:
    # 2026-03-29: 02:00 is 03:00.
    early = parse_hours("02:30-05:00")
    assert changes(early, "2026-03-29 01:59") == "2026-03-29T03:00+02:00"
    assert changes(NIGHTS, "2026-03-30 00:00") == "2026-03-30T07:00+02:00"
    until_half_past_two = parse_hours("22:00-02:30")
    assert changes(until_half_past_two, "2026-03-28 23:00") == "2026-03-29T03:00+02:00"


def test_when_clocks_go_back_the_hour_that_comes_twice_counts_twice() -> None:
    # 2026-10-25: after 02:59 summer time comes 02:00 winter time.
    hours = parse_hours("02:00-02:30")
    assert changes(hours, "2026-10-25 02:00") == "2026-10-25T02:30+02:00"
    assert changes(hours, "2026-10-25 02:30") == "2026-10-25T02:00+01:00"
    assert changes(hours, "2026-10-25 02:10", fold=1) == "2026-10-25T02:30+01:00"


@pytest.mark.parametrize(
    "text",
    [
        "7-19",
        "19:00",
        "monday",
        "sat sun",
        "25:00-07:00",
        "19:60-07:00",
        "07:00-07:00",
        "24:00-07:00",
        "fri x",
    ],
)
def test_what_is_no_time_to_work_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings({"SPOOL_WORK_HOURS": f"sat,{text}"})
    assert str(refused.value).startswith("SPOOL_WORK_HOURS: ")
    assert repr(text) in str(refused.value)


def test_a_whole_day_ends_at_24() -> None:
    assert parse_hours("sat 00:00-24:00") == parse_hours("sat")
    assert parse_hours("sat 12:00-24:00").at(at("2026-11-21 23:59"), berlin)


@pytest.mark.parametrize("share", ["0", "-1", "1.1", "half"])
def test_a_share_is_between_none_and_all(share: str) -> None:
    with pytest.raises(SettingsError, match=r"^SPOOL_WORK_SHARE: "):
        load_settings({"SPOOL_WORK_SHARE": share})


def test_the_end_of_a_rest_is_said_with_its_day() -> None:
    now = datetime(2026, 11, 20, 12, 0).timestamp()
    assert format_until(now + 7 * 3600, now).startswith("until 19:00 (2026-11-20T19:00")
    assert format_until(now + 24 * 3600, now).startswith("until tomorrow 12:00 (")
    assert format_until(now + 72 * 3600, now).startswith("until Monday 12:00 (")
    assert format_until(None, now) == "forever"
