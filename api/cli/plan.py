"""`spool plan`: how long a fleet would take for an amount of audio, at what cost, and what limits it.

Owns the command's options; the arithmetic is `spool.planning`, the output `api.cli.plan_report`, and lengths
of files are measured by `spool-worker measure`. Contacts no server. If the settings' database is reachable,
measured speeds from its ledger replace assumed ones.
"""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from api.cli.connection import Json, out
from api.cli.plan_report import Forecast, Report, answer, report_document, report_tables
from spool.commandline.app import GROUPS, USAGE
from spool.domain.ledger import Measured
from spool.errors import InvalidRequest, SpoolError
from spool.planning.fleet import Known, build_fleet, read_calibration
from spool.planning.model_size import read_shape
from spool.planning.plan import Ownership, Surroundings, Workload, by_chip, make_plan, what_if
from spool.planning.recordings import CHUNK_SECONDS, Lengths, parse_lengths, read_lengths, summarize
from spool.planning.roofline import Reads
from spool.planning.shapes import ModelShape, Shape
from spool.planning.throughput import ASSUMED_EFFICIENCY, PEER_EFFICIENCY
from spool.settings import FRAME_BUDGET, MAX_BATCH, Settings, load_settings
from spool.store import Database
from spool.store.ledger.charges import measure_throughputs

_MORE = GROUPS["Details"]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Audio:
    """What is transcribed."""

    hours: Annotated[float | None, Parameter(validator=Number(gte=0.001), help="Hours of audio.")] = None
    lengths: Annotated[
        str,
        Parameter(
            help="Length of recordings, such as 45m, or lengths with shares of the audio: 20s:10%,1h:90%."
        ),
    ] = "45m"
    measured: Annotated[
        Path | None,
        Parameter(help="Output of `spool-worker measure --json`, instead of --hours and --lengths."),
    ] = None
    found: Annotated[Lengths | None, Parameter(parse=False)] = None
    chunk: Annotated[
        float, Parameter(group=_MORE, validator=Number(gte=1), help="Mean length of chunks, in seconds.")
    ] = CHUNK_SECONDS


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Search:
    """How it is searched."""

    model: Annotated[str, Parameter(help="Name of a model in the settings, a folder, or 0.6b or 110m.")] = ""
    decoder: Annotated[
        Literal["greedy", "beam", "rescore"],
        Parameter(help="Search method; rescore: a WeNet model's own decoders rescore a beam."),
    ] = "greedy"
    beam: Annotated[int, Parameter(validator=Number(gte=1, lte=32), help="Beam width.")] = 4
    rescore_model: Annotated[
        str | None,
        Parameter(group=_MORE, help="Second model that rescores the beam's hypotheses, named as --model."),
    ] = None
    attention_weight: Annotated[
        float, Parameter(group=_MORE, validator=Number(gte=0), help="Their weight; 0 disables them.")
    ] = 1
    reverse_weight: Annotated[
        float, Parameter(group=_MORE, validator=Number(gte=0, lte=1), help="Right-to-left decoder's weight.")
    ] = 0


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Machines:
    """What it runs on, and what that costs."""

    fleet: Annotated[str, Parameter(help="Machines, such as '4xM4, 1xM3 Ultra', or 'this machine'.")] = (
        "this machine"
    )
    calibration: Annotated[
        Path | None, Parameter(help="Output of `spool-worker bench --calibrate --json`.")
    ] = None
    ledger: Annotated[
        bool, Parameter(help="Use speeds from the ledger, if it has any.", negative_bool="no-")
    ] = True
    efficiency: Annotated[
        float | None,
        Parameter(
            group=_MORE,
            validator=Number(gte=0.001, lte=1),
            help="Share of its roofline that a chip reaches. Default: as measured.",
        ),
    ] = None
    network: Annotated[
        float,
        Parameter(group=_MORE, validator=Number(gte=0.001), help="Mbit/s from the source of the recordings."),
    ] = 1000
    store: Annotated[
        float, Parameter(group=_MORE, validator=Number(gte=0.001), help="Mbit/s to the object store.")
    ] = 1000
    years: Annotated[
        float,
        Parameter(group=_MORE, validator=Number(gte=0.1), help="Years over which a machine is depreciated."),
    ] = 3
    duty: Annotated[
        float,
        Parameter(
            group=_MORE, validator=Number(gte=0.01, lte=1), help="Share of that time in which it works."
        ),
    ] = 0.7
    kwh: Annotated[
        float, Parameter(group=_MORE, validator=Number(gte=0), help="Price of a kilowatt-hour.")
    ] = 0.15
    watts: Annotated[
        float | None,
        Parameter(group=_MORE, validator=Number(gte=0), help="Power that this machine draws under load."),
    ] = None

    @property
    def ownership(self) -> Ownership:
        """What a machine costs that is owned."""
        return Ownership(self.years, self.duty, self.kwh)


