"""The subcommands of batches: submit, status, results, retry-failed, cancel. Clients of the HTTP API."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from api import cli_options as told
from api.batch_client import BatchClient
from api.cli_connection import Json, Url, connected, err, out, print_json
from api.printing import clock, money
from spool.errors import InvalidRequest
from spool.jobs import JobState
from spool.wire.batches import BatchDetail, BatchOut

app = typer.Typer(no_args_is_help=True, help="Hand in whole archives: manifests, prefixes, folders.")

BatchId = Annotated[str, typer.Argument(metavar="ID", help="A batch's id.")]

_POLL_S = 1.0


@app.command()
def submit(
    source: Annotated[
        str,
        typer.Argument(
            metavar="MANIFEST|URL", help="A JSONL file to send, or s3://bucket/prefix/, file:///folder/."
        ),
    ],
    name: Annotated[str | None, typer.Option(help="For people.")] = None,
    project: Annotated[
        str | None, typer.Option(help="Whom the cost is booked on; the key's own, else `default`.")
    ] = None,
    model: told.ModelOption = None,
    decoder: told.DecoderOption = None,
    beam: told.BeamOption = None,
    channels: told.ChannelsOption = None,
    nbest: told.NbestOption = None,
    alternatives: told.AlternativesOption = None,
    lattice: told.LatticeOption = None,
    boost: told.BoostOption = None,
    boost_file: told.BoostFileOption = None,
    boost_weight: told.BoostWeightOption = None,
    language_model: told.LanguageModelOption = None,
    lm_weight: told.LmWeightOption = None,
    lm_blanks: told.LmBlanksOption = False,
    pruning: told.PruningOption = None,
    context: told.ContextOption = None,
    scores: told.ScoresOption = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Kept with each job.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Run nothing when one line is bad.")] = False,
    no_reuse: Annotated[bool, typer.Option("--no-reuse", help="Decode again what was done before.")] = False,
    pool: Annotated[str | None, typer.Option(help="Which pool of workers.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the batch to its end.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Hand in a batch; what is wrong with a line is told by its number."""
    chosen = {
        "model": model,
        "decoder": decoder,
        "beam": beam,
        "channels": channels,
        "nbest": nbest,
        "alternatives": alternatives,
        "lattice": lattice,
        "boost": told.boost_of(boost, boost_file, boost_weight),
        "language_model": language_model,
        "lm_weight": lm_weight,
        "lm_blanks": lm_blanks or None,
        "pruning": pruning,
        "context": context,
        "scores": scores,
    }
    request: dict[str, Any] = {
        "options": {key: value for key, value in chosen.items() if value is not None},
        "tags": _tags(tag or []),
        "strict": strict,
        "reuse": not no_reuse,
    }
    request |= {
        key: value
        for key, value in {"name": name, "pool": pool, "project": project}.items()
        if value is not None
    }
    with connected(url) as (client, _):
        batches = BatchClient(client)
        if "://" in source:
            batch = batches.submit_source(source, request)
        else:
            batch = batches.submit_manifest(_manifest(source), request | {"name": name or Path(source).name})
        _tell_bad_lines(batch)
        if wait:
            batch = _follow(batches, batch)
    _show(batch, as_json=as_json)
    if wait or not batch.lines.accepted:
        _exit_for(batch)


