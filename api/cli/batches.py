"""`spool batch`: submit, status, results, transcripts, retry-failed, cancel. Clients of the HTTP API."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from api.cli.completion import complete_batch
from api.cli.connection import Exit, Json, Url, connected, err, out, print_json
from api.cli.files import SUFFIXES, file_name
from api.cli.options import Place, Search
from api.cli.progress import follow_batch, sending
from api.cli.tables import clock, held_words, moment, money
from spool.command_options import takes_options
from spool.domain.jobs import JobState
from spool.errors import InvalidRequest
from spool.formats import Format
from spool.schemas.batches import BatchDetail, BatchOut

app = typer.Typer(no_args_is_help=True, help="Submit whole archives: manifests, prefixes, folders.")

BatchId = Annotated[str, typer.Argument(metavar="ID", autocompletion=complete_batch, help="A batch's id.")]


@app.command()
@takes_options
def submit(
    source: Annotated[
        str,
        typer.Argument(
            metavar="MANIFEST|URL",
            help="A JSONL manifest to upload, or s3://bucket/prefix/ or file:///folder/.",
        ),
    ],
    place: Place,
    search: Search,
    name: Annotated[str | None, typer.Option(help="Name of the batch, for display.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Reject the whole batch if a line is invalid.")
    ] = False,
    no_reuse: Annotated[
        bool,
        typer.Option(
            "--no-reuse", help="Transcribe again what was transcribed before with the same options."
        ),
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the batch has ended.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Submit a batch. Invalid lines are reported with their numbers."""
    request: dict[str, Any] = place.to_request() | {"options": search.to_request(), "name": name}
    request |= {"strict": strict, "reuse": not no_reuse}
    with connected(url) as (spool, _):
        if "://" in source:
            batch = spool.submit_batch(source, **request)
        else:
            with sending(err, source) as sent:
                batch = spool.submit_batch(_manifest(source), **request, sent=sent)
        _print_bad_lines(batch)
        if wait:
            batch = follow_batch(spool, batch.id, err)
    _show(batch, as_json=as_json)
    if wait or not batch.lines.accepted:
        _exit_for(batch)


@app.command()
def status(
    batch_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]",
            autocompletion=complete_batch,
            help="A batch's id. Without one, list the latest batches.",
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Wait until the batch has ended.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show the progress, remaining time and cost of a batch, or list the latest batches."""
    with connected(url) as (spool, _):
        if batch_id is None:
            page = spool.batch_page(limit=20)
            print_json(page) if as_json else out.print(_table(page.items))
            return
        batch = follow_batch(spool, batch_id, err) if watch else spool.batch(batch_id)
    _show(batch, as_json=as_json)


@app.command()
def results(
    batch_id: BatchId,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file instead of standard output.")
    ] = None,
    words: Annotated[bool, typer.Option("--words", help="Include words with times and confidence.")] = False,
    state: Annotated[JobState | None, typer.Option(help="Print only jobs in this state.")] = None,
    url: Url = None,
) -> None:
    """Print one line of JSON for each job, as it is now."""
    with connected(url) as (spool, _):
        lines = spool.result_lines(batch_id, words=words, state=state)
        if output is None:
            for line in lines:
                typer.echo(line)
            return
        # Renamed when complete, so that a partial file is never taken for the result.
        partial = output.with_name(f"{output.name}.part")
        with partial.open("w", encoding="utf-8") as file:
            for line in lines:
                file.write(f"{line}\n")
        partial.replace(output)


@app.command()
def transcripts(
    batch_id: BatchId,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder to write to; created if it does not exist.")
    ],
    form: Annotated[Format, typer.Option("--format", help="Format of the transcripts.")] = "txt",
    url: Url = None,
) -> None:
    """Write the transcript of each finished job to a file named after the job, in the same folders."""
    with connected(url) as (spool, _):
        written: set[Path] = set()
        for job in spool.jobs(batch=batch_id, state=JobState.DONE):
            if job.deleted is not None and job.deleted.transcript is not None:
                continue
            path = output / file_name(job.custom_id or job.name, SUFFIXES[form])
            if path in written:
                path = path.with_name(f"{job.id} {path.name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(spool.transcript(job.id, form), encoding="utf-8")
            written.add(path)
    out.print(f"{len(written)} transcripts written to {output}", markup=False, soft_wrap=True)


@app.command("retry-failed")
def retry_failed(batch_id: BatchId, url: Url = None, as_json: Json = False) -> None:
    """Queue every failed job of a batch again."""
    with connected(url) as (spool, _):
        answer = spool.retry_failed(batch_id)
    print_json(answer) if as_json else out.print(f"{answer.retried} queued again")


@app.command()
def cancel(batch_id: BatchId, url: Url = None, as_json: Json = False) -> None:
    """Cancel a batch. Running jobs stop at their next chunk."""
    with connected(url) as (spool, _):
        batch = spool.cancel_batch(batch_id)
    _show(batch, as_json=as_json)


def _manifest(source: str) -> Path:
    path = Path(source)
    if path.is_dir():
        raise InvalidRequest(
            f"{source} is a local folder. Use `spool submit {source}` to upload it, or name it as file:///… "
            "if the server may read it."
        )
    if not path.is_file():
        raise InvalidRequest(f"There is no file {source}.")
    return path


def _print_bad_lines(batch: BatchDetail) -> None:
    for bad in batch.bad_lines:
        err.print(Text.assemble((f"line {bad.line}: ", "red"), bad.message), soft_wrap=True)
    if batch.lines.bad > len(batch.bad_lines):
        err.print(f"and {batch.lines.bad - len(batch.bad_lines)} more invalid lines")


def _exit_for(batch: BatchDetail) -> None:
    if batch.lines.bad or batch.counts[JobState.FAILED] or batch.counts[JobState.CANCELLED]:
        raise typer.Exit(Exit.FAILED)


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
        ("invalid lines", str(batch.lines.bad)),
        ("reused", str(batch.reused)),
        *((("cut off", f"{batch.incomplete} (see `complete` in the results)"),) if batch.incomplete else ()),
        ("audio", f"{clock(batch.audio.done_seconds)} done, {clock(left)} left"),
        ("RTFx now", rate),
        ("time left", f"{clock(batch.time.left_seconds)} ({batch.time.basis})"),
        (
            "cost",
            f"{money(cost.billable, cost.currency)} so far, {expected} expected in total ({cost.basis})",
        ),
        *_order_of(batch),
    ):
        sheet.add_row(title, Text(value))
    out.print(sheet)


def _order_of(batch: BatchDetail) -> Iterator[tuple[str, str]]:
    if batch.priority != "normal":
        yield "priority", batch.priority
    if batch.deadline is not None:
        at = batch.deadline
        yield "deadline", f"{moment(at.at)}, {at.state.replace('_', ' ')} ({at.basis})"
    if batch.held is not None:
        yield "held", held_words(batch.held)
    for reason in batch.waiting_for:
        yield "waiting for", reason


def _table(batches: list[BatchOut]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("batch", "state", "jobs", "done", "failed", "name"):
        table.add_column(title, no_wrap=True)
    for batch in batches:
        counts = batch.counts
        numbers = (sum(counts.values()), counts[JobState.DONE], counts[JobState.FAILED])
        table.add_row(batch.id, batch.state, *map(str, numbers), Text(batch.name))
    return table
