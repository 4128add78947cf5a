"""The machines of a plan: chips by name at a share of their roofline, or machines that were measured.

Measurements take precedence over assumptions: a calibration run (`spool-worker bench --calibrate --json`),
then the ledger's engine time, then half of the roofline.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spool.domain.ledger import Measured
from spool.errors import InvalidRequest
from spool.planning.chips import THIS_MACHINE, Chip, chip_named, parse_fleet
from spool.planning.plan import Machine, Ownership
from spool.planning.recordings import CHUNK_SECONDS
from spool.planning.roofline import Batch, cap
from spool.planning.shapes import Shape
from spool.planning.throughput import ASSUMED_EFFICIENCY, Pace, RooflinePace, Run, fit

LEDGER_SECONDS = 600.0
"""Audio from which a measurement of the ledger is a good one."""
LEAST_SECONDS = 30.0
"""Audio from which it is better than no answer about this machine."""
UNIT = Chip("unit", 1, 1.0, 1e6)


@dataclass(frozen=True, slots=True)
class Calibration:
    """A machine as `spool-worker bench --calibrate` measured it."""

    chip: str
    model: str
    device: str
    runs: tuple[Run, ...]

    def pace(self, shape: Shape) -> Pace:
        """The pace that the runs show. Raises InvalidRequest."""
        other = "" if self.model == shape.name else f", with {self.model} instead of {shape.name}"
        return fit(shape, self.runs, f"{len(self.runs)} batches measured on {self.chip}{other}")


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of machines besides the table. `price_per_hour` and `watts` are those of this
    machine."""

    calibration: Calibration | None = None
    ledger: Sequence[Measured] = ()
    efficiency: float | None = None
    price_per_hour: float | None = None
    watts: float | None = None


def read_calibration(path: Path) -> Calibration:
    """What `spool-worker bench --calibrate --json` printed. Raises InvalidRequest."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        return Calibration(
            str(tree["chip"]), str(tree["model"]), str(tree["device"]), tuple(map(_run, tree["runs"]))
        )
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRequest(
            f"{path} is not the output of `spool-worker bench --calibrate --json`."
        ) from error


def build_fleet(text: str, shape: Shape, ownership: Ownership, known: Known) -> tuple[Machine, ...]:
    """The machines of `text` (`parse_fleet`). Raises InvalidRequest for `this machine` if nothing was
    measured."""
    return tuple(
        _this_machine(count, shape, known)
        if name == THIS_MACHINE
        else _of_chip(count, name, shape, ownership, known)
        for count, name in parse_fleet(text)
    )


def _run(tree: Mapping[str, object]) -> Run:
    batch = Batch(
        float(str(tree["seconds"])),
        float(str(tree["utterances"])),
        "beam" if tree["decoder"] == "beam" else "greedy",
        int(str(tree["beam"])),
    )
    return Run(batch, float(str(tree["engine_seconds"])), float(str(tree["processor_seconds"])))


def _this_machine(count: int, shape: Shape, known: Known) -> Machine:
    pace: Pace
    job_share = shape.job_share
    if known.calibration is not None:
        pace, name = known.calibration.pace(shape), known.calibration.chip
    else:
        measured = _best_measurement(known.ledger, shape, None, LEAST_SECONDS)
        if measured is None:
            raise InvalidRequest(
                f"This machine has not been measured yet: the ledger has less than {LEAST_SECONDS:.0f} s of "
                f"audio with the model {shape.name}. Transcribe a recording first. Or measure it with "
                "`spool-worker bench --calibrate --json > this.json`, then add --calibration this.json. Or "
                "name its chip, for example --fleet M4."
            )
        pace, name, job_share = _fit_ledger(UNIT, shape, measured), measured.chip, 1.0
    title = f"{THIS_MACHINE} ({name})"
    return Machine(title, count, pace, known.price_per_hour, known.watts, job_share=job_share)


def _of_chip(count: int, name: str, shape: Shape, ownership: Ownership, known: Known) -> Machine:
    chip = chip_named(name)
    assert chip is not None  # parse_fleet knows the same table
    pace: Pace
    job_share = shape.job_share
    if known.calibration is not None and chip_named(known.calibration.chip) == chip:
        pace = known.calibration.pace(shape)
    elif known.efficiency is not None:
        pace = RooflinePace(
            chip, known.efficiency, f"{known.efficiency:.0%} of the chip's roofline, as given"
        )
    elif (measured := _best_measurement(known.ledger, shape, chip, LEDGER_SECONDS)) is not None:
        pace, job_share = _fit_ledger(chip, shape, measured), 1.0
    else:
        pace = RooflinePace(chip, ASSUMED_EFFICIENCY)
    return Machine(chip.name, count, pace, ownership.per_hour(chip), chip.watts, chip.notes, job_share)


def _best_measurement(
    ledger: Sequence[Measured], shape: Shape, chip: Chip | None, least_seconds: float
) -> Measured | None:
    """The measurement of this model, on this chip if one is given, that has the most audio."""
    usable = (
        item
        for item in ledger
        if item.model == shape.name
        and item.audio_seconds >= least_seconds
        and item.engine_seconds > 0
        and (chip is None or chip_named(item.chip) == chip)
    )
    return max(usable, key=lambda item: item.audio_seconds, default=None)


def _fit_ledger(chip: Chip, shape: Shape, measured: Measured) -> Pace:
    """The share of the chip's roofline at which the model takes as long as the ledger says."""
    batch = Batch(CHUNK_SECONDS, 16, measured.decoder, measured.beam)
    rtfx = measured.audio_seconds / measured.engine_seconds
    minutes = measured.audio_seconds / 60
    audio = f"{minutes / 60:.1f} h" if minutes >= 60 else f"{minutes:.0f} min"
    if measured.audio_seconds < LEDGER_SECONDS:
        audio = f"only {measured.audio_seconds:.0f} s"
    basis = f"RTFx {rtfx:.0f} over {audio} of audio in the ledger ({measured.chip})"
    return RooflinePace(chip, rtfx / cap(shape, chip, batch), basis)
