"""The subcommands that correct transcripts. Clients of the HTTP API."""

from getpass import getuser
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.text import Text

from api.cli.completion import JobId
from api.cli.connection import Server
from api.cli.tables import Cell
from spool.commandline.app import new_app
from spool.schemas.edits import EditOut

edits = new_app("Correct transcripts; list and undo corrections.", "edits")

Closed = Annotated[
    bool,
    Parameter(negative=(), help="Something of the recording is closed; the words are counted with it."),
]
Author = Annotated[
    str | None, Parameter(help="Who makes the correction. Default: the user of this computer.")
]


@edits.command(name="list")
def list_edits(job_id: JobId, /, *, server: Server = Server()) -> None:
    """List who corrected what and when."""
    with server.connect() as spool:
        history = spool.edits(job_id)
    server.show_rows(history, "no corrections", ("revision", "when", "who", "words", "now"), _cells)


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
    closed: Closed = False,
    server: Server = Server(),
) -> None:
    """Replace words by a text. Their times and the transcript as recognised are kept."""
    with server.connect() as spool:
        seen = len(spool.edits(job_id)) if seen is None else seen
        edit = spool.edit(job_id, first, last, text, seen=seen, author=author or getuser(), closed=closed)
    server.show(edit, f"revision {edit.revision}")


@edits.command(name="undo")
def undo(
    job_id: JobId,
    revision: Annotated[int, Parameter(validator=Number(gte=1), help="The correction to undo.")],
    /,
    *,
    author: Author = None,
    closed: Closed = False,
    server: Server = Server(),
) -> None:
    """Undo a correction. What it replaced is restored."""
    with server.connect() as spool:
        edit = spool.undo_edit(job_id, revision, author=author or getuser(), closed=closed)
    server.show(edit, f"revision {edit.revision} undoes {revision}")


def _cells(edit: EditOut) -> list[Cell]:
    cells = (
        str(edit.revision),
        f"{edit.created_at:%Y-%m-%d %H:%M} UTC",
        edit.author,
        f"{edit.first_word} to {edit.last_word}",
        _now(edit),
    )
    return [Text(cell, "" if edit.stands else "dim") for cell in cells]


def _now(edit: EditOut) -> str:
    if edit.undoes is not None:
        return f"undoes {edit.undoes}"
    now = "the same words" if edit.text is None else edit.text or "deleted"
    return now if edit.speaker is None else f"{now} ({edit.speaker})"
