"""`spool batch`: submit, status, results, transcripts, download, retry-failed, cancel, delete.

Clients of the API.
"""

from pathlib import Path
from typing import Annotated, Literal
from zipfile import ZipFile

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.text import Text

from api.cli.batch_report import show_batch
from api.cli.batch_submission import submit_batch
from api.cli.completion import complete_batch
from api.cli.connection import Exit, Server, Url, Yes, confirm, connect, err, local_stack, out, print_ids
from api.cli.files import DELETED, Copies, as_local_path, print_copies
from api.cli.options import Again, Submission, repeat_fields
from api.cli.progress import follow_batch
from api.cli.submit import submit_recordings
from api.cli.tables import Cell, count_of
from api.local.instance import Running
from spool.client import Conflict
from spool.commandline.app import new_app
from spool.domain.jobs import JobState
from spool.errors import InvalidRequest
from spool.formats import FORMATS, Format, Preset
from spool.formats.file_names import MISSING, SUFFIXES, choose_name, free_name
from spool.schemas.batches import BatchOut
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
        if not _must_upload(running, source):
            submit_batch(server, spool, source, request, wait=wait)
            return
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
    show_batch(server, batch)


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
    show_batch(server, batch)


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


def _must_upload(running: Running | None, source: str) -> bool:
    """Whether `source` is a local folder that the server cannot list."""
    path = Path(source).resolve()
    if "://" in source or not path.is_dir():
        return False
    roots = running.source_roots if running else ()
    return not any(path.is_relative_to(root) for root in roots)


def _cells(batch: BatchOut) -> list[Cell]:
    counts = batch.counts
    name = Text(batch.name, no_wrap=True, overflow="ellipsis")
    numbers = (sum(counts.values()), counts[JobState.DONE], counts[JobState.FAILED])
    return [batch.id, batch.state, *numbers, name]
