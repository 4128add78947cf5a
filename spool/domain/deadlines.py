"""Forecasts which batches can still meet their deadlines, from the measured throughput.

Pure. The batches of one project in one pool are taken in the order in which their jobs run: a batch that
would end too late after those before it is late, and the next one is forecast as if it did not exist.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

RETURN = 0.9
"""A late batch is on time again once it needs at most this share of its remaining time, so that a borderline
batch does not switch back and forth."""


@dataclass(frozen=True, slots=True)
class Load:
    """One batch: its priority, its deadline, the audio left in seconds (None: unknown), and whether the last
    forecast found it late."""

    id: str
    priority: int
    deadline: datetime
    left_seconds: float | None
    late: bool


@dataclass(frozen=True, slots=True)
class DeadlineForecast:
    """A batch's forecast: whether its deadline is out of reach, when it will end, and on what basis."""

    id: str
    late: bool
    expected_at: datetime | None
    basis: str


def forecast_deadlines(loads: Sequence[Load], rate: float | None, now: datetime) -> list[DeadlineForecast]:
    """A verdict on each load. `rate`: the seconds of audio per second that the project gets; None if
    unknown."""
    before = 0.0
    verdicts, late = [], []
    for load in sorted(loads, key=lambda load: (load.priority, load.deadline, load.id)):
        if load.deadline <= now:
            verdicts.append(DeadlineForecast(load.id, True, None, "The deadline has passed."))
        elif rate is None or rate <= 0:
            verdicts.append(
                DeadlineForecast(load.id, False, None, "No worker of its pool has been measured yet.")
            )
        elif load.left_seconds is None:
            verdicts.append(
                DeadlineForecast(load.id, False, None, "None of its recordings has been opened yet.")
            )
        else:
            needed = (before + load.left_seconds) / rate
            room = (load.deadline - now).total_seconds() * (RETURN if load.late else 1.0)
            if needed > room:
                late.append(load)
                continue
            verdicts.append(_verdict(load, before, load.left_seconds, rate, now, late=False))
            before += load.left_seconds
    for load in late:
        left = load.left_seconds or 0.0
        verdicts.append(_verdict(load, before, left, rate or 1.0, now, late=True))
        before += left
    return verdicts


def _verdict(
    load: Load, before: float, left: float, rate: float, now: datetime, *, late: bool
) -> DeadlineForecast:
    ahead = f" after {before / 3600:.1f} h ahead of it" if before else ""
    basis = f"{left / 3600:.1f} h of audio left{ahead}, at {rate:.1f} s of audio a second."
    if late:
        basis += " It can no longer meet its deadline and waits as if it had none."
    # At most a century, which datetime can hold.
    seconds = min((before + left) / rate, 3.2e9)
    return DeadlineForecast(load.id, late, now + timedelta(seconds=seconds), basis)
