"""What the ledger answers: lines, sums, a job's bill and a period's report. Records only; no SQL.

Nanoseconds, samples and money are exact (`int`, `Decimal`); the properties in seconds are floats for reading.

Which machines a plan is for: chips by name at a share of their roofline, or machines that were measured.

What was measured goes before what is assumed: a calibration run (`spool-worker bench --calibrate --json`),
then the ledger's engine time, then half of the roofline.
"""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal

from spool.domain.options import Decoder
from spool.domain.pricing import NANOS_PER_SECOND, SAMPLE_RATE, rtfx

GroupBy = Literal["day", "project", "model", "worker", "pool", "job", "key", "batch", "tag"]


@dataclass(frozen=True, slots=True)
class CostLine:
    """One line of a bill: what one worker did for one attempt at a job on one UTC day at one price."""

    job_id: str
    attempt: int
    worker_id: str
    worker: str
    day: date
    model: str
    pool: str
    project: str
    wasted: bool
    engine_ns: int
    audio_samples: int
    price_per_hour: Decimal
    cost: Decimal

    @property
    def engine_seconds(self) -> float:
        """Engine time in seconds."""
        return self.engine_ns / NANOS_PER_SECOND

    @property
    def audio_seconds(self) -> float:
        """Audio transcribed, in seconds."""
        return self.audio_samples / SAMPLE_RATE


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
        """Seconds of audio per second of engine, wasted time included; None without any."""
        return rtfx(self.audio_seconds, self.engine_seconds)


NOTHING = CostSums(0, 0, 0, Decimal(0), Decimal(0))


@dataclass(frozen=True, slots=True)
class JobCost:
    """A job's bill so far."""

    sums: CostSums
    currency: str
    lines: tuple[CostLine, ...]

    @property
    def audio_seconds(self) -> float:
        """Audio transcribed, in seconds."""
        return self.sums.audio_seconds

    @property
    def engine_seconds(self) -> float:
        """Engine time in seconds, wasted time included."""
        return self.sums.engine_seconds

    @property
    def billable_cost(self) -> Decimal:
        """Money for engine time whose result was kept."""
        return self.sums.billable_cost

    @property
    def wasted_cost(self) -> Decimal:
        """Money for engine time whose result was lost."""
        return self.sums.wasted_cost

    @property
    def rtfx(self) -> float | None:
        """Seconds of audio per second of engine."""
        return self.sums.rtfx


@dataclass(frozen=True, slots=True)
class CostRow:
    """One group of a report; `key` is the day (ISO), a name, an id, or a tag's value."""

    key: str
    sums: CostSums


@dataclass(frozen=True, slots=True)
class CostReport:
    """A period's costs: rows by key, their total, and what the fleet's idle time cost besides."""

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
    """What the ledger says of one chip with one model: audio and engine seconds of chunks that were kept."""

    chip: str
    model: str
    audio_seconds: float
    engine_seconds: float
    decoder: Decoder = "greedy"
    beam: int = 4
