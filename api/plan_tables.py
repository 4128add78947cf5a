"""How a plan looks, in a terminal and as JSON. Pure: records in, tables and dictionaries out."""

from collections.abc import Sequence
from decimal import Decimal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from api.printing import money
from spool.planning.plan import MILLION, ChipRow, Plan, WhatIf
from spool.rates import CloudPrices


def tables(
    plan: Plan, chips: Sequence[ChipRow], others: Sequence[WhatIf], clouds: CloudPrices, currency: str
) -> RenderableType:
    """The plan, the chips beside the clouds, and what else one might do."""
    return Group(
        _summary(plan, currency),
        "",
        _machines(plan),
        "",
        Text(f"1,000,000 hours of audio, by chip and by cloud (its prices of {clouds.as_of})", style="bold"),
        _chips(chips, clouds, currency),
        "",
        Text("What if", style="bold"),
        _what_if(others),
    )


def document(
    plan: Plan, chips: Sequence[ChipRow], others: Sequence[WhatIf], clouds: CloudPrices, currency: str
) -> dict[str, object]:
    """The same for machines. Hours of the clock and of audio, kilowatt-hours, money as numbers."""
    work = plan.workload
    return {
        "audio_hours": work.hours,
        "mean_recording_seconds": work.lengths.mean,
        "model": work.shape.name,
        "decoder": work.decoder,
        "beam": work.beam if work.decoder == "beam" else None,
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


def _summary(plan: Plan, currency: str) -> Table:
    work = plan.workload
    sheet = Table(box=None, show_header=False, pad_edge=False)
    sheet.add_column(style="dim", no_wrap=True)
    sheet.add_column(overflow="fold")
    search = f"beam {work.beam}" if work.decoder == "beam" else "greedy"
    sheet.add_row("audio", f"{work.hours:,.1f} h, recordings of {_length(work.lengths.mean)} on average")
    sheet.add_row("model", f"{work.shape.name}, {search}")
    sheet.add_row("speed", f"RTFx {plan.rtfx:,.0f}")
    sheet.add_row("time", _time(plan.hours))
    each = plan.cost_per_million_hours
    cost = (
        "unknown"
        if plan.cost is None or each is None
        else (f"{_whole(plan.cost, currency)} ({_whole(each, currency)} for 1,000,000 hours)")
    )
    sheet.add_row("cost", cost)
    energy = plan.kilowatt_hours
    sheet.add_row("energy", "unknown" if energy is None else f"{energy:,.1f} kWh at most")
    sheet.add_row("binds", f"{plan.binds}; {plan.limits[1][0]} would at {plan.margin:,.1f} times the speed")
    return sheet


def _machines(plan: Plan) -> Table:
    table = _table("machine", "count", "RTFx each", "search", "rests on")
    for each in plan.machines:
        basis = "; ".join((each.machine.pace.basis, *each.machine.notes))
        cells = (each.machine.name, str(each.machine.count), f"{each.rtfx:,.0f}", f"{each.search_share:.0%}")
        table.add_row(*cells, Text(basis))
    return table


def _chips(chips: Sequence[ChipRow], clouds: CloudPrices, currency: str) -> Table:
    table = _table("", "RTFx", "machine hours", "kWh", "cost")
    for row in chips:
        energy = "—" if row.kilowatt_hours is None else f"{row.kilowatt_hours:,.0f}"
        cost = "—" if row.cost is None else _whole(row.cost, currency)
        name = f"{row.chip.name} ({row.chip.cores}){' *' if row.chip.notes else ''}"
        table.add_row(name, f"{row.rtfx:,.0f}", f"{row.machine_hours:,.0f}", energy, cost)
    for name, price in clouds.per_audio_hour.items():
        cost = _whole(float(price * MILLION), clouds.currency)
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
        last = title == "rests on"
        table.add_column(title, justify="left" if number == 0 or last else "right", no_wrap=not last)
    return table


def _whole(amount: float, currency: str) -> str:
    """Money with thousands marked; small amounts with what is left of the point."""
    return f"{amount:,.0f} {currency}" if amount >= 100 else money(Decimal(repr(amount)), currency)


def _length(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _time(hours: float) -> str:
    if hours < 48:
        return f"{hours:,.1f} h"
    return f"{hours / 24:,.1f} days" if hours < 24 * 366 else f"{hours / 8766:,.1f} years"
