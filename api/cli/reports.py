"""The subcommands that report costs and workers. Clients of the HTTP API."""

from datetime import date
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from api.cli.connection import Server
from api.cli.tables import Cell, cost_table, format_duration
from spool.errors import InvalidRequest
from spool.schemas.common import ListOf
from spool.schemas.costs import GroupBy
from spool.schemas.fleet import WorkerOut


def costs(
    *,
    group_by: Annotated[GroupBy, Parameter(help="What to group costs by.")] = "day",
    start: Annotated[
        date | None,
        Parameter(name="--from", help="First UTC day. Default: 30 days ago."),
    ] = None,
    end: Annotated[
        date | None,
        Parameter(name="--to", help="UTC day after the last. Default: tomorrow."),
    ] = None,
    tag: Annotated[
        str | None, Parameter(help="Tag whose values are the groups; needs --group-by tag.")
    ] = None,
    as_csv: Annotated[bool, Parameter(name="--csv", help="Print CSV, for spreadsheets.")] = False,
    server: Server = Server(),
) -> None:
    """Show the costs of a period."""
    if group_by == "tag" and tag is None:
        raise InvalidRequest("--group-by tag needs --tag.")
    period = {"start": start, "end": end}
    with server.connect() as spool:
        report = spool.costs(**period, group_by=group_by, tag=tag)
    if as_csv:
        from api.presenters.costs import cost_csv

        print(cost_csv(report), end="")
    else:
        server.show(report, cost_table(report))


STATUS_STYLES = {"ready": "green", "unwell": "red", "lost": "red", "draining": "yellow", "resting": "cyan"}


def workers(*, server: Server = Server()) -> None:
    """List the workers and their state."""
    with server.connect() as spool:
        listed = ListOf[WorkerOut](items=spool.workers())
    titles = ("worker", "pool", "state", "chip", "models", "busy", "reason")
    server.show_rows(listed, "no workers", titles, _cells)


def _cells(worker: WorkerOut) -> list[Cell]:
    return [
        worker.name,
        worker.pool,
        Text(worker.state, style=STATUS_STYLES.get(worker.state, "dim")),
        _machine(worker),
        _models(worker),
        format_duration(worker.busy_seconds),
        worker.reason,
    ]


def _machine(worker: WorkerOut) -> str:
    cores = f", {worker.gpu_cores} GPU cores" if worker.gpu_cores else ""
    memory = f", {worker.memory_bytes / 2**30:.0f} GiB" if worker.memory_bytes else ""
    return f"{worker.chip}{cores}{memory}"


def _models(worker: WorkerOut) -> Text:
    """Loaded models first and bold, other available ones dim."""
    loaded = [name for name in worker.loaded_models or () if name in worker.models]
    rest = [name for name in worker.models if name not in loaded]
    return Text(", ").join(
        [*(Text(name, style="bold") for name in loaded), *(Text(name, "dim") for name in rest)]
    )
