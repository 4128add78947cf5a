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
from spool.planning.roofline import Batch, Cost, cost_of, cost_of_reading
from spool.planning.shapes import Shape

ASSUMED_EFFICIENCY = 0.5
"""The share of a chip's roofline if nothing was measured. Products of matrices alone reach 0.6 to 0.9 on
Apple's GPUs (mlx #3196); whole engines on other machines 0.04 to 0.33."""
PEER_EFFICIENCY = 0.13
"""What the best engine on Apple silicon whose published speed we know reaches (docs/planning.md)."""
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
        """Two batches, one after the other."""
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
        """How long the batch takes."""
        return self.encoder + self.search + self.overhead


class Pace(Protocol):
    """How fast a machine is."""

    @property
    def basis(self) -> str:
        """What the figures rest on, for people."""

    def time_batch(self, shape: Shape, batch: Batch) -> Parts:
        """How long a batch takes."""

    def time_reading(self, reader: Shape, batch: Batch) -> Parts:
        """How long a second model takes to read the batch's hypotheses."""


@dataclass(frozen=True, slots=True)
class RooflinePace:
    """A share of what the chip could do at best."""

    chip: Chip
    efficiency: float = ASSUMED_EFFICIENCY
    basis: str = "half of the chip's roofline, assumed"

    def time_batch(self, shape: Shape, batch: Batch) -> Parts:
        """How long a batch takes."""
        return self._time(cost_of(shape, batch))

    def time_reading(self, reader: Shape, batch: Batch) -> Parts:
        """How long a second model takes to read the batch's hypotheses."""
        return self._time(cost_of_reading(reader, batch))

    def _time(self, cost: Cost) -> Parts:
        compute = self.chip.teraflops * 1e12 * self.efficiency
        bandwidth = self.chip.gigabytes * 1e9 * self.efficiency
        return Parts(
            compute=cost.encoder / compute,
            bandwidth=cost.encoder_bytes / bandwidth,
            search_compute=cost.search / compute,
            search_bandwidth=cost.search_bytes / bandwidth,
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
    """A pace fitted to measured runs. `costs` are seconds for one of each of `TERMS`."""

    costs: tuple[float, ...]
    basis: str

    def time_batch(self, shape: Shape, batch: Batch) -> Parts:
        """How long a batch takes. Computing and moving bytes were measured together."""
        spent = [count * cost for count, cost in zip(terms(shape, batch), self.costs, strict=True)]
        return Parts(spent[0] + spent[1], 0.0, sum(spent[3:]), 0.0, spent[2])

    def time_reading(self, reader: Shape, batch: Batch) -> Parts:
        """How long a second model takes to read the batch's hypotheses, at the first one's pace: reading is
        products of matrices like an encoder's, not steps one after another."""
        cost, (dense, attention, *_) = cost_of_reading(reader, batch), self.costs
        return Parts(dense * cost.dense + attention * cost.attention, 0.0, dense * cost.search, 0.0)


def terms(shape: Shape, batch: Batch) -> tuple[float, ...]:
    """How much of each of `TERMS` a batch has; seconds are of audio."""
    cost, steps, seconds = cost_of(shape, batch), batch.seconds, batch.audio_seconds
    search = (0.0, 0.0, steps, seconds, seconds * batch.beam)
    if batch.decoder == "greedy":
        search = (steps, seconds, 0.0, 0.0, 0.0)
    return (cost.dense, cost.attention, batch.utterances, *search)


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
