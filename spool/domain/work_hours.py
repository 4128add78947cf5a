"""The hours of the week in which a machine may work, as people write them: `19:00-07:00,sat,sun`.

Pure arithmetic on wall-clock time: the caller supplies the instant and its wall-clock time, which accounts
for daylight saving: an hour that occurs twice is worked twice, one that is skipped is not worked.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EVERY_DAY = frozenset(range(7))
WEEK_MINUTES = 8 * 24 * 60
"""How far ahead to search for a change: a week, plus a day for daylight saving."""

_DAYS = re.compile(r"([a-z]{3})(?:-([a-z]{3}))?")
_SPAN = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")

Wall = Callable[[float], datetime]
"""The wall clock's time at an instant (Unix seconds): naive, or with its zone."""


@dataclass(frozen=True, slots=True)
class Span:
    """From `begins` to `ends`, in minutes of the day, on the days on which it begins (Monday is 0). If it
    ends before it begins, it ends on the next day."""

    days: frozenset[int]
    begins: int
    ends: int

    def contains(self, day: int, minute: int) -> bool:
        """Whether it contains this minute of this day."""
        if self.begins < self.ends:
            return day in self.days and self.begins <= minute < self.ends
        return (day in self.days and minute >= self.begins) or (
            (day - 1) % 7 in self.days and minute < self.ends
        )


@dataclass(frozen=True, slots=True)
class WorkHours:
    """When to work; without spans, always."""

    spans: tuple[Span, ...] = ()

    def at(self, instant: float, wall: Wall = datetime.fromtimestamp) -> bool:
        """Whether the machine may work at this time."""
        time = wall(instant)
        minute = time.hour * 60 + time.minute
        return not self.spans or any(span.contains(time.weekday(), minute) for span in self.spans)

    def changes(self, instant: float, wall: Wall = datetime.fromtimestamp) -> float | None:
        """The next instant at which `at` changes, in Unix seconds; None if it never does.

        Searched minute by minute, since the wall clock may jump.
        """
        now = self.at(instant, wall)
        minute = int(instant) // 60 * 60
        later = (minute + 60.0 * count for count in range(1, WEEK_MINUTES + 1))
        return next((then for then in later if self.at(then, wall) != now), None)


def parse_hours(text: str) -> WorkHours:
    """Read `19:00-07:00,sat,sun` or `mon-fri 20:00-06:00`. Raises ValueError with one sentence."""
    return WorkHours(tuple(_span(item.strip().lower()) for item in text.split(",") if item.strip()))


def _span(item: str) -> Span:
    days, begins, ends = EVERY_DAY, 0, 24 * 60
    words = item.split()
    if words and _DAYS.fullmatch(words[0]):
        days = _days(words.pop(0), item)
    elif len(words) != 1:
        raise ValueError(_wrong(item))
    if words:
        match = _SPAN.fullmatch(words.pop(0))
        if match is None or words:
            raise ValueError(_wrong(item))
        begins, ends = _minute(match[1], match[2], item), _minute(match[3], match[4], item)
        if begins == ends or begins == 24 * 60:
            raise ValueError(f"{item!r} ends when it begins; for a whole day write only the day")
    return Span(days, begins, ends)


def _days(word: str, item: str) -> frozenset[int]:
    first, _, last = word.partition("-")
    if first not in DAYS or (last and last not in DAYS):
        raise ValueError(_wrong(item))
    begin, end = DAYS.index(first), DAYS.index(last or first)
    return frozenset((begin + count) % 7 for count in range((end - begin) % 7 + 1))


def _minute(hours: str, minutes: str, item: str) -> int:
    minute = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or minute > 24 * 60:
        raise ValueError(f"{item!r} has a time later than 24:00 or more than 59 minutes")
    return minute


def _wrong(item: str) -> str:
    examples = "19:00-07:00, sat, mon-fri or mon-fri 20:00-06:00"
    return f"{item!r} is not a span of hours: write {examples}, separated by commas"


def format_until(instant: float | None, now: float) -> str:
    """When a rest ends, in words, in this machine's time zone."""
    if instant is None:
        return "forever"
    then = datetime.fromtimestamp(instant).astimezone()
    days = (then.date() - datetime.fromtimestamp(now).astimezone().date()).days
    day = {0: "", 1: "tomorrow "}.get(days, f"{then:%A} ")
    return f"until {day}{then:%H:%M} ({then.isoformat(timespec='minutes')})"