@app.command()
def status(
    batch_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="A batch; the latest ones without.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow it to its end.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """How far a batch is, how long still and for how much; or the latest ones."""
    with connected(url) as (client, _):
        batches = BatchClient(client)
        if batch_id is None:
            page = batches.page()
            print_json(page) if as_json else out.print(_table(page.items))
            return
        batch = batches.one(batch_id)
        if watch:
            batch = _follow(batches, batch)
    _show(batch, as_json=as_json)


@app.command()
def results(
    batch_id: BatchId,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file to write to.")] = None,
    words: Annotated[bool, typer.Option("--words", help="With times and confidence.")] = False,
    state: Annotated[JobState | None, typer.Option(help="Only jobs in this state.")] = None,
    url: Url = None,
) -> None:
    """A line of JSON for each job, as they stand now."""
    with connected(url) as (client, _):
        lines = BatchClient(client).results(batch_id, words=words, state=state)
        if output is None:
            for line in lines:
                typer.echo(line)
            return
        # Under its own name only once it is whole.
        partial = output.with_name(f"{output.name}.part")
        with partial.open("w", encoding="utf-8") as file:
            for line in lines:
                file.write(f"{line}\n")
        partial.replace(output)


@app.command("retry-failed")
def retry_failed(batch_id: BatchId, url: Url = None, as_json: Json = False) -> None:
    """Queue every failed job of a batch again."""
    with connected(url) as (client, _):
        answer = BatchClient(client).retry_failed(batch_id)
    print_json(answer) if as_json else out.print(f"{answer.retried} queued again")


@app.command()
def cancel(batch_id: BatchId, url: Url = None, as_json: Json = False) -> None:
    """Cancel what waits; running jobs stop at their next chunk."""
    with connected(url) as (client, _):
        batch = BatchClient(client).cancel(batch_id)
    _show(batch, as_json=as_json)


def _manifest(source: str) -> Path:
    path = Path(source)
    if path.is_dir():
        raise InvalidRequest(f"{source} is a folder here: name it as file:///… if the server may read it.")
    if not path.is_file():
        raise InvalidRequest(f"There is no file {source}.")
    return path


def _tags(pairs: list[str]) -> dict[str, str]:
    if any("=" not in pair for pair in pairs):
        raise InvalidRequest("A tag is NAME=VALUE.")
    return dict(pair.split("=", 1) for pair in pairs)


def _follow(batches: BatchClient, batch: BatchDetail) -> BatchDetail:
    columns = (
        TextColumn("  transcribing"),
        BarColumn(bar_width=32, complete_style="cyan", finished_style="green"),
        TextColumn("{task.fields[files]} files"),
        TextColumn("[dim]{task.fields[left]}[/dim]"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err) as progress:
        bar = progress.add_task("", total=None, files="", left="")
        while True:
            total = sum(batch.counts.values())
            ended = sum(number for state, number in batch.counts.items() if state.terminal)
            left = "" if batch.time.left_seconds is None else f"{clock(batch.time.left_seconds)} left"
            progress.update(bar, total=total, completed=ended, files=f"{ended}/{total}", left=left)
            if batch.state == "ended":
                return batch
            time.sleep(_POLL_S)
            batch = batches.one(batch.id)


def _tell_bad_lines(batch: BatchDetail) -> None:
    for bad in batch.bad_lines:
        err.print(Text.assemble((f"line {bad.line}: ", "red"), bad.message), soft_wrap=True)
    if batch.lines.bad > len(batch.bad_lines):
        err.print(f"and {batch.lines.bad - len(batch.bad_lines)} more bad lines")


def _exit_for(batch: BatchDetail) -> None:
    if batch.lines.bad or batch.counts[JobState.FAILED] or batch.counts[JobState.CANCELLED]:
        raise typer.Exit(1)


def _show(batch: BatchDetail, *, as_json: bool) -> None:
    if as_json:
        print_json(batch)
        return
    cost, left = batch.cost, batch.audio.left_seconds
    expected = "unknown" if cost.expected is None else money(cost.expected, cost.currency)
    rate = "—" if batch.speed.rtfx_now is None else f"{batch.speed.rtfx_now:.1f}"
    sheet = Table(box=None, show_header=False, pad_edge=False)
    sheet.add_column(style="dim", no_wrap=True)
    sheet.add_column(overflow="fold")
    for title, value in (
        ("batch", batch.id),
        ("name", batch.name),
        ("state", batch.state),
        ("jobs", ", ".join(f"{number} {state}" for state, number in batch.counts.items() if number)),
        ("bad lines", str(batch.lines.bad)),
        ("reused", str(batch.reused)),
        ("audio", f"{clock(batch.audio.done_seconds)} done, {clock(left)} left"),
        ("RTFx now", rate),
        ("time left", f"{clock(batch.time.left_seconds)} ({batch.time.basis})"),
        ("cost", f"{money(cost.billable, cost.currency)} so far, {expected} in all ({cost.basis})"),
    ):
        sheet.add_row(title, Text(value))
    out.print(sheet)


def _table(batches: list[BatchOut]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("batch", "state", "jobs", "done", "failed", "name"):
        table.add_column(title, no_wrap=True)
    for batch in batches:
        counts = batch.counts
        numbers = (sum(counts.values()), counts[JobState.DONE], counts[JobState.FAILED])
        table.add_row(batch.id, batch.state, *map(str, numbers), Text(batch.name))
    return table
