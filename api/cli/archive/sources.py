"""`spool watch` and `spool sources`: watched folders and buckets. Clients of the HTTP API."""

import re
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.table import Table
from rich.text import Text

from api.cli.archive.outputs import Connection, Output
from api.cli.connection import Json, Url, connect, out, print_json
from api.cli.options import Place, Transcription
from api.cli.tables import format_time
from spool.commandline.app import new_app
from spool.errors import InvalidRequest
from spool.schemas.sources import ItemState, WatchedSourceOut

app = new_app("Manage watched folders and buckets.", "sources")

SourceId = Annotated[str, Parameter(name="ID", help="A source's id, as `spool sources list` shows it.")]
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_STYLES = {"watching": "green", "failing": "red", "paused": "yellow"}


def watch(
    address: Annotated[
        str,
        Parameter(name="S3URL|FOLDER", help="s3://bucket/prefix/, or a folder that the server may read."),
    ],
    /,
    *,
    place: Place = Place(),
    options: Transcription = Transcription(),
    deliver: Output = Output(),
    every: Annotated[
        str, Parameter(metavar="TIME", help="How often to list it, such as 30s, 5m or 1h.")
    ] = "5m",
    settle: Annotated[
        str | None,
        Parameter(
            metavar="TIME",
            help="How long a file must have been unchanged. Default: 30s in a folder, 0s in a bucket.",
        ),
    ] = None,
    name: Annotated[str | None, Parameter(help="Name of the source, for display.")] = None,
    no_reuse: Annotated[
        bool,
        Parameter(
            help="Transcribe recordings again that were transcribed before with the same options.",
        ),
    ] = False,
    source_connection: Connection = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Watch a folder or bucket for new recordings.

    The server submits every recording in it, and each one that is added or changes, once.
    """
    request = place.to_request() | deliver.to_request()
    if request.pop("deadline", None) is not None:
        raise InvalidRequest("A source's jobs have no deadline; give them a --priority.")
    source = address if "://" in address else f"{Path(address).resolve().as_uri()}/"
    with connect(url) as (spool, _):
        watched = spool.watch(
            source,
            name=name,
            every_seconds=_seconds(every),
            settle_seconds=None if settle is None else _seconds(settle),
            options=options.to_request(),
            reuse=not no_reuse,
            connection=source_connection,
            **request,
        )
    if as_json:
        print_json(watched)
    else:
        out.print(f"{watched.id} watches {watched.source}", soft_wrap=True)


@app.command(name="list")
def list_sources(
    *,
    project: Annotated[str | None, Parameter(help="List only sources of this project.")] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List watched folders and buckets."""
    with connect(url) as (spool, _):
        sources = spool.sources(project=project)
    if as_json:
        print_json(sources)
    elif sources:
        out.print(_table(sources))
    else:
        out.print("no sources", style="dim")


@app.command
def show(
    source_id: SourceId,
    /,
    *,
    state: Annotated[
        ItemState | None, Parameter(help="Show only settling, taken, skipped or refused files.")
    ] = None,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=200), help="Number of files to list.")] = 20,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show which files a source found, submitted and skipped, and why."""
    with connect(url) as (spool, _):
        source = spool.source(source_id)
        page = spool.source_item_page(source_id, state=state, limit=limit)
    if as_json:
        print_json(page)
        return
    out.print(_table([source]))
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("file", "seen", "state"):
        table.add_column(title, overflow="fold")
    table.add_column("job, or why there is none", overflow="fold")
    for item in page.items:
        table.add_row(
            Text(item.path), format_time(item.seen_at), item.state, Text(item.job or item.reason or "")
        )
    out.print(table)


@app.command
def change(
    source_id: SourceId,
    /,
    *,
    options: Transcription = Transcription(),
    every: Annotated[str | None, Parameter(metavar="TIME", help="How often to list it.")] = None,
    settle: Annotated[
        str | None, Parameter(metavar="TIME", help="How long a file must have been unchanged.")
    ] = None,
    name: Annotated[str | None, Parameter(help="Name of the source, for display.")] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Change how often a source is listed, or the options of its future jobs, such as --model.

    Options that are not given keep their values. Existing jobs are not changed.
    """
    with connect(url) as (spool, _):
        changed = spool.change_source(
            source_id,
            name=name,
            every_seconds=None if every is None else _seconds(every),
            settle_seconds=None if settle is None else _seconds(settle),
            options=options.to_request(whole=False),
        )
    if as_json:
        print_json(changed)
    else:
        out.print(f"{changed.id} is listed every {changed.every_seconds:g} s")


@app.command
def pause(source_id: SourceId, /, *, url: Url = None) -> None:
    """Stop listing a source until it is resumed."""
    with connect(url) as (spool, _):
        out.print(f"{spool.pause_source(source_id).id} paused")


@app.command
def resume(source_id: SourceId, /, *, url: Url = None) -> None:
    """Resume a paused source."""
    with connect(url) as (spool, _):
        out.print(f"{spool.resume_source(source_id).id} watches again")


@app.command
def check(source_id: SourceId, /, *, url: Url = None) -> None:
    """List a source now."""
    with connect(url) as (spool, _):
        out.print(f"{spool.check_source(source_id).id} will be listed now")


@app.command
def remove(source_id: SourceId, /, *, url: Url = None) -> None:
    """Stop watching and forget what was found. Jobs are kept."""
    with connect(url) as (spool, _):
        spool.remove_source(source_id)
    out.print(f"{source_id} removed")


def _seconds(text: str) -> float:
    """`30s`, `5m`, `1h`, `1d` or a number of seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if match is None:
        raise InvalidRequest(f"{text!r} is not a duration such as 30s, 5m or 1h.")
    return float(match[1]) * _UNITS[match[2] or "s"]


def _table(sources: list[WatchedSourceOut]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("source", no_wrap=True)
    table.add_column("state", no_wrap=True, min_width=len("watching"))
    table.add_column("project", no_wrap=True)
    for title in ("files", "taken", "settling", "skipped", "refused"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("address, reason", overflow="fold")
    for source in sources:
        counts = source.counts
        numbers = (source.files, counts.taken, counts.settling, counts.skipped, counts.refused)
        table.add_row(
            source.id,
            Text(source.state, _STYLES[source.state]),
            source.project,
            *("—" if number is None else str(number) for number in numbers),
            Text("\n".join(filter(None, (source.source, source.error)))),
        )
    return table
