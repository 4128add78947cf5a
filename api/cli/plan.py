"""`spool plan`: how long a fleet would take for an amount of audio, at what cost, and what limits it.

Owns the command's options and its output, as tables and as JSON; the arithmetic is `spool.planning`. Contacts
no server. If the settings' database is reachable, measured speeds from its ledger replace assumed ones.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from api.cli.connection import Json, out
from api.cli.tables import format_money, sheet_of
from spool.commandline.app import GROUPS
from spool.domain.ledger import Measured
from spool.domain.pricing import CloudPrices
from spool.errors import InvalidRequest, SpoolError
from spool.planning.fleet import Known, build_fleet, read_calibration
from spool.planning.model_size import ModelShape, Shape, read_shape
from spool.planning.plan import (
    MILLION,
    ChipRow,
    Ownership,
    Plan,
    Surroundings,
    WhatIf,
    Workload,
    by_chip,
    make_plan,
    what_if,
)
from spool.planning.recordings import CHUNK_SECONDS, parse_lengths, read_lengths
from spool.planning.roofline import Reads
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


def plan(
    *,
    audio: Audio = Audio(),
    search: Search = Search(),
    on: Machines = Machines(),
    as_json: Json = False,
) -> None:
    """Estimate time and cost of an archive on a fleet."""
    settings = load_settings()
    work = _workload(settings, audio, search)
    own, surroundings = Ownership(on.years, on.duty, on.kwh), Surroundings(on.network, on.store)
    known = Known(
        read_calibration(on.calibration) if on.calibration else None,
        _ledger(settings) if on.ledger else (),
        on.efficiency,
        settings.price_per_hour_micros() / 1e6,
        on.watts,
    )
    machines = build_fleet(on.fleet, work.shape, own, known)
    forecast = make_plan(work, machines, surroundings)
    chips = by_chip(work, on.efficiency or ASSUMED_EFFICIENCY, own)
    # What is assumed rather than measured is a range, down to the efficiency of the best measured peer.
    least = replace(known, efficiency=on.efficiency or PEER_EFFICIENCY)
    slow = make_plan(work, build_fleet(on.fleet, work.shape, own, least), surroundings)
    slow_chips = by_chip(work, on.efficiency or PEER_EFFICIENCY, own)
    others, clouds, currency = what_if(work, machines), settings.cloud_prices, settings.currency
    if as_json:
        lower = {"at_least": document(slow, slow_chips, (), clouds, currency)}
        print(json.dumps(document(forecast, chips, others, clouds, currency) | lower, indent=2))
        return
    out.print(tables(forecast, chips, others, clouds, currency, slow, slow_chips))


def _workload(settings: Settings, audio: Audio, search: Search) -> Workload:
    shape = _shape(settings, search.model or settings.default_model)
    lengths = read_lengths(audio.measured) if audio.measured else parse_lengths(audio.lengths)
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


def tables(
    plan: Plan,
    chips: Sequence[ChipRow],
    others: Sequence[WhatIf],
    clouds: CloudPrices,
    currency: str,
    slow: Plan | None = None,
    slow_chips: Sequence[ChipRow] = (),
) -> RenderableType:
    """The plan, a comparison of chips and clouds, and alternatives; `slow` and `slow_chips` are the lower end
    of assumed speeds."""
    return Group(
        _summary(plan, slow or plan, currency),
        "",
        _machines(plan, slow or plan),
        "",
        Text(f"1,000,000 hours of audio, by chip and by cloud (its prices of {clouds.as_of})", style="bold"),
        _chips(chips, slow_chips or chips, clouds, currency),
        "",
        Text("What if", style="bold"),
        _what_if(others),
    )


def document(
    plan: Plan, chips: Sequence[ChipRow], others: Sequence[WhatIf], clouds: CloudPrices, currency: str
) -> dict[str, object]:
    """The same as JSON. Wall-clock and audio hours, kilowatt-hours, and money as numbers."""
    work = plan.workload
    return {
        "audio_hours": work.hours,
        "mean_recording_seconds": work.lengths.mean,
        "model": work.shape.name,
        "decoder": work.decoder,
        "beam": work.beam if work.decoder == "beam" else None,
        "attention_decoders": work.reads,
        "rescore_model": None if work.reader is None else work.reader.name,
        "currency": currency,
        "rtfx": plan.rtfx,
        "hours": plan.hours,
        "cost": plan.cost,
        "cost_per_million_hours": plan.cost_per_million_hours,
        "kilowatt_hours": plan.kilowatt_hours,
        "binds": plan.binds,
        "margin": plan.margin,
        "limits": dict(plan.limits),
        "machines": [
            {
                "name": each.machine.name,
                "count": each.machine.count,
                "rtfx": each.rtfx,
                "search_share": each.search_share,
                "price_per_hour": each.machine.price_per_hour,
                "watts": each.machine.watts,
                "basis": each.machine.pace.basis,
                "notes": list(each.machine.notes),
            }
            for each in plan.machines
        ],
        "chips": [
            {
                "chip": row.chip.name,
                "gpu_cores": row.chip.cores,
                "rtfx": row.rtfx,
                "machine_hours": row.machine_hours,
                "cost_per_million_hours": row.cost,
                "kilowatt_hours": row.kilowatt_hours,
                "source": row.chip.source,
                "notes": list(row.chip.notes),
            }
            for row in chips
        ],
        "clouds": {
            "as_of": clouds.as_of.isoformat(),
            "currency": clouds.currency,
            "cost_per_million_hours": {n: float(p * MILLION) for n, p in clouds.per_audio_hour.items()},
        },
        "what_if": [
            {"what": row.what, "rtfx": row.rtfx, "change": row.change, "gigaflops": row.gigaflops}
            for row in others
        ],
    }


def _range(least: str, most: str) -> str:
    """Both ends of a range, or one if they are equal."""
    return most if least == most else f"{least}–{most}"  # noqa: RUF001 - a range


def _summary(plan: Plan, slow: Plan, currency: str) -> Table:
    work = plan.workload
    search = f"beam {work.beam}" if work.decoder == "beam" else "greedy"
    if work.reads != "none":
        search += f", its own decoders reading ({work.reads})"
    if work.reader is not None:
        search += f", rescored by {work.reader.name}"
    energy = [f"{each.kilowatt_hours:,.1f} kWh" for each in (plan, slow) if each.kilowatt_hours is not None]
    return sheet_of(
        (
            ("audio", f"{work.hours:,.1f} h, recordings of {_length(work.lengths.mean)} on average"),
            ("model", f"{work.shape.name}, {search}"),
            ("speed", f"RTFx {_range(f'{slow.rtfx:,.0f}', f'{plan.rtfx:,.0f}')}"),
            ("time", _range(_time(plan.hours), _time(slow.hours))),
            ("cost", _cost(plan, slow, currency)),
            ("energy", f"{_range(energy[0], energy[-1])} at most" if energy else "unknown"),
            (
                "bottleneck",
                f"{plan.binds}; the next is {plan.limits[1][0]}, at {plan.margin:,.1f} times the speed",
            ),
        )
    )


def _cost(plan: Plan, slow: Plan, currency: str) -> str:
    if plan.cost is None or slow.cost is None:
        return "unknown"
    words = _money_range(plan.cost, slow.cost, currency)
    if plan.cost_per_million_hours is None or slow.cost_per_million_hours is None:
        return words
    million = _money_range(plan.cost_per_million_hours, slow.cost_per_million_hours, currency)
    return f"{words} ({million} for 1,000,000 hours)"


def _money_range(least: float, most: float, currency: str) -> str:
    """A range of money, naming the currency once."""
    low, high = _whole(least, currency), _whole(most, currency)
    return low if low == high else _range(low.removesuffix(f" {currency}"), high)


def _machines(plan: Plan, slow: Plan) -> Table:
    table = _table("machine", "count", "RTFx each", "search", "based on")
    for each, least in zip(plan.machines, slow.machines, strict=True):
        rtfx = _range(f"{least.rtfx:,.0f}", f"{each.rtfx:,.0f}")
        basis = each.machine.pace.basis
        if basis != least.machine.pace.basis:
            basis = f"{basis}; at least {PEER_EFFICIENCY:.0%}, the best measured peer"
        basis = "; ".join((basis, *each.machine.notes))
        cells = (each.machine.name, str(each.machine.count), rtfx, f"{each.search_share:.0%}")
        table.add_row(*cells, Text(basis))
    return table


def _chips(chips: Sequence[ChipRow], slow: Sequence[ChipRow], clouds: CloudPrices, currency: str) -> Table:
    table = _table("", "RTFx", "machine hours", "kWh", currency)
    for row, least in zip(chips, slow, strict=True):
        hours = _range(f"{row.machine_hours:,.0f}", f"{least.machine_hours:,.0f}")
        energy = cost = "—"
        if row.kilowatt_hours is not None and least.kilowatt_hours is not None:
            energy = _range(f"{row.kilowatt_hours:,.0f}", f"{least.kilowatt_hours:,.0f}")
        if row.cost is not None and least.cost is not None:
            cost = _money_range(row.cost, least.cost, currency).removesuffix(f" {currency}")
        name = f"{row.chip.name} ({row.chip.cores}){' *' if row.chip.notes else ''}"
        table.add_row(name, _range(f"{least.rtfx:,.0f}", f"{row.rtfx:,.0f}"), hours, energy, cost)
    for name, price in clouds.per_audio_hour.items():
        cost = _whole(float(price * MILLION), clouds.currency).removesuffix(f" {currency}")
        table.add_row(name, "", "", "", cost, style="dim")
    return table


def _what_if(others: Sequence[WhatIf]) -> Table:
    table = _table("", "RTFx", "change", "GFLOP a second of audio")
    for row in others:
        table.add_row(row.what, f"{row.rtfx:,.0f}", f"{row.change - 1:+.0%}", f"{row.gigaflops:.2f}")
    return table


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, title in enumerate(titles):
        last = title == "based on"
        table.add_column(title, justify="left" if number == 0 or last else "right", no_wrap=not last)
    return table


def _whole(amount: float, currency: str) -> str:
    """Money with thousands separators; small amounts with decimals."""
    return f"{amount:,.0f} {currency}" if amount >= 100 else format_money(Decimal(repr(amount)), currency)


def _length(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _time(hours: float) -> str:
    if hours < 48:
        return f"{hours:,.1f} h"
    return f"{hours / 24:,.1f} days" if hours < 24 * 366 else f"{hours / 8766:,.1f} years"
