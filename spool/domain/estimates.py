"""Estimates of a batch's remaining time and cost, and of a period's cost at scale, each with its basis.

Pure arithmetic over sums from the store. An estimate without any basis is reported as unknown.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from spool.domain.ledger import CostReport
from spool.domain.pricing import SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class Outlook:
    """Seconds of audio and of wall time, money in nano-units; None if unknown."""

    audio_left_seconds: float | None
    audio_basis: str
    pace: float | None
    """Seconds of audio a second of wall time."""
    time_left_seconds: float | None
    time_basis: str
    expected_nanos: int | None
    """The cost of the whole batch."""
    cost_basis: str


@dataclass(frozen=True, kw_only=True)
class Sums:
    """What is known of a batch. Seconds of audio and of engine; money in nano-units."""

    open_jobs: int
    open_known_seconds: float
    """Audio left in the open jobs of known length."""
    open_unknown: int
    """Open jobs of unknown length."""
    known: int
    """Jobs of known length, ended or not; `known_seconds` is their total."""
    known_seconds: float
    billed_audio_seconds: float
    billable_nanos: int
    recent_audio_seconds: float
    """Audio billed within the last `recent_wall_seconds`, which began with its first job at the earliest."""
    recent_wall_seconds: float


def outlook(sums: Sums) -> Outlook:
    """How much audio is left, how long it takes at the current throughput, and the cost of the whole
    batch."""
    left, audio_basis = _audio_left(sums)
    pace = None
    if sums.recent_audio_seconds > 0 and sums.recent_wall_seconds > 0:
        pace = sums.recent_audio_seconds / sums.recent_wall_seconds
    time_left, time_basis = _time_left(sums, left, pace)
    expected, cost_basis = _cost(sums, left)
    return Outlook(left, audio_basis, pace, time_left, time_basis, expected, cost_basis)


def _audio_left(sums: Sums) -> tuple[float | None, str]:
    if not sums.open_jobs:
        return 0.0, "No job is waiting or running."
    if not sums.open_unknown:
        return sums.open_known_seconds, "The length of every open recording is known."
    if not sums.known:
        return None, "No recording of this batch has been opened yet, so no length is known."
    mean = sums.known_seconds / sums.known
    basis = (
        f"{sums.open_unknown} recordings have not been opened yet; each is assumed to take {mean:.0f} s, "
        f"the mean of the {sums.known} whose length is known."
    )
    return sums.open_known_seconds + sums.open_unknown * mean, basis


def _time_left(sums: Sums, left: float | None, pace: float | None) -> tuple[float | None, str]:
    if not sums.open_jobs:
        return 0.0, "No job is waiting or running."
    if left is None:
        return None, "Unknown until a recording has been opened."
    if pace is None:
        return None, "Nothing in this batch was decoded in the last minutes, so its pace is unknown."
    basis = (
        f"The audio left, at {pace:.1f} s of audio a second: the pace of the last "
        f"{sums.recent_wall_seconds:.0f} s."
    )
    return left / pace, basis


def _cost(sums: Sums, left: float | None) -> tuple[int | None, str]:
    if not sums.open_jobs:
        return sums.billable_nanos, "All jobs have ended; this is the final cost."
    if left is None:
        return None, "Unknown until a recording has been opened."
    if sums.billed_audio_seconds <= 0:
        return None, "Nothing has been billed yet, so the price of an hour of audio is unknown."
    each = sums.billable_nanos / sums.billed_audio_seconds
    hours = sums.billed_audio_seconds / 3600
    basis = f"The cost so far, plus the remaining audio at the mean price of the {hours:.2f} h billed so far."
    return sums.billable_nanos + round(left * each), basis


MILLION = 1_000_000
NEAR = Decimal("0.8")
_MICRO = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class Projection:
    """The projected cost of audio at this period's prices, and what it is based on."""

    per_audio_hour: Decimal
    per_million_hours: Decimal
    basis: str


def per_audio_hour(cost: Decimal, audio_samples: int) -> Decimal | None:
    """The cost of an hour of audio, to a millionth; None without any audio."""
    if audio_samples <= 0:
        return None
    return (cost * 3600 * SAMPLE_RATE / audio_samples).quantize(_MICRO)


def project_costs(report: CostReport) -> Projection | None:
    """A million hours at this period's cost of audio, idle time included; None without any audio."""
    total = report.total
    cost = total.billable_cost + total.wasted_cost + (report.idle_cost or 0)
    each = per_audio_hour(cost, total.audio_samples)
    if each is None:
        return None
    exact = cost * 3600 * SAMPLE_RATE * MILLION / total.audio_samples
    parts = "billable and wasted" if report.idle_cost is None else "billable, wasted and idle"
    basis = f"{total.audio_seconds / 3600:.2f} h of audio: {parts} cost together."
    return Projection(each, exact.quantize(Decimal("0.01")), basis)


def budget_state(spent: Decimal, budget: Decimal) -> Literal["within", "near", "over"]:
    """The state of a budget: `near` from 80 % on."""
    if spent > budget:
        return "over"
    return "near" if spent and spent >= budget * NEAR else "within"
