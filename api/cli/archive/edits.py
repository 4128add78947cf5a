"""The subcommands that correct transcripts. Clients of the HTTP API."""

from getpass import getuser
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.table import Table
from rich.text import Text

from api.cli.completion import JobId
from api.cli.connection import Json, Url, connect, out, print_json
from spool.commandline.app import new_app
from spool.schemas.edits import EditOut

edits = new_app("Correct transcripts; list and undo corrections.", "edits")

Author = Annotated[
    str | None, Parameter(help="Who makes the correction. Default: the user of this computer.")
]


@edits.command(name="list")
def list_edits(job_id: JobId, /, *, url: Url = None, as_json: Json = False) -> None:
    """List who corrected what and when."""
    with connect(url) as (spool, _):
        history = spool.edits(job_id)
    if as_json:
        print_json(history)
    elif not history:
        out.print("no corrections", style="dim")
    else:
        out.print(_table(history))


@edits.command(name="replace")
def replace_words(
    job_id: JobId,
    first: Annotated[
        int, Parameter(validator=Number(gte=0), help="The first word, counted from 0 as recognised.")
    ],
    last: Annotated[int, Parameter(validator=Number(gte=0), help="The last word, included.")],
    text: Annotated[str, Parameter(help="The correct text; '' deletes the words.")],
    /,
    *,
    seen: Annotated[
        int | None,
        Parameter(validator=Number(gte=0), help="The last revision that you have seen. Default: the latest."),
    ] = None,
    author: Author = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Replace words by a text. Their times and the transcript as recognised are kept."""
    with connect(url) as (spool, _):
        seen = len(spool.edits(job_id)) if seen is None else seen
        edit = spool.edit(job_id, first, last, text, seen=seen, author=author or getuser())
    print_json(edit) if as_json else out.print(f"revision {edit.revision}")


@edits.command(name="undo")
def undo(
    job_id: JobId,
    revision: Annotated[int, Parameter(validator=Number(gte=1), help="The correction to undo.")],
    /,
    *,
    author: Author = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Undo a correction. What it replaced is restored."""
    with connect(url) as (spool, _):
        edit = spool.undo_edit(job_id, revision, author=author or getuser())
    print_json(edit) if as_json else out.print(f"revision {edit.revision} undoes {revision}")


def _table(history: list[EditOut]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("revision", "when", "who", "words"):
        table.add_column(title, no_wrap=True)
    table.add_column("now", overflow="fold")
    for edit in history:
        style = "" if edit.stands else "dim"
        table.add_row(
            str(edit.revision),
            f"{edit.created_at:%Y-%m-%d %H:%M} UTC",
            Text(edit.author),
            f"{edit.first_word} to {edit.last_word}",
            _now(edit),
            style=style,
        )
    return table


def _now(edit: EditOut) -> Text:
    if edit.undoes is not None:
        return Text(f"undoes {edit.undoes}")
    now = Text("the same words" if edit.text is None else edit.text or "deleted")
    return now if edit.speaker is None else now.append(f" ({edit.speaker})")
