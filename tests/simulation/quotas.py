"""Quotas by day and by month: how much they allow in a run, and the law over the history of claims.

A project that has used up its quota gets no further job until the next day or month. A run begins shortly
before a month ends; at its end everything sleeps until the next midnight for as long as jobs are held.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal

from spool.domain.pricing import NANOS_PER_UNIT, SAMPLE_RATE
from tests.simulation.database import Observer
from tests.simulation.scheduler import BEGAN, NS, Scheduler
from tests.simulation.timeline import Timeline

BY_DAY, BY_MONTH = "diary", "annals"
"""The projects."""
PRICE_PER_HOUR = 36
"""Of the engine, so that a second costs 0.01."""
USABLE = 0.3
"""How much of what a run is expected to bring may be used, so that some of it has to wait."""
MEAN_S = 58.0
"""The mean length of a recording."""
SPENT_EACH = 0.13
"""What one costs."""
LEAST_HOURS, LEAST_SPENT = 1 / 60, 0.1
"""The quotas of a short run."""
STALE_S = 400.0
"""Bills are summed by whoever sweeps: every minute, and after three if that process is frozen. Without the
database nothing is claimed."""

_SUMMED = "SELECT CAST(day AS TEXT), day_samples, month_nanos FROM quota_use WHERE project = ?"
_RUNNING = """
SELECT coalesce(sum(
    CASE WHEN forecast_seconds > done_seconds THEN forecast_seconds - done_seconds ELSE 0 END
), 0) FROM jobs WHERE project = ? AND state = 'running' AND id <> ?
"""
_BILLED = """
SELECT
    coalesce(sum(CASE WHEN CAST(day AS TEXT) = ? THEN audio_samples ELSE 0 END), 0),
    coalesce(sum(cost_nanos), 0)
FROM cost_lines WHERE project = ? AND NOT wasted AND CAST(day AS TEXT) LIKE ?
"""


@dataclass(frozen=True)
class Limits:
    """Hours of audio a day of one project, and what another may spend in a month."""

    day_hours: Decimal
    month: Decimal

    @classmethod
    def of_run(cls, hours: float, jobs_of_each: float) -> "Limits":
        """Those of a run of so many hours, with so many jobs of each of the two projects."""
        days = 2 + hours / 24
        day_hours = max(LEAST_HOURS, jobs_of_each * MEAN_S / 3600 * USABLE / days)
        month = max(LEAST_SPENT, jobs_of_each * SPENT_EACH * USABLE)
        return cls(Decimal(f"{day_hours:.4f}"), Decimal(f"{month:.2f}"))

    @property
    def settings(self) -> dict[str, dict[str, Decimal]]:
        """As the product's settings have them."""
        return {BY_DAY: {"hours_a_day": self.day_hours}, BY_MONTH: {"spend_a_month": self.month}}


class Used:
    """The law: what was known of a project's use when it got a job was below its quota."""

    def __init__(self, observer: Observer, scheduler: Scheduler, limits: Limits) -> None:
        self._observer, self._scheduler, self._limits = observer, scheduler, limits
        self._bills: dict[str, list[tuple[int, str, int, int]]] = defaultdict(list)
        """Of each project: at what time, on which day, how much of the day and month had been billed."""

    def note_bill(self, project: str) -> None:
        """Something of this project was decoded and billed."""
        if project in (BY_DAY, BY_MONTH):
            day = self._today()
            ((samples, nanos),) = self._read_bills(project, day)
            self._bills[project].append((self._scheduler.now_ns, day, int(samples), int(nanos)))

    def find_excess(self, project: str, job: str) -> str | None:
        """What is too much about a claim of this project's job that was just committed."""
        if project not in (BY_DAY, BY_MONTH):
            return None
        day = self._today()
        running_s = float(self._observer.rows(_RUNNING, project, job)[0][0])
        known = [(0, 0), self._find_old_bill(project, day)]
        for summed_on, samples, nanos in self._observer.rows(_SUMMED, project):
            if summed_on[:7] == day[:7]:
                known.append((samples if summed_on == day else 0, nanos))
        audio_s = max(samples for samples, _ in known) / SAMPLE_RATE + running_s
        spent = max(nanos for _, nanos in known) / NANOS_PER_UNIT
        if project == BY_DAY and audio_s / 3600 >= self._limits.day_hours:
            return f"{audio_s / 3600:.4f} of {self._limits.day_hours} h of {day} were used"
        if project == BY_MONTH and spent >= self._limits.month:
            return f"{spent:.2f} of {self._limits.month} of {day[:7]} were spent"
        return None

    def check(self, timeline: Timeline) -> None:
        """Whether the sums by which quotas are judged are those of the bills, once nothing runs."""
        day = self._today()
        for project in (BY_DAY, BY_MONTH):
            bills = [(int(one), int(other)) for one, other in self._read_bills(project, day)]
            sums = [
                (int(samples) if summed_on == day else 0, int(nanos) if summed_on[:7] == day[:7] else 0)
                for summed_on, samples, nanos in self._observer.rows(_SUMMED, project)
            ]
            if sums and sums != bills:
                timeline.violate("bills are summed for quotas", f"{project}: {sums} of {bills} on {day}")

    def _read_bills(self, project: str, day: str) -> Sequence[tuple[int, int]]:
        return self._observer.rows(_BILLED, day, project, f"{day[:7]}%")

    def _find_old_bill(self, project: str, day: str) -> tuple[int, int]:
        """What had been billed so long ago that whoever claims has to know it."""
        before = self._scheduler.now_ns - round(STALE_S * NS)
        samples = nanos = 0
        for at, billed_on, day_samples, month_nanos in self._bills[project]:
            if at < before and billed_on[:7] == day[:7]:
                samples, nanos = day_samples if billed_on == day else 0, month_nanos
        return samples, nanos

    def _today(self) -> str:
        return f"{now_of(self._scheduler):%Y-%m-%d}"


def now_of(scheduler: Scheduler) -> datetime:
    """The time of a right clock."""
    return datetime.fromtimestamp((BEGAN + scheduler.now_ns) / NS, UTC)


def seconds_to(scheduler: Scheduler, *, next_month: bool) -> float:
    """How long it is until the next midnight, or the one that ends the month."""
    now = now_of(scheduler)
    end = datetime.combine(now.date() + timedelta(days=1), time(), tzinfo=UTC)
    while next_month and end.day != 1:
        end += timedelta(days=1)
    return (end - now).total_seconds()
