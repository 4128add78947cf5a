"""`spool batch`: submit, status, results, transcripts, download, retry-failed, cancel, delete.

Clients of the API.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal
from zipfile import ZipFile

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.text import Text

from api.cli.completion import complete_batch
from api.cli.connection import Exit, Server, Url, Yes, confirm, connect, err, local_stack, out, print_ids
from api.cli.files import DELETED, Copies, as_local_path, print_copies, print_skipped
from api.cli.options import Again, Submission, repeat_fields
from api.cli.progress import follow_batch, show_upload
from api.cli.submit import submit_recordings
from api.cli.tables import Cell, count_of, describe_hold, format_duration, format_money, format_time, sheet_of
from api.local.instance import Running
from spool.client import Conflict, Refused, Spool
from spool.commandline.app import new_app
from spool.domain.jobs import JobState
from spool.errors import InvalidRequest
from spool.formats import FORMATS, Format, Preset
from spool.formats.file_names import MISSING, SUFFIXES, choose_name, free_name
from spool.schemas.batches import BatchDetail, BatchOut
from spool.schemas.jobs import JobDeletion

app = new_app("Submit whole archives: manifests, prefixes, folders.", "batch")

BatchId = Annotated[str, Parameter(name="ID", completer=complete_batch, help="A batch's id.")]


@app.command
def submit(
    source: Annotated[
        str,
        Parameter(
            name="MANIFEST|FOLDER|URL",
            help="A JSONL or CSV manifest to upload, a folder, or s3://bucket/prefix/ or file:///folder/.",
        ),
    ],
    /,
    *,
    how: Submission = Submission(),
    name: Annotated[str | None, Parameter(help="Name of the batch, for display.")] = None,
    strict: Annotated[bool, Parameter(help="Reject the whole batch if a line is invalid.")] = False,
    again: Again = False,
    wait: Annotated[bool, Parameter(help="Wait until the batch has ended.")] = False,
    server: Server = Server(),
) -> None:
    """Submit a batch. Invalid lines are reported with their numbers."""
    request = how.to_request() | {"name": name, "strict": strict} | repeat_fields(again)
    with server.connect() as spool:
        running = local_stack(spool)
        source = as_local_path(source, running)
        if _must_upload(running, source):
            tags = {"batch": name or Path(source).resolve().name} | request["tags"]
            err.print(
                f"The server cannot read {source}. Its recordings are uploaded as separate jobs with the tag "
                f"batch={tags['batch']}; no batch is created.",
                style="yellow",
                soft_wrap=True,
            )
            own = {key: value for key, value in request.items() if key not in ("name", "strict")}
            own["tags"] = tags
            submit_recordings(server, spool, [source], own, wait=wait)
            return
        try:
            batch = _submit(spool, source, request)
        except Refused as error:
            _print_refused(error)
            raise
        _print_bad_lines(batch)
        print_skipped([(file.path, file.reason) for file in batch.skipped_files], batch.lines.skipped)
        if wait:
            batch = follow_batch(spool, batch.id, err)
    _show(server, batch)
    if wait or batch.lines.bad:
        _exit_for(batch)


@app.command
def status(
    batch_id: Annotated[
        str | None,
        Parameter(
            name="ID", completer=complete_batch, help="A batch's id. Without one, list the latest batches."
        ),
    ] = None,
    /,
    *,
    watch: Annotated[bool, Parameter(help="Wait until the batch has ended.")] = False,
    limit: Annotated[
        int, Parameter(validator=Number(gte=1, lte=200), help="Number of batches to list.")
    ] = 20,
    ids: Annotated[bool, Parameter(help="Print ids alone, for other commands.")] = False,
    server: Server = Server(),
) -> None:
    """Show the progress, remaining time and cost of a batch, or list the latest batches."""
    with server.connect() as spool:
        if batch_id is None:
            page = spool.batch_page(limit=limit)
            if ids:
                print_ids(page.items)
                return
            server.show_rows(page, "no batches", ("batch", "state", "jobs", "done", "failed", "name"), _cells)
            return
        batch = follow_batch(spool, batch_id, err) if watch else spool.batch(batch_id)
    _show(server, batch)


@app.command
def results(
    batch_id: BatchId,
    /,
    *,
    output: Annotated[
        Path | None, Parameter(name=["--output", "-o"], help="Write to this file instead of standard output.")
    ] = None,
    words: Annotated[bool, Parameter(help="Include words with times and confidence.")] = False,
    state: Annotated[JobState | None, Parameter(help="Print only jobs in this state.")] = None,
    url: Url = None,
) -> None:
    """Print one line of JSON for each job in its current state."""
    with connect(url) as spool:
        lines = spool.result_lines(batch_id, words=words, state=state)
        if output is None:
            for line in lines:
                print(line)
            return
        # Renamed when complete, so that a partial file is never taken for the whole.
        partial = output.with_name(f"{output.name}.part")
        with partial.open("w", encoding="utf-8") as file:
            for line in lines:
                file.write(f"{line}\n")
        partial.replace(output)


def _complete_format(incomplete: str) -> list[str]:
    return [form for form in FORMATS if form.startswith(incomplete)]


def _format(name: str) -> Format:
    """Raises InvalidRequest for an unknown format."""
    for form in FORMATS:
        if form == name:
            return form
    raise InvalidRequest(f"Unknown transcript format {name!r}: choose from {', '.join(FORMATS)}.")


@app.command
def transcripts(
    batch_id: BatchId,
    /,
    *,
    output: Annotated[
        Path, Parameter(name=["--output", "-o"], help="Folder to write to; created if it does not exist.")
    ],
    forms: Annotated[
        list[str] | None,
        Parameter(
            name="--format",
            metavar="FORMAT",
            completer=_complete_format,
            help=f"Repeatable: {', '.join(FORMATS)}. Default: txt.",
        ),
    ] = None,
    url: Url = None,
) -> None:
    """Write the transcript of each finished job to a file named after the job, in the same folders.

    Each file is complete or absent, even if the command is interrupted. Running it again replaces the files.
    """
    wanted = list(dict.fromkeys(map(_format, forms or ["txt"])))
    with connect(url) as spool:
        taken: set[str] = set()
        for job in spool.jobs(batch=batch_id, state=JobState.DONE):
            if job.deleted is not None and job.deleted.transcript is not None:
                continue
            for form in wanted:
                name = free_name(choose_name(job.custom_id, job.name), SUFFIXES[form], job.id, taken)
                path = output / name
                path.parent.mkdir(parents=True, exist_ok=True)
                partial = path.with_name(f".{job.id}.part")  # a suffix could make the name too long
                partial.write_bytes(spool.transcript_file(job.id, form))
                partial.replace(path)
    out.print(f"{len(taken)} transcripts written to {output}", markup=False, soft_wrap=True)


@app.command
def download(
    batch_id: BatchId,
    /,
    *,
    output: Annotated[
        Path | None,
        Parameter(name=["--output", "-o"], help="Zip to write. Default: the batch's id and format."),
    ] = None,
    form: Annotated[Format, Parameter(name="--format", help="Format of the transcripts.")] = "txt",
    subtitles: Annotated[
        Preset | None,
        Parameter(help="Whose rules the subtitles follow, for srt, vtt and ttml. Default: netflix."),
    ] = None,
    url: Url = None,
) -> None:
    """Save the transcripts of all finished jobs as one zip.

    `missing.tsv` in it names the jobs without a transcript, with the reason.
    """
    zipped = output or Path(f"{batch_id}.{form}.zip")
    partial = zipped.with_name(f"{zipped.name}.part")
    with connect(url) as spool:
        blocks = spool.batch_transcripts(batch_id, form, subtitles=subtitles)
        with partial.open("wb") as file:
            for block in blocks:
                file.write(block)
    partial.replace(zipped)
    with ZipFile(zipped) as archive:
        names = archive.namelist()
        missing = archive.read(MISSING).count(b"\n") - 1 if MISSING in names else 0
    written = len(names) - (MISSING in names)
    out.print(f"{count_of(written, 'transcript')} saved to {zipped}", markup=False, soft_wrap=True)
    if missing:
        err.print(
            f"{missing} of {count_of(written + missing, 'job')} have no transcript ({MISSING} says why)",
            style="yellow",
        )


@app.command(name="retry-failed")
def retry_failed(batch_id: BatchId, /, *, server: Server = Server()) -> None:
    """Queue every failed job of a batch again."""
    with server.connect() as spool:
        answer = spool.retry_failed(batch_id)
    server.show(answer, f"{answer.retried} queued again")


@app.command
def cancel(batch_id: BatchId, /, *, server: Server = Server()) -> None:
    """Cancel a batch. Running jobs stop at their next chunk."""
    with server.connect() as spool:
        batch = spool.cancel_batch(batch_id)
    _show(server, batch)


@app.command
def delete(
    batch_id: BatchId,
    /,
    *,
    what: Annotated[
        Literal["all", "source", "transcript"],
        Parameter(help="The uploaded recordings, the transcripts, or both."),
    ] = "all",
    copies: Copies = False,
    yes: Yes = False,
    server: Server = Server(),
) -> None:
    """Delete the recordings and transcripts of a batch permanently.

    The jobs themselves are kept, with their costs. Jobs that have not ended, and recordings that were not
    uploaded, are left alone and counted.
    """
    if not yes:
        question = f"Permanently delete {DELETED[what]} of every job of {batch_id}?"
        confirm(question)
    jobs: list[JobDeletion] = []
    left: list[str] = []
    with server.connect() as spool:
        spool.batch(batch_id)  # raises for an unknown batch
        for job in spool.jobs(batch=batch_id):
            try:
                jobs.append(spool.delete_content(job.id, what, copies=copies))
            except Conflict as error:
                left.append(error.detail)
    server.show(jobs, f"{batch_id}: content of {count_of(len(jobs), 'job')} deleted")
    print_copies(jobs)
    if left:
        err.print(
            f"{count_of(len(left), 'job')} not deleted. The first reason: {left[0]}",
            style="yellow",
            soft_wrap=True,
        )
        raise SystemExit(Exit.FAILED)


def _manifest(source: str) -> Path:
    path = Path(source)
    if not path.is_file():
        raise InvalidRequest(f"There is no file {source}.")
    return path


def _must_upload(running: Running | None, source: str) -> bool:
    """Whether `source` is a local folder that the server cannot list."""
    path = Path(source).resolve()
    if "://" in source or not path.is_dir():
        return False
    roots = running.source_roots if running else ()
    return not any(path.is_relative_to(root) for root in roots)


def _submit(spool: Spool, source: str, request: dict[str, Any]) -> BatchDetail:
    """The batch of an address, of a local manifest, or of a local folder that the server may read."""
    if "://" in source:
        return spool.submit_batch(source, **request)
    if Path(source).is_dir():
        return spool.submit_batch(f"{Path(source).resolve().as_uri()}/", **request)
    with show_upload(err, source) as sent:
        return spool.submit_batch(_manifest(source), **request, sent=sent)


def _print_refused(error: Refused) -> None:
    """Print the lines for which a manifest was refused."""
    lines = error.problem.get("bad_lines") or []
    for bad in lines:
        err.print(Text.assemble((f"line {bad['line']}: ", "red"), bad["message"]), soft_wrap=True)
    more = int(error.problem.get("bad") or 0) - len(lines)
    if more > 0:
        err.print(f"and {more} more invalid lines")
    skipped = error.problem.get("skipped_files") or []
    print_skipped([(file["path"], file["reason"]) for file in skipped], error.problem.get("skipped"))


def _print_bad_lines(batch: BatchDetail) -> None:
    for bad in batch.bad_lines:
        err.print(Text.assemble((f"line {bad.line}: ", "red"), bad.message), soft_wrap=True)
    if batch.lines.bad > len(batch.bad_lines):
        err.print(f"and {batch.lines.bad - len(batch.bad_lines)} more invalid lines")


def _exit_for(batch: BatchDetail) -> None:
    if batch.lines.bad or batch.counts[JobState.FAILED] or batch.counts[JobState.CANCELLED]:
        raise SystemExit(Exit.FAILED)


def _show(server: Server, batch: BatchDetail) -> None:
    facts = (
        ("batch", batch.id),
        ("name", batch.name),
        ("state", batch.state),
        ("jobs", ", ".join(f"{number} {state}" for state, number in batch.counts.items() if number)),
        ("invalid lines", str(batch.lines.bad)),
        *((("unchanged", f"{batch.lines.unchanged} (submitted before)"),) if batch.lines.unchanged else ()),
        *((("skipped files", str(batch.lines.skipped)),) if batch.lines.skipped else ()),
        ("reused", str(batch.reused)),
        *((("cut off", f"{batch.incomplete} (see `complete` in the results)"),) if batch.incomplete else ()),
        *_progress_of(batch),
        *_order_of(batch),
    )
    server.show(batch, sheet_of((title, Text(value)) for title, value in facts))


def _progress_of(batch: BatchDetail) -> Iterator[tuple[str, str]]:
    cost, done = batch.cost, f"{format_duration(batch.audio.done_seconds)} done"
    if batch.state == "ended":
        yield "audio", done
        yield "cost", format_money(cost.billable, cost.currency)
        return
    expected = (
        "total unknown"
        if cost.expected is None
        else f"{format_money(cost.expected, cost.currency)} expected in total"
    )
    yield "audio", f"{done}, {format_duration(batch.audio.left_seconds)} left"
    yield "RTFx now", "—" if batch.speed.rtfx_now is None else f"{batch.speed.rtfx_now:.1f}"
    yield "time left", f"{format_duration(batch.time.left_seconds)} ({batch.time.basis})"
    billable = format_money(cost.billable, cost.currency)
    yield "cost", f"{billable} so far, {expected} ({cost.basis})"


def _order_of(batch: BatchDetail) -> Iterator[tuple[str, str]]:
    if batch.priority != "normal":
        yield "priority", batch.priority
    if batch.deadline is not None:
        at = batch.deadline
        yield "deadline", f"{format_time(at.at)}, {at.state.replace('_', ' ')} ({at.basis})"
    if batch.held is not None:
        yield "held", describe_hold(batch.held)
    for reason in batch.waiting_for:
        yield "waiting for", reason


def _cells(batch: BatchOut) -> list[Cell]:
    counts = batch.counts
    name = Text(batch.name, no_wrap=True, overflow="ellipsis")
    numbers = (sum(counts.values()), counts[JobState.DONE], counts[JobState.FAILED])
    return [batch.id, batch.state, *numbers, name]
