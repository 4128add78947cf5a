"""`spool watch` and `spool sources`: watched folders and buckets. Clients of the HTTP API."""

import re
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.text import Text

from api.cli.connection import Server, Url, connect, out, print_json
from api.cli.options import Again, Submission, Transcription, repeat_fields
from api.cli.tables import Cell, format_time, right, table_of
from spool.commandline.app import new_app
from spool.errors import InvalidRequest
from spool.schemas.sources import ItemState, WatchedSourceOut

app = new_app("Manage watched folders and buckets.", "sources")

SourceId = Annotated[str, Parameter(name="ID", help="A source's id, as `spool sources list` shows it.")]
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TITLES = (
    "source",
    "state",
    "project",
    "files",
    "taken",
    "settling",
    "skipped",
    "refused",
    "address, reason",
)
_STYLES = {"watching": "green", "failing": "red", "paused": "yellow"}


def watch(
    address: Annotated[
        str,
        Parameter(name="S3URL|FOLDER", help="s3://bucket/prefix/, or a folder that the server may read."),
    ],
    /,
    *,
    how: Submission = Submission(),
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
    again: Again = False,
    server: Server = Server(),
) -> None:
    """Watch a folder or bucket for new recordings.

    The server submits every recording in it, and each one that is added or changes, once.
    """
    request = how.to_request() | repeat_fields(again)
    if request.pop("deadline", None) is not None:
        raise InvalidRequest("A source's jobs have no deadline; give them a --priority.")
    source = address if "://" in address else f"{Path(address).resolve().as_uri()}/"
    with server.connect() as spool:
        watched = spool.watch(
            source,
            name=name,
            every_seconds=_seconds(every),
            settle_seconds=None if settle is None else _seconds(settle),
            **request,
        )
    server.show(watched, f"{watched.id} watches {watched.source}", soft_wrap=True)


@app.command(name="list")
def list_sources(
    *,
    project: Annotated[str | None, Parameter(help="List only sources of this project.")] = None,
    server: Server = Server(),
) -> None:
    """List watched folders and buckets."""
    with server.connect() as spool:
        sources = spool.sources(project=project)
    server.show_rows(sources, "no sources", _TITLES, _cells)


@app.command
def show(
    source_id: SourceId,
    /,
    *,
    state: Annotated[
        ItemState | None, Parameter(help="Show only settling, taken, skipped or refused files.")
    ] = None,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=200), help="Number of files to list.")] = 20,
    server: Server = Server(),
) -> None:
    """Show which files a source found, submitted and skipped, and why."""
    with server.connect() as spool:
        source = spool.source(source_id)
        page = spool.source_item_page(source_id, state=state, limit=limit)
    if server.as_json:
        print_json(page)
        return
    out.print(table_of(_TITLES, [_cells(source)]))
    files = [
        (each.path, format_time(each.seen_at), each.state, each.job or each.reason) for each in page.items
    ]
    out.print(table_of(("file", "seen", "state", "job, or why there is none"), files))


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
    server: Server = Server(),
) -> None:
    """Change how often a source is listed, or the options of its future jobs, such as --model.

    Options that are not given keep their values. Existing jobs are not changed.
    """
    with server.connect() as spool:
        changed = spool.change_source(
            source_id,
            name=name,
            every_seconds=None if every is None else _seconds(every),
            settle_seconds=None if settle is None else _seconds(settle),
            options=options.to_request(whole=False),
        )
    server.show(changed, f"{changed.id} is listed every {changed.every_seconds:g} s")


@app.command
def pause(source_id: SourceId, /, *, url: Url = None) -> None:
    """Stop listing a source until it is resumed."""
    with connect(url) as spool:
        out.print(f"{spool.pause_source(source_id).id} paused")


@app.command
def resume(source_id: SourceId, /, *, url: Url = None) -> None:
    """Resume a paused source."""
    with connect(url) as spool:
        out.print(f"{spool.resume_source(source_id).id} watches again")


@app.command
def check(source_id: SourceId, /, *, url: Url = None) -> None:
    """List a source now."""
    with connect(url) as spool:
        out.print(f"{spool.check_source(source_id).id} will be listed now")


@app.command
def remove(source_id: SourceId, /, *, url: Url = None) -> None:
    """Stop watching and forget what was found. Jobs are kept."""
    with connect(url) as spool:
        spool.remove_source(source_id)
    out.print(f"{source_id} removed")


def _seconds(text: str) -> float:
    """`30s`, `5m`, `1h`, `1d` or a number of seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if match is None:
        raise InvalidRequest(f"{text!r} is not a duration such as 30s, 5m or 1h.")
    return float(match[1]) * _UNITS[match[2] or "s"]


def _cells(source: WatchedSourceOut) -> list[Cell]:
    counts = source.counts
    return [
        source.id,
        Text(source.state, _STYLES[source.state]),
        source.project,
        right("—") if source.files is None else source.files,
        counts.taken,
        counts.settling,
        counts.skipped,
        counts.refused,
        "\n".join(filter(None, (source.source, source.error))),
    ]
