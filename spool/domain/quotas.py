"""Quotas of a project: audio a day, jobs in flight, money a month; and why its jobs are held.

Pure. Held jobs stay queued and keep their position; running jobs finish when a limit is reached. A reused
transcript costs nothing and does not count.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from spool.domain.pricing import NANOS_PER_UNIT, SAMPLE_RATE

EVERYBODY = "*"
"""Stands for each project without its own quota."""

HeldBy = Literal["jobs_in_flight", "hours_a_day", "spend_a_month"]


class Quota(BaseModel):
    """One project's limits; None means no limit. Days and months are in UTC."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    hours_a_day: Annotated[Decimal, Field(ge=0)] | None = None
    """Hours of audio transcribed."""
    jobs_in_flight: Annotated[int, Field(ge=0)] | None = None
    spend_a_month: Annotated[Decimal, Field(ge=0)] | None = None
    """Billable money, in the settings' currency."""

    @model_validator(mode="before")
    @classmethod
    def _parse_short_form(cls, value: object) -> object:
        """Read the short form `hours_a_day:10+jobs_in_flight:4`."""
        if not isinstance(value, str):
            return value
        parts = [part.partition(":") for part in value.split("+")]
        for name, colon, amount in parts:
            if name.strip() not in cls.model_fields or not colon or not amount.strip():
                known = ", ".join(cls.model_fields)
                raise ValueError(
                    f"{name.strip() or value!r} is not a limit; write NAME:NUMBER joined by +, of {known}"
                )
        return {name.strip(): amount.strip() for name, _, amount in parts}


@dataclass(frozen=True, slots=True)
class Use:
    """A project's use: billed audio of the UTC day and money of the month, and the jobs that run now."""

    day_samples: int = 0
    month_nanos: int = 0
    running: int = 0
    running_seconds: float = 0.0
    """Audio of its running jobs that is not billed yet, as far as it is known."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a project's jobs are held, as a sentence, and when that ends (None: depends on other jobs)."""

    by: HeldBy
    reason: str
    until: datetime | None


def quota_of(quotas: Mapping[str, Quota], project: str) -> Quota | None:
    """The project's quota, or the default one."""
    return quotas.get(project, quotas.get(EVERYBODY))


def hold_of(quota: Quota | None, use: Use, now: datetime) -> Hold | None:
    """The hold that lasts longest, if any limit is reached. `now` in UTC."""
    if quota is None:
        return None
    if quota.spend_a_month is not None and use.month_nanos >= quota.spend_a_month * NANOS_PER_UNIT:
        reason = f"The project has spent its quota of {quota.spend_a_month:f} for this month."
        return Hold("spend_a_month", reason, _next_month(now))
    if quota.hours_a_day is not None:
        hours = (use.day_samples / SAMPLE_RATE + use.running_seconds) / 3600
        if hours >= quota.hours_a_day:
            reason = f"The project has used its quota of {quota.hours_a_day:f} hours of audio for today."
            return Hold("hours_a_day", reason, _midnight(now) + timedelta(days=1))
    if quota.jobs_in_flight is not None and use.running >= quota.jobs_in_flight:
        reason = f"The project runs {use.running} of at most {quota.jobs_in_flight} jobs at once."
        return Hold("jobs_in_flight", reason, None)
    return None


def _midnight(now: datetime) -> datetime:
    return datetime.combine(now.astimezone(UTC).date(), time(), tzinfo=UTC)


def _next_month(now: datetime) -> datetime:
    return (_midnight(now).replace(day=1) + timedelta(days=32)).replace(day=1)
