"""The subcommands for jobs, from submit to delete. Clients of the HTTP API."""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.text import Text

from api.cli.archive.outputs import Connection, Output
from api.cli.completion import complete_batch, complete_job
from api.cli.connection import Exit, Json, Url, Yes, confirm, connect, err, out, print_json
from api.cli.files import print_copies, print_skipped, recordings_under
from api.cli.options import DELETED, Copies, Place, Speakers, Transcription
from api.cli.progress import follow, sending
from api.cli.tables import count_of, job_sheet, job_table, speaker_table, voice_table
from api.local.instance import Running
from spool.client import Refused, Spool, Unreachable
from spool.commandline.app import new_app
from spool.domain.jobs import JobState
from spool.domain.manifest import NAME_LENGTH
from spool.errors import InvalidRequest
from spool.formats import Format
from spool.schemas.jobs import JobDetail, JobOut

JobId = Annotated[str, Parameter(name="ID", completer=complete_job, help="A job's id.")]


def submit(
    *sources: Annotated[
        str, Parameter(name="PATH|URL", help="Files, folders, https:// or s3:// addresses.", required=True)
    ],
    place: Place = Place(),
    options: Transcription = Transcription(),
    deliver: Output = Output(),
    wait: Annotated[bool, Parameter(help="Wait until the jobs have ended.")] = False,
    reuse: Annotated[
        bool,
        Parameter(
            help="Reuse a transcript of the same content and options, free of charge.",
        ),
    ] = False,
    source_connection: Connection = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Submit recordings, or every recording in a folder."""
    request = place.to_request() | {"options": options.to_request()} | deliver.to_request()
    if reuse:
        request["reuse"] = True
    if source_connection is not None:
        request["connection"] = source_connection
    with connect(url) as (spool, running):
        submit_recordings(spool, running, sources, request, wait=wait, as_json=as_json)


def submit_recordings(
    spool: Spool,
    running: Running | None,
    sources: Sequence[str],
    request: dict[str, Any],
    *,
    wait: bool,
    as_json: bool,
) -> None:
    """Submit a job for each recording and print them; files that the server may not read are uploaded."""
    jobs: list[JobDetail] = []
    recordings = list(_expand(sources))
    try:
        refused = _submit_all(spool, running, recordings, request, jobs, quiet=as_json)
        conclude(spool, jobs, refused, wait=wait, as_json=as_json)
    except (KeyboardInterrupt, Unreachable):
        if jobs:
            err.print(_left_behind(len(jobs), len(recordings), request), style="yellow", soft_wrap=True)
        raise


def _left_behind(submitted: int, all_: int, request: dict[str, Any]) -> str:
    """What somebody should know who stops `spool submit`."""
    sentence = f"{submitted} of {all_} recordings were submitted and go on; `spool follow` shows them."
    if request.get("reuse"):
        return f"{sentence} Submitted again, those that are done by then cost nothing."
    if "align" in request["options"]:
        return sentence
    return (
        f"{sentence} Submitted again, they are charged again; with --reuse not those that are done by then."
    )


def conclude(spool: Spool, jobs: Sequence[JobDetail], refused: int = 0, *, wait: bool, as_json: bool) -> None:
    """Print the submitted jobs, with `wait` once they have ended; exit with an error if one failed."""
    if wait and jobs:
        jobs = follow(spool, jobs, err)
    if as_json:
        print_json(jobs)
    elif wait:
        out.print(job_table(list(jobs)), crop=False)
    for job in jobs if wait else ():
        for warning in job.warnings:
            err.print(Text.assemble((f"{job.name}: ", "yellow"), warning), soft_wrap=True)
    _exit_for(jobs, refused)


def status(
    job_id: Annotated[
        str | None,
        Parameter(name="ID", completer=complete_job, help="A job's id. Without one, list the latest jobs."),
    ] = None,
    /,
    *,
    state: Annotated[JobState | None, Parameter(help="List only jobs in this state.")] = None,
    project: Annotated[str | None, Parameter(help="List only jobs of this project.")] = None,
    batch: Annotated[
        str | None, Parameter(completer=complete_batch, help="List only jobs of this batch.")
    ] = None,
    name: Annotated[
        str | None, Parameter(help="List only recordings with this in their name, in any case.")
    ] = None,
    tag: Annotated[str | None, Parameter(metavar="KEY[=VALUE]", help="List only jobs with this tag.")] = None,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=200), help="Number of jobs to list.")] = 20,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show one job, or the latest jobs."""
    with connect(url) as (spool, _):
        if job_id is not None:
            job = spool.job(job_id)
            print_json(job) if as_json else out.print(job_sheet(job))
            return
        page = spool.job_page(state=state, project=project, batch=batch, name=name, tag=tag, limit=limit)
    if as_json:
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
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Follow jobs until they end."""
    with connect(url) as (spool, _):
        if job_ids:
            jobs: list[JobOut] = [spool.job(job_id) for job_id in job_ids]
        else:
            jobs = [*spool.jobs(state="running"), *spool.jobs(state="queued")]
        ended = follow(spool, list({job.id: job for job in jobs}.values()), err) if jobs else []
    if as_json:
        print_json(ended)
    elif ended:
        out.print(job_table(list(ended)), crop=False)
    else:
        out.print("no job is waiting or running", style="dim")
    _exit_for(ended, 0)


def transcript(
    job_id: JobId,
    /,
    *,
    form: Annotated[Format, Parameter(name="--format", help="Format of the transcript.")] = "txt",
    digits: Annotated[
        str | None,
        Parameter(
            metavar="LANGUAGE",
            help="Write numbers as digits: en, de …, or auto for the transcript's language.",
        ),
    ] = None,
    output: Annotated[
        Path | None, Parameter(name=["--output", "-o"], help="Write to this file instead of standard output.")
    ] = None,
    url: Url = None,
) -> None:
    """Print a transcript."""
    if form == "docx" and output is None and sys.stdout.isatty():
        raise InvalidRequest("A Word document cannot be printed: name a file with --output.")
    with connect(url) as (spool, _):
        data = spool.transcript_file(job_id, form, digits=digits)
    if output is not None:
        output.write_bytes(data)
    else:
        needs_end = form != "docx" and not data.endswith(b"\n")
        sys.stdout.flush()
        sys.stdout.buffer.write(data + b"\n" if needs_end else data)
        sys.stdout.buffer.flush()


def cancel(job_id: JobId, /, *, url: Url = None, as_json: Json = False) -> None:
    """Cancel a job.

    A running job stops at its next chunk.
    """
    with connect(url) as (spool, _):
        job = spool.cancel(job_id)
    outcome = "cancelled" if job.state is JobState.CANCELLED else "stops at its next chunk"
    print_json(job) if as_json else out.print(f"{job.id} {outcome}")


def retry(job_id: JobId, /, *, url: Url = None, as_json: Json = False) -> None:
    """Queue a failed or cancelled job again."""
    with connect(url) as (spool, _):
        job = spool.retry(job_id)
    print_json(job) if as_json else out.print(f"{job.id} {job.state}")


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
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Delete recordings and transcripts permanently.

    The jobs themselves are kept, with their costs.
    """
    if not yes:
        confirm(f"Permanently delete {DELETED[what]} of {count_of(len(job_ids), 'job')}?")
    with connect(url) as (spool, _):
        jobs = [spool.delete_content(job_id, what, copies=copies) for job_id in job_ids]
    if as_json:
        print_json(jobs)
        return
    for job in jobs:
        out.print(f"{job.id}: content deleted")
    print_copies(jobs)


speakers = new_app("Find, list and name the speakers of transcripts.", "speakers")


@speakers.command(name="find")
def find_speakers(
    job_id: JobId,
    /,
    *,
    known: Speakers = Speakers(),
    wait: Annotated[bool, Parameter(help="Wait until the job has ended.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Find the speakers of a finished job, without transcribing it again."""
    with connect(url) as (spool, _):
        jobs: list[JobOut] = [spool.diarize(job_id, **known.to_request())]
        if wait:
            jobs = list(follow(spool, jobs, err))
    if as_json:
        print_json(jobs[0])
    else:
        out.print(job_table(jobs), crop=False)


@speakers.command(name="list")
def list_speakers(job_id: JobId, /, *, url: Url = None, as_json: Json = False) -> None:
    """List the speakers of a job's transcript, and the voices that they resemble."""
    with connect(url) as (spool, _):
        job, heard = spool.job(job_id), spool.speakers(job_id).items
    if as_json:
        print_json(heard)
    elif job.speakers is None:
        out.print("speakers were not requested; see `spool speakers find`", style="dim")
    else:
        out.print(speaker_table(heard))


@speakers.command(name="name")
def name_speakers(
    job_id: JobId,
    /,
    *names: Annotated[
        str, Parameter(name="LABEL=NAME", help="As speaker_0=Ada; an empty name removes it.", required=True)
    ],
    remember: Annotated[
        bool,
        Parameter(help="Recognise these voices in the project's other recordings."),
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Name the speakers of a job's transcript. Every format of it then has the names."""
    if any("=" not in pair for pair in names):
        raise InvalidRequest("A name is given as LABEL=NAME, such as speaker_0=Ada.")
    pairs = dict(pair.split("=", 1) for pair in names)
    with connect(url) as (spool, _):
        plain = {label: text or None for label, text in pairs.items()}
        named = spool.name_speakers(job_id, plain, remember=remember)
    if as_json:
        print_json(named)
    else:
        out.print(speaker_table(named.items))


@speakers.command(name="voices")
def list_voices(*, url: Url = None, as_json: Json = False) -> None:
    """List the voices that are recognised in new recordings."""
    with connect(url) as (spool, _):
        known = spool.voices()
    if as_json:
        print_json(known)
    elif not known:
        out.print("no voices; `spool speakers name JOB LABEL=NAME --remember` adds one", style="dim")
    else:
        out.print(voice_table(known))


@speakers.command(name="forget")
def forget_voice(
    voice: Annotated[str, Parameter(name="VOICE", help="The voice's id.")], /, *, url: Url = None
) -> None:
    """Delete a voice and all its voice prints. Speakers keep the name."""
    with connect(url) as (spool, _):
        spool.forget_voice(voice)
    out.print(f"{voice} forgotten")


def _expand(sources: Sequence[str]) -> Iterator[tuple[str | Path, str | None]]:
    """Addresses and files; files of a folder are named by their path in it, which distinguishes files of the
    same name in different folders."""
    for source in sources:
        if "://" in source:
            yield source, None
            continue
        folder = Path(source)
        recordings, skipped = recordings_under(folder)
        print_skipped(skipped)
        for path in recordings:
            place = path.relative_to(folder).as_posix()
            fits = path != folder and place.isprintable() and len(place) <= NAME_LENGTH
            yield path, place if fits else None


def _submit_all(
    spool: Spool,
    running: Running | None,
    recordings: Sequence[tuple[str | Path, str | None]],
    request: dict[str, Any],
    jobs: list[JobDetail],
    *,
    quiet: bool,
) -> int:
    """Append each job to `jobs` as it is submitted; how many recordings were refused."""
    refused, printed = 0, ""
    for source, name in recordings:
        try:
            job = _submit_one(spool, running, source, request | ({"name": name} if name else {}))
        except (Refused, OSError) as error:
            # One recording that is refused or unreadable must not stop the others.
            refused += 1
            reason = error.detail if isinstance(error, Refused) else f"cannot be read: {error.strerror}"
            err.print(Text.assemble((f"{source}: ", "red"), reason), soft_wrap=True)
            continue
        jobs.append(job)
        if not quiet:
            out.print(f"{job.id}  {job.name}", markup=False, soft_wrap=True)
            if job.waiting_for and job.waiting_for != printed:
                printed = job.waiting_for
                err.print(Text(f"waiting for {printed}", style="yellow"), soft_wrap=True)
    return refused


def _submit_one(
    spool: Spool, running: Running | None, source: str | Path, request: dict[str, Any]
) -> JobDetail:
    if isinstance(source, str):
        return spool.submit(source, **request)
    path = Path(os.path.realpath(source))  # which follows a loop of links forever, and raises nothing
    # Only a stack on this machine sees the same files; any other server gets an upload.
    roots = [Path(root) for root in running.source_roots] if running else []
    if any(path.is_relative_to(root) for root in roots):
        try:
            return spool.submit(path.as_uri(), **request)
        except Refused as error:
            if error.code not in ("source_forbidden", "source_missing"):
                raise  # the key or the server's settings do not allow reading it there: upload it
    with sending(err, path.name) as sent:
        return spool.submit(path, **request, sent=sent)


def _exit_for(jobs: Sequence[JobOut], refused: int) -> None:
    failed = [job for job in jobs if job.state in (JobState.FAILED, JobState.CANCELLED)]
    for job in failed:
        reason = (job.error.message if job.error else job.state.value).removeprefix(f"{job.name}: ")
        err.print(Text.assemble((f"{job.name}: ", "red"), reason), soft_wrap=True)
    if failed or refused:
        raise SystemExit(Exit.FAILED)
