"""The subcommands that report: costs and workers. Clients of the HTTP API."""

from datetime import datetime
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from api.cli_connection import Json, Url, connected, out, print_json
from api.cost_files import cost_csv
from api.printing import clock, cost_table
from spool.wire.costs import GroupBy
from spool.wire.jobs import WorkerList


def costs(
    group_by: Annotated[GroupBy, typer.Option(help="What a line stands for.")] = "day",
    start: Annotated[
        datetime | None, typer.Option("--from", formats=["%Y-%m-%d"], help="First UTC day; 30 days ago.")
    ] = None,
    end: Annotated[
        datetime | None, typer.Option("--to", formats=["%Y-%m-%d"], help="The UTC day after the last.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Which tag's values, with --group-by tag.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a table for a spreadsheet.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """What a period cost."""
    period = {"start": start.date() if start else None, "end": end.date() if end else None}
    with connected(url) as (spool, _):
        report = spool.costs(**period, group_by=group_by, tag=tag)
    if as_csv:
        typer.echo(cost_csv(report), nl=False)
    elif as_json:
        print_json(report)
    else:
        out.print(cost_table(report))


def workers(url: Url = None, as_json: Json = False) -> None:
    """Who works, and how busy each has been."""
    with connected(url) as (spool, _):
        listed = WorkerList(items=spool.workers())
    if as_json:
        print_json(listed)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("worker", "pool", "state", "chip", "models", "busy", "reason"):
        table.add_column(title, no_wrap=title != "reason", overflow="fold")
    for worker in listed.items:
        state = worker.state if worker.alive or worker.state == "stopped" else "silent"
        table.add_row(
            Text(worker.name),
            worker.pool,
            Text(state, style="green" if worker.alive else "dim"),
            Text(worker.chip),
            ", ".join(worker.models),
            clock(worker.busy_seconds),
            Text(worker.reason or "", style="red"),
        )
    out.print(table)
