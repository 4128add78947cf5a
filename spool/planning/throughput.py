"""How long a machine takes for a batch: from a share of its data sheet, or fitted to what was measured.

A fitted pace is a sum of terms, each a count that the architecture gives times a cost that the machine has;
the costs are those, none negative, whose relative errors over the measured runs are least in square. It holds
for the model it was measured with.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Protocol

from spool.errors import InvalidRequest
from spool.planning.chips import Chip
from spool.planning.model_size import Shape
from spool.planning.roofline import Batch, reading_of, work_of

ASSUMED_EFFICIENCY = 0.5
PEER_EFFICIENCY = 0.13
"""What the best engine on Apple silicon whose published speed we know reaches (docs/planning.md)."""
"""The share of a chip's roofline where nothing was measured. Products of matrices alone reach 0.6 to 0.9 on
Apple's GPUs (mlx #3196); whole engines on other machines 0.04 to 0.33."""
TERMS = (
    "dense",
    "attention",
    "utterances",
    "greedy_steps",
    "greedy_seconds",
    "beam_steps",
    "beam_seconds",
    "beam_rows",
)
SWEEPS = 20_000
SETTLED = 1e-13


@dataclass(frozen=True, slots=True)
class Parts:
    """Seconds for a batch, by what takes them. What computes and what moves bytes overlap; the rest adds
    up."""

    compute: float
    bandwidth: float
    search_compute: float
    search_bandwidth: float
    overhead: float = 0.0

    def __add__(self, other: "Parts") -> "Parts":
        """Both, one after the other."""
        return Parts(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))

    @property
    def encoder(self) -> float:
        """The encoder's share."""
        return max(self.compute, self.bandwidth)

    @property
    def search(self) -> float:
        """The search's share."""
        return max(self.search_compute, self.search_bandwidth)

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.encoder + self.search + self.overhead


class Pace(Protocol):
    """How fast a machine is."""

    @property
    def basis(self) -> str:
        """What that rests on, for people."""

    def parts(self, shape: Shape, batch: Batch) -> Parts:
        """How long a batch takes."""

    def reading(self, reader: Shape, batch: Batch) -> Parts:
        """How long a second model takes to read the batch's hypotheses."""


@dataclass(frozen=True, slots=True)
class RooflinePace:
    """A share of what the chip could do at best."""

    chip: Chip
    efficiency: float = ASSUMED_EFFICIENCY
    basis: str = "half of the chip's roofline, assumed"

    def parts(self, shape: Shape, batch: Batch) -> Parts:
        """How long a batch takes."""
        work = work_of(shape, batch)
        compute = self.chip.teraflops * 1e12 * self.efficiency
        bandwidth = self.chip.gigabytes * 1e9 * self.efficiency
        return Parts(
            compute=(work.dense + work.attention + work.positions) / compute,
            bandwidth=work.encoder_bytes / bandwidth,
            search_compute=work.search / compute,
            search_bandwidth=work.search_bytes / bandwidth,
        )

    def reading(self, reader: Shape, batch: Batch) -> Parts:
        """How long a second model takes to read the batch's hypotheses."""
        work = reading_of(reader, batch)
        compute = self.chip.teraflops * 1e12 * self.efficiency
        bandwidth = self.chip.gigabytes * 1e9 * self.efficiency
        return Parts(
            compute=(work.dense + work.attention) / compute,
            bandwidth=work.encoder_bytes / bandwidth,
            search_compute=work.decoder / compute,
            search_bandwidth=work.decoder_bytes / bandwidth,
        )


@dataclass(frozen=True, slots=True)
class Run:
    """One batch that was measured: seconds of the engine's clock, and of the processor (all threads); tokens
    of the best hypotheses for a second of audio."""

    batch: Batch
    seconds: float
    processor_seconds: float = 0.0
    tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class FittedPace:
    """What measured runs came to. `costs` are seconds for one of each of `TERMS`."""

    costs: tuple[float, ...]
    basis: str

    def parts(self, shape: Shape, batch: Batch) -> Parts:
        """How long a batch takes; what computes and what moves bytes was measured together."""
        spent = [count * cost for count, cost in zip(terms(shape, batch), self.costs, strict=True)]
        return Parts(spent[0] + spent[1], 0.0, sum(spent[3:]), 0.0, spent[2])

    def reading(self, reader: Shape, batch: Batch) -> Parts:
        """How long a second model takes to read the batch's hypotheses, at the first one's pace: its reading
        is products of matrices like an encoder's, not steps one after another."""
        work, (dense, attention, *_) = reading_of(reader, batch), self.costs
        return Parts(dense * work.dense + attention * work.attention, 0.0, dense * work.decoder, 0.0)


@dataclass(frozen=True, slots=True)
class ScaledPace:
    """Another pace, so many times as fast: what the ledger says beside what the model says."""

    pace: Pace
    factor: float
    basis: str

    def parts(self, shape: Shape, batch: Batch) -> Parts:
        """How long a batch takes."""
        return self._scaled(self.pace.parts(shape, batch))

    def reading(self, reader: Shape, batch: Batch) -> Parts:
        """How long a second model takes to read the batch's hypotheses."""
        return self._scaled(self.pace.reading(reader, batch))

    def _scaled(self, parts: Parts) -> Parts:
        return Parts(*(seconds / self.factor for seconds in astuple(parts)))


def terms(shape: Shape, batch: Batch) -> tuple[float, ...]:
    """What a batch holds of each of `TERMS`; seconds are of audio."""
    work = work_of(shape, batch)
    beam = batch.decoder == "beam"
    search = (batch.seconds, batch.audio_seconds)
    nothing = (0.0, 0.0)
    return (
        work.dense,
        work.attention,
        batch.utterances,
        *(nothing if beam else search),
        *((*search, batch.audio_seconds * batch.beam) if beam else (*nothing, 0.0)),
    )


def fit(shape: Shape, runs: Sequence[Run], basis: str = "measured") -> FittedPace:
    """The costs that explain the runs best. Raises InvalidRequest without runs, or for one that took no
    time."""
    if not runs or any(run.seconds <= 0 for run in runs):
        raise InvalidRequest("A calibration needs runs, and each of them some time.")
    rows = [[count / run.seconds for count in terms(shape, run.batch)] for run in runs]
    scales = [max(row[at] for row in rows) or 1.0 for at in range(len(TERMS))]
    scaled = [[value / scale for value, scale in zip(row, scales, strict=True)] for row in rows]
    costs = _least_squares(scaled)
    return FittedPace(tuple(cost / scale for cost, scale in zip(costs, scales, strict=True)), basis)


def _least_squares(rows: list[list[float]]) -> list[float]:
    """x >= 0 with least sum of (row . x - 1)^2, one coordinate after another."""
    size = len(rows[0])
    square = [[sum(row[a] * row[b] for row in rows) for b in range(size)] for a in range(size)]
    target = [sum(row[a] for row in rows) for a in range(size)]
    x = [0.0] * size
    for _ in range(SWEEPS):
        moved = 0.0
        for at in range(size):
            if not square[at][at]:
                continue
            rest = target[at] - sum(square[at][other] * x[other] for other in range(size) if other != at)
            value = max(0.0, rest / square[at][at])
            moved = max(moved, abs(value - x[at]))
            x[at] = value
        if moved < SETTLED:
            break
    return x
