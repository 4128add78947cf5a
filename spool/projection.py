"""What a period's costs say of more audio: a million hours at the same cost, and how budgets stand.

Pure arithmetic; the sums come from the ledger.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from spool.costs import SAMPLE_RATE
from spool.store.bills import CostReport

MILLION = 1_000_000
NEAR = Decimal("0.8")
_MICRO = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class Projection:
    """The cost of audio as this period's was, and what it rests on."""

    per_audio_hour: Decimal
    per_million_hours: Decimal
    basis: str


def per_audio_hour(cost: Decimal, audio_samples: int) -> Decimal | None:
    """The cost of an hour of audio, to a millionth; None without any audio."""
    if audio_samples <= 0:
        return None
    return (cost * 3600 * SAMPLE_RATE / audio_samples).quantize(_MICRO)


def projected(report: CostReport) -> Projection | None:
    """A million hours at what the period's audio cost, idle time included; None without any audio."""
    total = report.total
    whole = total.billable_cost + total.wasted_cost + (report.idle_cost or 0)
    each = per_audio_hour(whole, total.audio_samples)
    if each is None:
        return None
    exact = whole * 3600 * SAMPLE_RATE * MILLION / total.audio_samples
    parts = "billable and wasted" if report.idle_cost is None else "billable, wasted and idle"
    basis = f"{total.audio_seconds / 3600:.2f} h of audio: {parts} cost together."
    return Projection(each, exact.quantize(Decimal("0.01")), basis)


def budget_state(spent: Decimal, budget: Decimal) -> Literal["within", "near", "over"]:
    """How a budget stands: `near` from 80 % on."""
    if spent > budget:
        return "over"
    return "near" if spent and spent >= budget * NEAR else "within"
