"""The subcommands about jobs, from submit to delete. Clients of the HTTP API."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.text import Text

from api.cli.completion import complete_batch, complete_job
from api.cli.connection import Exit, Json, Url, connected, err, out, print_json
from api.cli.files import recordings_under
from api.cli.options import Place, Search, takes_options
from api.cli.progress import follow, sending
from api.cli.tables import job_sheet, job_table
from api.local.instance import Running
from spool.client import Refused, Spool
from spool.domain.jobs import JobState
from spool.errors import InvalidRequest
from spool.formats import Format
from spool.schemas.jobs import JobDetail, JobOut

JobId = Annotated[str, typer.Argument(metavar="ID", autocompletion=complete_job, help="A job's id.")]


@takes_options
def submit(
    sources: Annotated[
        list[str], typer.Argument(metavar="PATH|URL…", help="Files, folders, https:// or s3:// addresses.")
    ],
    place: Place,
    search: Search,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the jobs to their end.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Hand in recordings; a folder stands for every recording below it."""
    request = place.told() | {"options": search.told()}
    wanted = list(_expanded(sources))
    with connected(url) as (spool, running):
        jobs, refused = _submit_all(spool, running, wanted, request, quiet=as_json)
        if wait and jobs:
            jobs = follow(spool, jobs, err)
    if as_json:
        print_json(jobs)
    elif wait:
        out.print(job_table(list(jobs)))
    _exit_for(jobs, refused)


def status(
    job_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", autocompletion=complete_job, help="A job; the latest ones without."),
    ] = None,
    state: Annotated[JobState | None, typer.Option(help="Only jobs in this state.")] = None,
    project: Annotated[str | None, typer.Option(help="Only jobs of this project.")] = None,
    batch: Annotated[
        str | None, typer.Option(autocompletion=complete_batch, help="Only jobs of this batch.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many.")] = 20,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """How one job stands, or the latest ones."""
    with connected(url) as (spool, _):
        if job_id is not None:
            job = spool.job(job_id)
            print_json(job) if as_json else out.print(job_sheet(job))
            return
        page = spool.job_page(state=state, project=project, batch=batch, limit=limit)
    if as_json:
        print_json(page)
    elif page.items:
        out.print(job_table(page.items))
    else:
        out.print("no jobs", style="dim")


def watch(
    job_ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID…]", autocompletion=complete_job, help="Jobs; all unfinished ones without."
        ),
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Follow jobs until they have ended."""
    with connected(url) as (spool, _):
        if job_ids:
            jobs: list[JobOut] = [spool.job(job_id) for job_id in job_ids]
        else:
            jobs = [*spool.jobs(state="running"), *spool.jobs(state="queued")]
        ended = follow(spool, list({job.id: job for job in jobs}.values()), err) if jobs else []
    if as_json:
        print_json(ended)
    elif ended:
        out.print(job_table(list(ended)))
    else:
        out.print("nothing is waiting or running", style="dim")
    _exit_for(ended, 0)


def transcript(
    job_id: JobId,
    form: Annotated[Format, typer.Option("--format", help="How to render it.")] = "txt",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file to write to.")] = None,
    url: Url = None,
) -> None:
    """Print a transcript."""
    with connected(url) as (spool, _):
        text = spool.transcript(job_id, form)
    if output is None:
        typer.echo(text, nl=not text.endswith("\n"))
    else:
        output.write_text(text, encoding="utf-8")


def cancel(job_id: JobId, url: Url = None, as_json: Json = False) -> None:
    """Cancel a job; a running one stops at its next chunk."""
    with connected(url) as (spool, _):
        job = spool.cancel(job_id)
    asked = "cancelled" if job.state is JobState.CANCELLED else "asked to stop"
    print_json(job) if as_json else out.print(f"{job.id} {asked}")


def retry(job_id: JobId, url: Url = None, as_json: Json = False) -> None:
    """Queue a failed or cancelled job again."""
    with connected(url) as (spool, _):
        job = spool.retry(job_id)
    print_json(job) if as_json else out.print(f"{job.id} {job.state}")


def delete(
    job_ids: Annotated[
        list[str], typer.Argument(metavar="ID…", autocompletion=complete_job, help="Jobs that have ended.")
    ],
    what: Annotated[
        Literal["all", "source", "transcript"],
        typer.Option(help="The uploaded recording, every word of it, or both."),
    ] = "all",
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Delete for good what jobs hold; the jobs stay, with their costs."""
    if not yes:
        typer.confirm(f"Delete {what} of {len(job_ids)} jobs for good?", abort=True, err=True)
    with connected(url) as (spool, _):
        jobs = [spool.delete_content(job_id, what) for job_id in job_ids]
    if as_json:
        print_json(jobs)
        return
    for job in jobs:
        out.print(f"{job.id} deleted")


def _expanded(sources: Sequence[str]) -> Iterator[str | Path]:
    for source in sources:
        if "://" in source:
            yield source
        else:
            yield from recordings_under(Path(source))


def _submit_all(
    spool: Spool,
    running: Running | None,
    wanted: Sequence[str | Path],
    request: dict[str, Any],
    *,
    quiet: bool,
) -> tuple[Sequence[JobDetail], int]:
    jobs = []
    refused = 0
    for source in wanted:
        try:
            job = _submit_one(spool, running, source, request)
        except Refused as error:
            # One recording that is refused must not keep the others from being handed in.
            refused += 1
            err.print(Text.assemble((f"{source}: ", "red"), error.detail), soft_wrap=True)
            continue
        jobs.append(job)
        if not quiet:
            out.print(f"{job.id}  {job.name}", markup=False, soft_wrap=True)
    return jobs, refused


def _submit_one(
    spool: Spool, running: Running | None, source: str | Path, request: dict[str, Any]
) -> JobDetail:
    if isinstance(source, str):
        return spool.submit(source, **request)
    path = source.resolve()
    # Only a stack of this machine sees the same files; any other server gets the bytes.
    roots = [Path(root) for root in running.source_roots] if running else []
    if any(path.is_relative_to(root) for root in roots):
        return spool.submit(path.as_uri(), **request)
    try:
        with sending(err, path.name) as sent:
            return spool.submit(path, **request, sent=sent)
    except OSError as error:
        raise InvalidRequest(f"{source} cannot be read: {error.strerror}.") from None


def _exit_for(jobs: Sequence[JobOut], refused: int) -> None:
    failed = [job for job in jobs if job.state in (JobState.FAILED, JobState.CANCELLED)]
    for job in failed:
        reason = job.error.message if job.error else job.state.value
        err.print(Text.assemble((f"{job.name}: ", "red"), reason), soft_wrap=True)
    if failed or refused:
        raise typer.Exit(Exit.FAILED)
