"""The plan: how long a fleet takes, what that costs, what limits it, and what changes would do.

Every number follows from the arguments; `basis` of a machine's pace says where its figures come from. Speeds
are seconds of audio a second (RTFx); money is in the currency of its prices.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from spool.domain.options import Decoder
from spool.errors import InvalidRequest
from spool.planning.chips import CHIPS, Chip
from spool.planning.recordings import CHUNK_SECONDS, Lengths
from spool.planning.roofline import Batch, Reads, cost_of, cost_of_reading
from spool.planning.shapes import Shape
from spool.planning.throughput import Pace, Parts, RooflinePace
from spool.settings import FRAME_BUDGET, MAX_BATCH

HOURS_A_YEAR = 8766.0
FRAMES_A_SECOND = 100
MILLION = 1_000_000
CHUNKS = (5.0, 10.0, 15.0, 25.0, 30.0, 60.0, 120.0)
BEAMS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Workload:
    """What is to be transcribed, and how. `frame_budget` and `max_batch` as in the settings, which may leave
    them to the machine. `reader`: a second model that reads the hypotheses of a beam; `reads`: the
    model's own decoders that do."""

    hours: float
    lengths: Lengths
    shape: Shape
    decoder: Decoder = "greedy"
    beam: int = 4
    chunk_seconds: float = CHUNK_SECONDS
    frame_budget: int = FRAME_BUDGET
    max_batch: int = MAX_BATCH
    reader: Shape | None = None
    reads: Reads = "none"

    def time_batch(self, pace: Pace, batch: Batch) -> Parts:
        """How long a batch takes at this pace."""
        first = pace.time_batch(self.shape, batch)
        if self.reader is None or batch.decoder != "beam":
            return first
        return first + pace.time_reading(self.reader, batch)

    def operations_per_second(self, batch: Batch) -> float:
        """Operations for a second of audio."""
        operations = cost_of(self.shape, batch).operations
        if self.reader is not None and batch.decoder == "beam":
            operations += cost_of_reading(self.reader, batch).operations
        return operations / batch.audio_seconds

    def batches(self) -> tuple[tuple[Batch, float], ...]:
        """The batches that the workload makes, each with its share of the audio."""
        batches = []
        for seconds, share in self.lengths.chunks(self.chunk_seconds):
            fitting = int(self.frame_budget / (seconds * FRAMES_A_SECOND))
            utterances = max(1, min(self.max_batch, fitting))
            batches.append((Batch(seconds, utterances, self.decoder, self.beam, reads=self.reads), share))
        return tuple(batches)


@dataclass(frozen=True, slots=True)
class Ownership:
    """What an hour of a bought machine costs: its price over `years`, of which it works the share `duty`, and
    the power that it draws."""

    years: float = 3.0
    duty: float = 0.7
    price_per_kwh: float = 0.15

    def per_hour(self, chip: Chip) -> float | None:
        """The price of a working hour; None if the machine's price is unknown."""
        if chip.price is None or chip.watts is None:
            return None
        return chip.price / (self.years * HOURS_A_YEAR * self.duty) + chip.watts / 1000 * self.price_per_kwh


@dataclass(frozen=True, slots=True)
class Machine:
    """`count` machines of one kind, at `price_per_hour` for each working hour, drawing `watts`; None if
    unknown. `job_share`: what jobs keep of the pace, which is the engine's; 1 if jobs were measured."""

    name: str
    count: int
    pace: Pace
    price_per_hour: float | None = None
    watts: float | None = None
    notes: tuple[str, ...] = ()
    job_share: float = 1.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the fleet shares: the connections to the recordings and to the object store, in megabits a second.
    A second of audio adds `transcript_bytes` to the store."""

    network_mbit: float = 1000.0
    store_mbit: float = 1000.0
    transcript_bytes: float = 500.0


@dataclass(frozen=True, slots=True)
class MachineSpeed:
    """The speed of one machine of a kind; `search_share` of its time goes to the search."""

    machine: Machine
    rtfx: float
    compute_rtfx: float
    bandwidth_rtfx: float | None
    search_share: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What a fleet needs for a workload. `limits` are the fleet's speeds if nothing else bound it, slowest
    first."""

    workload: Workload
    machines: tuple[MachineSpeed, ...]
    rtfx: float
    hours: float
    cost: float | None
    kilowatt_hours: float | None
    limits: tuple[tuple[str, float], ...]

    @property
    def binds(self) -> str:
        """The bottleneck: the slowest of `limits`."""
        return self.limits[0][0]

    @property
    def margin(self) -> float:
        """The speed of the next slowest limit, over that of the bottleneck."""
        return self.limits[1][1] / self.limits[0][1]

    @property
    def cost_per_million_hours(self) -> float | None:
        """The cost of a million hours of audio at this plan's rate."""
        return None if self.cost is None else self.cost / self.workload.hours * MILLION


@dataclass(frozen=True, slots=True)
class ChipRow:
    """A million hours of audio on one machine with the chip, at this share of its roofline."""

    chip: Chip
    rtfx: float
    machine_hours: float
    cost: float | None
    kilowatt_hours: float | None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The fleet with one thing changed; `change` is its speed over the plan's."""

    what: str
    rtfx: float
    change: float
    gigaflops: float
    """Operations for a second of audio, in thousand millions."""


