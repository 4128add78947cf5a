"""The subcommands about jobs: submit, status, watch, transcript, cancel, retry. Clients of the HTTP API."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from api import cli_options as told
from api.cli_connection import Json, Url, connected, err, out, print_json
from api.client import Client, Refused
from api.following import follow
from api.printing import job_sheet, job_table
from api.recordings import recordings_under
from api.runfile import Running
from spool.errors import InvalidRequest
from spool.jobs import JobState
from spool.wire.jobs import JobDetail, JobOut

JobId = Annotated[str, typer.Argument(metavar="ID", help="A job's id.")]


class Format(StrEnum):
    """How to render a transcript."""

    JSON = "json"
    TXT = "txt"
    SRT = "srt"
    VTT = "vtt"
    PARAGRAPHS = "paragraphs"
    TSV = "tsv"
    CTM = "ctm"
    TTML = "ttml"
    LATTICE = "lattice"
    KALDI = "kaldi"


def submit(
    sources: Annotated[
        list[str], typer.Argument(metavar="PATH|URL…", help="Files, folders, https:// or s3:// addresses.")
    ],
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
    pool: Annotated[str | None, typer.Option(help="Which pool of workers.")] = None,
    worker: Annotated[str | None, typer.Option(help="Pin to one worker, by name.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the jobs to their end.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Hand in recordings; a folder stands for every recording below it."""
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
    options = {name: value for name, value in chosen.items() if value is not None}
    placed = {"project": project, "pool": pool, "worker": worker}
    request: dict[str, Any] = {name: value for name, value in placed.items() if value is not None}
    wanted = list(_expanded(sources))
    with connected(url) as (client, running):
        jobs, refused = _submit_all(client, running, wanted, request | {"options": options}, quiet=as_json)
        if wait and jobs:
            jobs = follow(client, jobs, err)
    if as_json:
        print_json(jobs)
    elif wait:
        out.print(job_table(list(jobs)))
    _exit_for(jobs, refused)


def status(
    job_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="A job; the latest ones without.")
    ] = None,
    state: Annotated[JobState | None, typer.Option(help="Only jobs in this state.")] = None,
    project: Annotated[str | None, typer.Option(help="Only jobs of this project.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many.")] = 20,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """How one job stands, or the latest ones."""
    with connected(url) as (client, _):
        if job_id is not None:
            job = client.job(job_id)
            print_json(job) if as_json else out.print(job_sheet(job))
            return
        page = client.jobs({"state": state, "project": project, "limit": limit})
    if as_json:
        print_json(page)
    elif page.items:
        out.print(job_table(page.items))
    else:
        out.print("no jobs", style="dim")


def watch(
    job_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID…]", help="Jobs; all unfinished ones without.")
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Follow jobs until they have ended."""
    with connected(url) as (client, _):
        if job_ids:
            jobs: list[JobOut] = [client.job(job_id) for job_id in job_ids]
        else:
            jobs = [*client.all_jobs({"state": "running"}), *client.all_jobs({"state": "queued"})]
        ended = follow(client, list({job.id: job for job in jobs}.values()), err) if jobs else []
    if as_json:
        print_json(ended)
    elif ended:
        out.print(job_table(list(ended)))
    else:
        out.print("nothing is waiting or running", style="dim")
    _exit_for(ended, 0)


def transcript(
    job_id: JobId,
    form: Annotated[Format, typer.Option("--format", help="How to render it.")] = Format.TXT,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file to write to.")] = None,
    url: Url = None,
) -> None:
    """Print a transcript."""
    with connected(url) as (client, _):
        text = client.transcript(job_id, form)
    if output is None:
        typer.echo(text, nl=not text.endswith("\n"))
    else:
        output.write_text(text, encoding="utf-8")


def cancel(job_id: JobId, url: Url = None, as_json: Json = False) -> None:
    """Cancel a job; a running one stops at its next chunk."""
    with connected(url) as (client, _):
        job = client.cancel(job_id)
    asked = "cancelled" if job.state is JobState.CANCELLED else "asked to stop"
    print_json(job) if as_json else out.print(f"{job.id} {asked}")


def retry(job_id: JobId, url: Url = None, as_json: Json = False) -> None:
    """Queue a failed or cancelled job again."""
    with connected(url) as (client, _):
        job = client.retry(job_id)
    print_json(job) if as_json else out.print(f"{job.id} {job.state}")


def _expanded(sources: Sequence[str]) -> Iterator[str | Path]:
    for source in sources:
        if "://" in source:
            yield source
        else:
            yield from recordings_under(Path(source))


def _submit_all(
    client: Client,
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
            job = _submit_one(client, running, source, request)
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
    client: Client, running: Running | None, source: str | Path, request: dict[str, Any]
) -> JobDetail:
    if isinstance(source, str):
        return client.submit_source(source, request)
    path = source.resolve()
    # Only a stack of this machine sees the same files; any other server gets the bytes.
    roots = [Path(root) for root in running.source_roots] if running else []
    if any(path.is_relative_to(root) for root in roots):
        return client.submit_source(path.as_uri(), request)
    try:
        return client.submit_file(path, request)
    except OSError as error:
        raise InvalidRequest(f"{source} cannot be read: {error.strerror}.") from None


def _exit_for(jobs: Sequence[JobOut], refused: int) -> None:
    failed = [job for job in jobs if job.state in (JobState.FAILED, JobState.CANCELLED)]
    for job in failed:
        reason = job.error.message if job.error else job.state.value
        err.print(Text.assemble((f"{job.name}: ", "red"), reason), soft_wrap=True)
    if failed or refused:
        raise typer.Exit(1)
