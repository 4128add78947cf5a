"""What the ledger returns: sums of cost lines, a period's report, and measured throughput.

Pure. Nanoseconds, samples and money are exact (`int`, `Decimal`); the properties in seconds are floats, for
display. The queries are in `spool.store.ledger`.
"""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal

from spool.domain.options import Decoder
from spool.domain.pricing import NANOS_PER_SECOND, SAMPLE_RATE, rtfx

GroupBy = Literal["day", "project", "model", "worker", "pool", "job", "key", "batch", "tag"]


@dataclass(frozen=True, slots=True)
class CostSums:
    """Sums over cost lines. Wasted lines add engine time and wasted cost, never audio."""

    audio_samples: int
    billable_ns: int
    wasted_ns: int
    billable_cost: Decimal
    wasted_cost: Decimal

    def __add__(self, other: "CostSums") -> "CostSums":
        return CostSums(
            self.audio_samples + other.audio_samples,
            self.billable_ns + other.billable_ns,
            self.wasted_ns + other.wasted_ns,
            self.billable_cost + other.billable_cost,
            self.wasted_cost + other.wasted_cost,
        )

    @property
    def audio_seconds(self) -> float:
        """Audio transcribed, in seconds."""
        return self.audio_samples / SAMPLE_RATE

    @property
    def engine_ns(self) -> int:
        """All engine time, billable and wasted, in nanoseconds."""
        return self.billable_ns + self.wasted_ns

    @property
    def engine_seconds(self) -> float:
        """All engine time, billable and wasted, in seconds."""
        return self.engine_ns / NANOS_PER_SECOND

    @property
    def rtfx(self) -> float | None:
        """Seconds of audio per second of engine, wasted time included; None without engine time."""
        return rtfx(self.audio_seconds, self.engine_seconds)


NOTHING = CostSums(0, 0, 0, Decimal(0), Decimal(0))


@dataclass(frozen=True, slots=True)
class CostRow:
    """One group of a report; `key` is the day (ISO), a name, an id, or a tag's value."""

    key: str
    sums: CostSums


@dataclass(frozen=True, slots=True)
class CostReport:
    """A period's costs: rows by key, their total, and the cost of the fleet's idle time."""

    start: date
    end: date
    group_by: GroupBy
    currency: str
    rows: tuple[CostRow, ...]
    total: CostSums
    idle_seconds: float | None
    idle_cost: Decimal | None


@dataclass(frozen=True, slots=True)
class Measured:
    """Audio and engine seconds of the kept chunks of one chip, model and search, from the ledger."""

    chip: str
    model: str
    audio_seconds: float
    engine_seconds: float
    decoder: Decoder = "greedy"
    beam: int = 4
