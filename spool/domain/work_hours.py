"""Hours of the week in which a machine may work, as a person writes them: `19:00-07:00,sat,sun`.

Pure arithmetic on wall-clock time: whoever asks brings the instant, and says what the clock on the wall
shows then. So daylight saving is the clock's business: an hour that the wall shows twice is worked twice, one
that it never shows is not worked. Knows no worker.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EVERY_DAY = frozenset(range(7))
WEEK_MINUTES = 8 * 24 * 60
"""What is not met within so many minutes is never met: a week, and a day for what daylight saving moves."""

_DAYS = re.compile(r"([a-z]{3})(?:-([a-z]{3}))?")
_SPAN = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")

Wall = Callable[[float], datetime]
"""What the wall clock shows at an instant (Unix seconds): naive, or with its zone."""


@dataclass(frozen=True, slots=True)
class Span:
    """From `begins` to `ends`, in minutes of the day, on the days on which it begins (Monday 0). One that
    ends before it begins ends on the next day."""

    days: frozenset[int]
    begins: int
    ends: int

    def holds(self, day: int, minute: int) -> bool:
        """Whether this minute of this day lies in it."""
        if self.begins < self.ends:
            return day in self.days and self.begins <= minute < self.ends
        return (day in self.days and minute >= self.begins) or (
            (day - 1) % 7 in self.days and minute < self.ends
        )


@dataclass(frozen=True, slots=True)
class WorkHours:
    """When to work; without any span, always."""

    spans: tuple[Span, ...] = ()

    def at(self, instant: float, wall: Wall = datetime.fromtimestamp) -> bool:
        """Whether this is a time to work."""
        shown = wall(instant)
        minute = shown.hour * 60 + shown.minute
        return not self.spans or any(span.holds(shown.weekday(), minute) for span in self.spans)

    def changes(self, instant: float, wall: Wall = datetime.fromtimestamp) -> float | None:
        """The next instant at which this is otherwise, in Unix seconds; None when it never is.

        Looked for minute by minute, since the wall clock may jump.
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
        found = _SPAN.fullmatch(words.pop(0))
        if found is None or words:
            raise ValueError(_wrong(item))
        begins, ends = _minute(found[1], found[2], item), _minute(found[3], found[4], item)
        if begins == ends or begins == 24 * 60:
            raise ValueError(f"{item!r} begins when it ends: for a whole day write the day alone")
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
        raise ValueError(f"{item!r} has a time that no clock shows")
    return minute


def _wrong(item: str) -> str:
    examples = "19:00-07:00, sat, mon-fri or mon-fri 20:00-06:00"
    return f"{item!r} is no time to work: write {examples}, with commas between"


def shown_until(instant: float | None, now: float) -> str:
    """The end of a rest in words for people, by this machine's clock."""
    if instant is None:
        return "for good"
    then = datetime.fromtimestamp(instant).astimezone()
    days = (then.date() - datetime.fromtimestamp(now).astimezone().date()).days
    day = {0: "", 1: "tomorrow "}.get(days, f"{then:%A} ")
    return f"until {day}{then:%H:%M} ({then.isoformat(timespec='minutes')})"