def make_plan(workload: Workload, fleet: Sequence[Machine], around: Surroundings | None = None) -> Plan:
    """How long the fleet takes. Raises InvalidRequest without hours or machines."""
    if workload.hours <= 0 or not fleet:
        raise InvalidRequest("A plan needs hours of audio and at least one machine.")
    speeds = tuple(measure_speed(workload, machine) for machine in fleet)
    limits = _find_limits(workload, speeds, around or Surroundings())
    machines_rtfx = sum(speed.rtfx * speed.machine.count for speed in speeds)
    shared = min(rate for name, rate in limits if name in ("network", "object store"))
    rtfx = min(machines_rtfx, shared)
    hours = workload.hours / rtfx
    return Plan(
        workload,
        speeds,
        rtfx,
        hours,
        _sum_known(
            m.count * m.price_per_hour * hours if m.price_per_hour is not None else None for m in fleet
        ),
        _sum_known(m.count * m.watts / 1000 * hours if m.watts is not None else None for m in fleet),
        limits,
    )


def measure_speed(workload: Workload, machine: Machine) -> MachineSpeed:
    """One machine's speed: the audio of each kind of batch takes its own time."""
    spent = _time_batches(workload, machine.pace)
    compute = sum(share * (parts.compute + parts.search_compute + parts.overhead) for parts, share in spent)
    bandwidth = sum(share * (parts.bandwidth + parts.search_bandwidth) for parts, share in spent)
    seconds = sum(share * parts.seconds for parts, share in spent)
    kept = machine.job_share
    return MachineSpeed(
        machine,
        kept / seconds,
        kept / compute,
        kept / bandwidth if bandwidth else None,
        sum(share * parts.search for parts, share in spent) / seconds,
    )


def by_chip(
    workload: Workload, efficiency: float, ownership: Ownership, chips: Sequence[Chip] = CHIPS
) -> tuple[ChipRow, ...]:
    """A million hours on each chip of the table."""
    rows = []
    for chip in chips:
        machine = Machine(chip.name, 1, RooflinePace(chip, efficiency), job_share=workload.shape.job_share)
        rtfx = measure_speed(workload, machine).rtfx
        hours, price = MILLION / rtfx, ownership.per_hour(chip)
        energy = None if chip.watts is None else chip.watts / 1000 * hours
        rows.append(ChipRow(chip, rtfx, hours, None if price is None else price * hours, energy))
    return tuple(rows)


def what_if(workload: Workload, fleet: Sequence[Machine]) -> tuple[WhatIf, ...]:
    """The same fleet with other chunks and with other searches, without the limits that it shares."""
    now = _sum_rtfx(workload, fleet)
    rows = [
        _compare(f"chunks of {seconds:.0f} s", replace(workload, chunk_seconds=seconds), fleet, now)
        for seconds in CHUNKS
    ]
    searches: list[tuple[str, Decoder, int]] = [("greedy", "greedy", workload.beam)]
    searches += [(f"beam {beam}", "beam", beam) for beam in BEAMS]
    rows += [
        _compare(name, replace(workload, decoder=decoder, beam=beam), fleet, now)
        for name, decoder, beam in searches
    ]
    return tuple(rows)


def _compare(what: str, workload: Workload, fleet: Sequence[Machine], now: float) -> WhatIf:
    rtfx = _sum_rtfx(workload, fleet)
    operations = sum(share * workload.operations_per_second(batch) for batch, share in workload.batches())
    return WhatIf(what, rtfx, rtfx / now, operations / 1e9)


def _sum_rtfx(workload: Workload, fleet: Sequence[Machine]) -> float:
    return sum(machine.count * measure_speed(workload, machine).rtfx for machine in fleet)


def _time_batches(workload: Workload, pace: Pace) -> list[tuple[Parts, float]]:
    """How long each kind of batch takes, and how many of them make up a second of audio."""
    return [
        (workload.time_batch(pace, batch), share / batch.audio_seconds) for batch, share in workload.batches()
    ]


def _find_limits(
    workload: Workload, speeds: Sequence[MachineSpeed], around: Surroundings
) -> tuple[tuple[str, float], ...]:
    compute = sum(speed.machine.count * speed.compute_rtfx for speed in speeds)
    bandwidths = [(speed.machine.count, speed.bandwidth_rtfx) for speed in speeds]
    network = around.network_mbit * 1000 / workload.lengths.kbit
    store = around.store_mbit * 1e6 / 8 / around.transcript_bytes
    limits = [("compute", compute), ("network", network), ("object store", store)]
    known = [count * rtfx for count, rtfx in bandwidths if rtfx is not None]
    if len(known) == len(bandwidths):
        limits.append(("memory bandwidth", sum(known)))
    return tuple(sorted(limits, key=lambda limit: limit[1]))


def _sum_known(amounts: Iterable[float | None]) -> float | None:
    """The sum; None if any amount is unknown."""
    total = 0.0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total
