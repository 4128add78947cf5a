"""The subcommands that correct transcripts. Clients of the HTTP API."""

from getpass import getuser
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.text import Text

from api.cli.completion import JobId
from api.cli.connection import Server, out, print_json
from api.cli.tables import Cell, format_duration
from spool.commandline.app import new_app
from spool.errors import InvalidRequest
from spool.schemas.edits import EditOut, SpreadDone, SpreadOut

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


@edits.command(name="spread")
def spread(
    job_id: JobId,
    revision: Annotated[int, Parameter(validator=Number(gte=1), help="The correction that wrote a name.")],
    /,
    *,
    accept: Annotated[
        tuple[int, ...],
        Parameter(negative=(), metavar="NUMBER", help="Correct this place of the list. May be repeated."),
    ] = (),
    every: Annotated[
        bool, Parameter(name="--all", negative=(), help="Correct all places of the list.")
    ] = False,
    undo: Annotated[
        bool, Parameter(negative=(), help="Undo what it was spread to; the correction itself stays.")
    ] = False,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=100), help="The most places.")] = 20,
    author: Author = None,
    closed: Closed = False,
    server: Server = Server(),
) -> None:
    """List where a corrected name was written otherwise; correct it there, too.

    In all recordings of the project: with the same wrong words, among what else was recognised, with similar
    letters, or with the same sound where a job has a witness. What somebody corrected already is left out.
    """
    if sum((bool(accept), every, undo)) > 1:
        raise InvalidRequest("Give only one of --accept, --all and --undo.")
    with server.connect() as spool:
        if undo:
            done = spool.undo_spread(job_id, revision, author=author or getuser(), closed=closed)
            server.show(done, _describe(done, "undone"), markup=False)
            return
        found = spool.spread_places(job_id, revision, limit=limit, closed=closed)
        if not accept and not every:
            _show_places(server, found, spool.url)
            return
        unknown = [number for number in accept if not 1 <= number <= len(found.items)]
        if unknown:
            raise InvalidRequest(f"--accept: there are {len(found.items)} places, and no {unknown[0]}.")
        places = found.items if every else [found.items[number - 1] for number in dict.fromkeys(accept)]
        if not places:
            raise InvalidRequest("There are no other places.")
        done = spool.spread_edit(job_id, revision, places, author=author or getuser(), closed=closed)
    server.show(done, _describe(done, "corrected"), markup=False)


def _show_places(server: Server, found: SpreadOut, address: str) -> None:
    if server.as_json:
        print_json(found)
        return
    if not found.items:
        out.print(f"no other places of {', '.join(found.names)}" if found.names else "it wrote no name")
    for number, place in enumerate(found.items, 1):
        ways = ", ".join(place.found_by)
        sure = "" if place.certainty is None else f", {place.certainty:.0%} sure by its sound"
        line = Text.assemble(
            (f"{number:>3}  ", "cyan"),
            f"{place.before} ",
            (place.written, "red"),
            " \u2192 ",
            (place.text, "green"),
            f" {place.after}",
        )
        out.print(line, soft_wrap=True)
        out.print(
            f"     {place.name}, {format_duration(place.start)}  {ways}{sure}",
            style="dim",
            soft_wrap=True,
            markup=False,
        )
        out.print(f"     {address}{place.audio}", style="dim", soft_wrap=True, markup=False)


def _describe(done: SpreadDone, what: str) -> str:
    jobs = len({edit.job for edit in done.items})
    lines = [f"{what} in {jobs} {'recording' if jobs == 1 else 'recordings'}: {len(done.items)}"]
    return "\n".join([*lines, *(f"{each.job}: {each.reason}" for each in done.refused)])


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
