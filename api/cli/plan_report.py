"""What `spool plan` prints: a forecast as tables and as JSON. Pure: a report in, text and tables out."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from api.cli.tables import count_of, format_duration, format_money, sheet_of
from spool.domain.pricing import CloudPrices
from spool.planning.plan import MILLION, ChipRow, Plan, WhatIf
from spool.planning.throughput import PEER_EFFICIENCY

CENT = 0.01


@dataclass(frozen=True, slots=True)
class Forecast:
    """A plan for the fleet, and the chips that it could have instead."""

    plan: Plan
    chips: Sequence[ChipRow]


@dataclass(frozen=True, slots=True)
class Report:
    """A forecast, and the same at the least speed that is assumed."""

    most: Forecast
    least: Forecast
    others: Sequence[WhatIf]
    clouds: CloudPrices
    currency: str


def report_tables(report: Report) -> RenderableType:
    """The plan, a comparison of chips and clouds, and alternatives."""
    clouds = report.clouds
    return Group(
        _summary(report.most.plan, report.least.plan, report.currency),
        "",
        _machines(report.most.plan, report.least.plan),
        "",
        Text(f"1,000,000 hours of audio, by chip and by cloud (its prices of {clouds.as_of})", style="bold"),
        _chips(report.most.chips, report.least.chips, clouds, report.currency),
        "",
        Text("What if", style="bold"),
        _what_if(report.others),
    )


def answer(report: Report) -> RenderableType:
    """How long it takes, what it costs, and how sure that is."""
    plan, slow = report.most.plan, report.least.plan
    lengths, machines = plan.workload.lengths, [each.machine for each in plan.machines]
    recordings = f" in {count_of(lengths.recordings, 'recording')}" if lengths.recordings else ""
    cost = "unknown"
    if plan.cost is not None and slow.cost is not None:
        cost = f"less than 0.01 {report.currency}"
        if slow.cost >= CENT:
            cost = _money_range(plan.cost, slow.cost, report.currency)
    fleet = ", ".join(f"{each.count} {each.name}" if each.count > 1 else each.name for each in machines)
    return Group(
        sheet_of(
            (
                ("audio", f"{_audio(plan.workload.hours)}{recordings}"),
                ("time", _range(_time(plan.hours), _time(slow.hours))),
                ("cost", cost),
                ("by", f"{plan.workload.shape.name} on {fleet}"),
                ("based on", "; ".join(dict.fromkeys(each.pace.basis for each in machines))),
            )
        ),
        Text("--details shows energy, the bottleneck, other machines and clouds.", style="dim"),
    )


def report_document(report: Report) -> dict[str, object]:
    """The same as JSON. Wall-clock and audio hours, kilowatt-hours, and money as numbers."""
    least = _document(report.least, (), report.clouds, report.currency)
    return _document(report.most, report.others, report.clouds, report.currency) | {"at_least": least}


def _document(
    forecast: Forecast, others: Sequence[WhatIf], clouds: CloudPrices, currency: str
) -> dict[str, object]:
    plan = forecast.plan
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
            for row in forecast.chips
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


def _audio(hours: float) -> str:
    return format_duration(hours * 3600) if hours < 10 else f"{hours:,.0f} h"


def _time(hours: float) -> str:
    if hours < 1 / 3600:
        return "less than 1 s"
    if hours < 2:
        return f"{hours * 3600:.0f} s" if hours < 1 / 30 else f"{hours * 60:.0f} min"
    if hours < 48:
        return f"{hours:,.1f} h"
    return f"{hours / 24:,.1f} days" if hours < 24 * 366 else f"{hours / 8766:,.1f} years"
