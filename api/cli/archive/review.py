"""The subcommands of the review. Clients of the HTTP API."""

from getpass import getuser
from itertools import islice
from typing import Annotated, cast

import typer
from rich.text import Text

from api.cli.completion import complete_batch
from api.cli.connection import Json, Url, connected, out, print_json
from api.cli.tables import clock
from spool.domain.archive.review import REASONS
from spool.schemas.review import Reason, ReviewPassageOut

review = typer.Typer(no_args_is_help=True, help="List doubtful passages; mark those that you checked.")


def _reason(value: str | None) -> str | None:
    if value is not None and value not in REASONS:
        raise typer.BadParameter(f"one of: {', '.join(REASONS)}")
    return value


@review.command("list")
def list_passages(
    project: Annotated[str | None, typer.Option(help="Only of this project.")] = None,
    batch: Annotated[
        str | None, typer.Option(autocompletion=complete_batch, help="Only of jobs of this batch.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Only of recordings with this in their name.")] = None,
    tag: Annotated[
        str | None, typer.Option(metavar="KEY[=VALUE]", help="Only of jobs with this tag.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Only of jobs of this model.")] = None,
    reason: Annotated[
        str | None, typer.Option(callback=_reason, help=f"Only for this reason: {', '.join(REASONS)}.")
    ] = None,
    checked: Annotated[bool, typer.Option("--checked", help="Those that somebody checked instead.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Number of passages to list.")] = 20,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List passages that nobody has checked, the most doubtful first."""
    with connected(url) as (spool, _):
        passages = spool.review(
            project=project,
            batch=batch,
            name=name,
            tag=tag,
            model=model,
            reason=cast("Reason | None", reason),
            checked=checked,
        )
        found = list(islice(passages, limit))
        address = spool.url
    if as_json:
        print_json(found)
        return
    if not found:
        out.print("nothing to review", style="dim")
    for passage in found:
        out.print(_heading(passage), soft_wrap=True)
        out.print(Text(f"  {passage.text or 'speech without words'}"), soft_wrap=True)
        out.print(Text(f"    {address}{passage.url}", "dim"), soft_wrap=True)


@review.command("check")
def check(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="A job's id.")],
    passage: Annotated[int, typer.Argument(min=0, help="The passage's number in the job.")],
    undo: Annotated[bool, typer.Option("--undo", help="Take the mark back.")] = False,
    author: Annotated[
        str | None, typer.Option(help="Who checked it. Default: the user of this computer.")
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Say that you listened to a passage and its words are right."""
    with connected(url) as (spool, _):
        found = spool.check_passage(job_id, passage, author=author or getuser(), checked=not undo)
    print_json(found) if as_json else out.print(_heading(found), soft_wrap=True)


def _heading(passage: ReviewPassageOut) -> Text:
    why = ", ".join(
        f"{name} {value:.0%}" for name, value in passage.doubts.model_dump().items() if value >= 0.005
    )
    line = Text.assemble(
        (f"{passage.doubt:4.0%} ", "yellow"),
        (f" {clock(passage.start)}  ", "cyan"),
        (passage.name, "bold"),
        (f"  {passage.job} {passage.passage}", "dim"),
        f"  {why}",
    )
    return line if passage.checked_by is None else line.append(f"  checked by {passage.checked_by}", "green")
