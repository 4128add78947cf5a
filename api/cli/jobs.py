"""The subcommands for jobs, from status to delete. Clients of the HTTP API.

`api.cli.submit` has `spool submit`, `api.cli.speakers` has `spool speakers`.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.text import Text

from api.cli.completion import JobId, complete_batch, complete_job
from api.cli.connection import Exit, Server, Url, Yes, confirm, connect, err, out, print_ids, print_json
from api.cli.files import DELETED, Copies, print_copies
from api.cli.tables import count_of, job_sheet, job_table
from spool.client import Refused, Spool
from spool.client.fields import JobQuery, State
from spool.domain.jobs import JobState
from spool.errors import InvalidRequest
from spool.formats import Preset, ServedFormat
from spool.schemas.jobs import JobDetail, JobOut

Ids = Annotated[str, Parameter(name="ID", completer=complete_job, help="Ids of jobs.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Which:
    """Which jobs a command is about."""

    project: Annotated[str | None, Parameter(help="Only jobs of this project.")] = None
    batch: Annotated[str | None, Parameter(completer=complete_batch, help="Only jobs of this batch.")] = None
    name: Annotated[str | None, Parameter(help="Only recordings with this in their name, in any case.")] = (
        None
    )
    tag: Annotated[str | None, Parameter(metavar="KEY[=VALUE]", help="Only jobs with this tag.")] = None

    def to_query(self) -> JobQuery:
        """The query of the list."""
        return {"project": self.project, "batch": self.batch, "name": self.name, "tag": self.tag}


def status(
    job_id: Annotated[
        str | None,
        Parameter(name="ID", completer=complete_job, help="A job's id. Without one, list the latest jobs."),
    ] = None,
    /,
    *,
    state: Annotated[JobState | None, Parameter(help="List only jobs in this state.")] = None,
    which: Which = Which(),
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=200), help="Number of jobs to list.")] = 20,
    ids: Annotated[bool, Parameter(help="Print ids alone, for other commands.")] = False,
    server: Server = Server(),
) -> None:
    """Show one job, or the latest jobs."""
    with server.connect() as spool:
        if job_id is not None:
            job = spool.job(job_id)
            server.show(job, job_sheet(job))
            return
        page = spool.job_page(state=state, limit=limit, **which.to_query())
    if ids:
        print_ids(page.items)
    elif server.as_json:
        print_json(page)
    elif page.items:
        out.print(job_table(page.items), crop=False)
    else:
        out.print("no jobs", style="dim")


def follow_jobs(
    *job_ids: Annotated[
        str,
        Parameter(
            name="ID", completer=complete_job, help="Ids of jobs. Without any, follow every unfinished job."
        ),
    ],
    server: Server = Server(),
) -> None:
    """Follow jobs until they end."""
    from api.cli.progress import follow

    with server.connect() as spool:
        if job_ids:
            jobs: list[JobOut] = [spool.job(job_id) for job_id in job_ids]
        else:
            jobs = [*spool.jobs(state="running"), *spool.jobs(state="queued")]
        ended = follow(spool, list({job.id: job for job in jobs}.values()), err) if jobs else []
    if server.as_json:
        print_json(ended)
    elif ended:
        out.print(job_table(list(ended)), crop=False)
    else:
        out.print("no job is waiting or running", style="dim")
    exit_for(ended)


def transcript(
    job_id: JobId,
    /,
    *,
    form: Annotated[ServedFormat, Parameter(name="--format", help="Format of the transcript.")] = "txt",
    digits: Annotated[
        str | None,
        Parameter(
            metavar="LANGUAGE",
            help="Write numbers as digits: en, de …, or auto for the transcript's language.",
        ),
    ] = None,
    subtitles: Annotated[
        Preset | None,
        Parameter(help="Whose rules the subtitles follow, for srt, vtt and ttml. Default: netflix."),
    ] = None,
    output: Annotated[
        Path | None, Parameter(name=["--output", "-o"], help="Write to this file instead of standard output.")
    ] = None,
    recorded: Annotated[
        bool,
        Parameter(negative=(), help="The stored record as JSON, whose hash the receipt has."),
    ] = False,
    closed: Annotated[
        bool, Parameter(negative=(), help="Include what is closed to readers; this is logged.")
    ] = False,
    url: Url = None,
) -> None:
    """Print a transcript."""
    if form == "docx" and output is None and sys.stdout.isatty():
        raise InvalidRequest("A Word document cannot be printed: name a file with --output.")
    with connect(url) as spool:
        data = spool.transcript_file(
            job_id, form, digits=digits, subtitles=subtitles, recorded=recorded, closed=closed
        )
    if output is not None:
        output.write_bytes(data)
    else:
        needs_end = form != "docx" and not data.endswith(b"\n")
        sys.stdout.flush()
        sys.stdout.buffer.write(data + b"\n" if needs_end else data)
        sys.stdout.buffer.flush()


def cancel(*job_ids: Ids, which: Which = Which(), server: Server = Server()) -> None:
    """Cancel jobs, by their ids or by filters.

    A running job stops at its next chunk.
    """
    with server.connect() as spool:
        _change_all(
            server,
            job_ids,
            lambda: _choose(spool, which, "running", "queued"),
            spool.cancel,
            _describe_cancelled,
        )


def _describe_cancelled(job: JobDetail) -> str:
    return "cancelled" if job.state is JobState.CANCELLED else "stops at its next chunk"


def retry(*job_ids: Ids, which: Which = Which(), server: Server = Server()) -> None:
    """Queue failed or cancelled jobs again, by their ids or by filters.

    Filters choose failed jobs only.
    """
    with server.connect() as spool:
        _change_all(
            server, job_ids, lambda: _choose(spool, which, "failed"), spool.retry, lambda job: job.state.value
        )


def _choose(spool: Spool, which: Which, *states: State) -> list[str]:
    """The ids of all jobs in these states that the filters choose. Raises InvalidRequest without a filter."""
    only = which.to_query()
    if not any(only.values()):
        raise InvalidRequest(
            "Name jobs by their ids, or choose them with --batch, --project, --name or --tag."
        )
    return [job.id for state in states for job in spool.jobs(state=state, **only)]


def _change_all(
    server: Server,
    named: Sequence[str],
    choose: Callable[[], list[str]],
    change: Callable[[str], JobDetail],
    describe: Callable[[JobDetail], str],
) -> None:
    """Change each job and print what became of it; those that cannot be changed do not stop the others."""
    changed: list[JobDetail] = []
    refused = 0
    job_ids = named or choose()
    for job_id in job_ids:
        try:
            changed.append(change(job_id))
        except Refused as error:
            if len(named) == 1:
                raise
            refused += 1
            err.print(Text.assemble((f"{job_id}: ", "red"), error.detail), soft_wrap=True)
    if server.as_json:
        print_json(changed[0] if len(named) == 1 else changed)
    for job in () if server.as_json else changed:
        out.print(f"{job.id} {describe(job)}", markup=False)
    if not job_ids and not server.as_json:
        out.print("no such jobs", style="dim")
    if refused:
        raise SystemExit(Exit.FAILED)


def delete(
    *job_ids: Annotated[
        str,
        Parameter(
            name="ID", completer=complete_job, help="Jobs that are done, failed or cancelled.", required=True
        ),
    ],
    what: Annotated[
        Literal["all", "source", "transcript"],
        Parameter(help="The uploaded recording, the transcript, or both."),
    ] = "all",
    copies: Copies = False,
    yes: Yes = False,
    server: Server = Server(),
) -> None:
    """Delete recordings and transcripts permanently.

    The jobs themselves are kept, with their costs.
    """
    if not yes:
        confirm(f"Permanently delete {DELETED[what]} of {count_of(len(job_ids), 'job')}?")
    with server.connect() as spool:
        jobs = [spool.delete_content(job_id, what, copies=copies) for job_id in job_ids]
    if server.as_json:
        print_json(jobs)
        return
    for job in jobs:
        out.print(f"{job.id}: content deleted")
    print_copies(jobs)


def exit_for(jobs: Sequence[JobOut], refused: int = 0) -> None:
    """Print why jobs failed. Raises SystemExit if some did, or recordings were refused."""
    failed = [job for job in jobs if job.state in (JobState.FAILED, JobState.CANCELLED)]
    for job in failed:
        reason = (job.error.message if job.error else job.state.value).removeprefix(f"{job.name}: ")
        err.print(Text.assemble((f"{job.name}: ", "red"), reason), soft_wrap=True)
    if failed or refused:
        raise SystemExit(Exit.FAILED)