def plan(
    *files: Annotated[
        Path,
        Parameter(name="FILE", help="Recordings, or folders of them, whose time and cost you want to know."),
    ],
    audio: Audio = Audio(),
    search: Search = Search(),
    on: Machines = Machines(),
    details: Annotated[
        bool, Parameter(help="Also show machines, energy, other chips, clouds, and what would change it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say how long recordings will take, and what that costs.

    Without files, --hours or --measured it is for 1,000,000 hours.
    """
    settings = load_settings()
    if files:
        audio = replace(audio, found=measure_files(files))
    work = _workload(settings, audio, search)
    known = Known(
        read_calibration(on.calibration) if on.calibration else None,
        _ledger(settings) if on.ledger else (),
        on.efficiency,
        settings.price_per_hour_micros() / 1e6,
        on.watts,
    )
    # What is assumed rather than measured is a range, down to the efficiency of the best measured peer.
    most = _forecast(work, on, known, on.efficiency or ASSUMED_EFFICIENCY)
    peer = on.efficiency or PEER_EFFICIENCY
    least = _forecast(work, on, replace(known, efficiency=peer), peer)
    others = what_if(work, build_fleet(on.fleet, work.shape, on.ownership, known))
    report = Report(most, least, others, settings.cloud_prices, settings.currency)
    if as_json:
        print(json.dumps(report_document(report), indent=2))
    else:
        out.print(report_tables(report) if details else answer(report))


def measure_files(files: Sequence[Path]) -> Lengths:
    """How long the recordings are, by the worker's reader of their headers. Raises InvalidRequest for no
    recordings, and for an installation without a worker."""
    if any(re.match("[a-z0-9]+:/", str(each)) and not each.exists() for each in files):
        raise InvalidRequest(
            "`spool plan` measures files of this machine. For addresses, give their --hours."
        )
    command = [sys.executable, "-m", "worker.cli.main", "measure", "--json", *map(str, files)]
    measured = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found = json.loads(measured.stdout)["recordings"]
    except (ValueError, KeyError):
        reason = measured.stderr.strip().rpartition("\n")[2].removeprefix("spool-worker: ")
        if measured.returncode != USAGE:
            reason = f"The recordings cannot be measured here: {reason}"
        raise InvalidRequest(reason) from None
    return summarize([(float(each["seconds"]), int(each["bytes"])) for each in found])


def _forecast(work: Workload, on: Machines, known: Known, efficiency: float) -> Forecast:
    """The plan for the fleet, and each chip at this share of its roofline."""
    machines = build_fleet(on.fleet, work.shape, on.ownership, known)
    return Forecast(
        make_plan(work, machines, Surroundings(on.network, on.store)),
        by_chip(work, efficiency, on.ownership),
    )


def _workload(settings: Settings, audio: Audio, search: Search) -> Workload:
    shape = _shape(settings, search.model or settings.default_model)
    lengths = audio.found or (
        read_lengths(audio.measured) if audio.measured else parse_lengths(audio.lengths)
    )
    return Workload(
        audio.hours if audio.hours is not None else (lengths.seconds or 0) / 3600 or 1_000_000,
        lengths,
        shape,
        "greedy" if search.decoder == "greedy" else "beam",
        search.beam,
        audio.chunk,
        settings.frame_budget or FRAME_BUDGET,
        settings.max_batch or MAX_BATCH,
        _reader(settings, search),
        _reads(shape, search),
    )


def _shape(settings: Settings, name: str) -> Shape:
    """The sizes of a model, under the name that jobs and the ledger use. Raises InvalidRequest."""
    return replace(read_shape(settings.models.get(name, name)), name=name)


def _reader(settings: Settings, search: Search) -> Shape | None:
    """The sizes of the model that rescores. Raises InvalidRequest if the search yields nothing to rescore."""
    if search.rescore_model is None:
        return None
    if search.decoder == "greedy":
        raise InvalidRequest(
            "--rescore-model: a second model orders the hypotheses of a beam; add --decoder beam"
        )
    return _shape(settings, search.rescore_model)


def _reads(shape: Shape, search: Search) -> Reads:
    """Which of the model's own decoders rescore. Raises InvalidRequest for those it does not have."""
    reverse = search.reverse_weight
    if search.decoder != "rescore":
        return "none"
    readers = shape.readers if isinstance(shape, ModelShape) else None
    if readers is None:
        raise InvalidRequest(f"--decoder rescore: {shape.name} has no attention decoders beside its CTC head")
    if reverse and not readers.backwards:
        raise InvalidRequest(f"--reverse-weight: {shape.name} has no decoder that reads from right to left")
    if not search.attention_weight:
        return "none"
    return "both" if 0 < reverse < 1 else "right" if reverse else "left"


def _ledger(settings: Settings) -> Sequence[Measured]:
    """The ledger's measurements; empty if there is no database yet."""
    try:
        database = Database(settings.database_url)
        try:
            with database.read() as tx:
                return measure_throughputs(tx)
        finally:
            database.close()
    except SpoolError:
        return ()
