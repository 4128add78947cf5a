"""The subcommands of versions: run recordings again, list what was made of one, compare. Clients of the HTTP
API."""

import hashlib
import json
from collections.abc import Iterator
from typing import Annotated, Literal

import typer
from rich.table import Table
from rich.text import Text

from api.cli.completion import complete_batch, complete_job
from api.cli.connection import Json, Url, connected, out, print_json
from api.cli.options import Search
from api.cli.tables import clock, how_words, moment, money
from spool.client import Spool
from spool.command_options import takes_options
from spool.domain.jobs import JobState
from spool.errors import InvalidRequest
from spool.schemas.versions import ComparedWord, VersionOut

JobId = Annotated[str, typer.Argument(metavar="ID", autocompletion=complete_job, help="A job's id.")]


@takes_options
def rerun(
    search: Search,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID…", autocompletion=complete_job, help="Jobs whose recording to run again."),
    ] = None,
    batch: Annotated[
        str | None, typer.Option(autocompletion=complete_batch, help="Every finished job of this batch.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Pool of workers. Default: any with the model.")] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Run the recordings of jobs again, such as with a better model.

    Options that are not given stay as they were. Transcripts stay; `spool diff` compares them. Repeating a
    command with --batch goes on where it was interrupted.
    """
    if not ids and not batch:
        raise InvalidRequest("Name jobs, or a batch: spool rerun --batch BATCH --model MODEL.")
    options = search.to_request()
    asked = hashlib.sha256(json.dumps([options, pool], sort_keys=True).encode()).hexdigest()[:32]
    with connected(url) as (spool, _):
        made = [spool.rerun(each, options, pool=pool) for each in ids or ()]
        made += [
            spool.rerun(job_id, options, pool=pool, idempotency_key=f"rerun-{job_id}-{asked}")
            for job_id in (_done(spool, batch) if batch else ())
        ]
    if as_json:
        print_json(made)
    else:
        for job in made:
            out.print(Text.assemble(job.id, "  ", (f"version of {job.rerun_of}", "dim"), f"  {job.name}"))


def versions(job_id: JobId, url: Url = None, as_json: Json = False) -> None:
    """List the versions of a job's recording: models, words, costs."""
    with connected(url) as (spool, _):
        found = spool.versions(job_id)
    if as_json:
        print_json(found)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("job", "state", "model", "decoder", "words", "cost", "submitted by", "created"):
        table.add_column(heading, header_style="dim", overflow="fold")
    for each in found.items:
        table.add_row(*_row(each))
    out.print(table)
    if not found.stored:
        out.print("The recording was deleted; it cannot be run again.", style="dim")


def diff(
    base: JobId,
    other: JobId,
    sort: Annotated[
        Literal["time", "doubt"], typer.Option(help="By time, or the least certain words first.")
    ] = "time",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Number of differences to list.")] = 50,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Compare two versions of a recording word by word."""
    with connected(url) as (spool, _):
        found = spool.diff(base, other, sort=sort, limit=limit)
    if as_json:
        print_json(found)
        return
    for each in found.items:
        line = Text(f"{clock(each.start)}  ", "cyan")
        line.append(_words(each.base), "red").append("  →  ", "dim").append(_words(each.other), "green")
        out.print(line.append(f"  doubt {each.doubt:.2f}", "dim"), soft_wrap=True)
    rate = "no words to compare with" if found.wer is None else f"WER {found.wer:.2%}"
    noun = "difference" if found.total == 1 else "differences"
    out.print(f"{found.total} {noun}, {found.edits} of {found.words} words: {rate}")


def _done(spool: Spool, batch: str) -> Iterator[str]:
    return (job.id for job in spool.jobs(batch=batch, state=JobState.DONE))


def _row(version: VersionOut) -> tuple[str, ...]:
    return (
        version.job,
        "deleted" if version.deleted else version.state.value,
        version.model,
        how_words(version.options),
        "" if version.words is None else str(version.words),
        money(version.cost.billable, version.cost.currency),
        version.submitted_by or "",
        moment(version.created_at),
    )


def _words(words: list[ComparedWord]) -> str:
    return " ".join(word.text for word in words) or "—"
