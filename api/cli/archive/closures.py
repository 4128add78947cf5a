"""The subcommands that close parts of recordings to readers, and open them. Clients of the HTTP API."""

import re
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from api.cli.completion import JobId
from api.cli.connection import Server
from api.cli.tables import Cell
from api.cli.times import Time, seconds_of
from spool.commandline.app import new_app
from spool.errors import NotFound
from spool.schemas.closures import ClosureOut, OpeningOut, PrivateOut

app = new_app("Close passages, speakers or recordings to readers, and open them.", "embargo")


@app.command(name="close")
def close(
    job_id: JobId,
    /,
    *,
    start: Annotated[
        Time, Parameter(name="--from", help="Where the passage begins: 12:30, or seconds.")
    ] = None,
    end: Annotated[Time, Parameter(name="--to", help="Where it ends.")] = None,
    speaker: Annotated[str | None, Parameter(help="Close this speaker instead, such as speaker_1.")] = None,
    until: Annotated[
        str | None, Parameter(metavar="DATE", help="When it opens by itself: 2031-01-01. Default: never.")
    ] = None,
    reason: Annotated[str, Parameter(help="Why, for those who may open it.")] = "",
    server: Server = Server(),
) -> None:
    """Close a recording to readers: a passage, a speaker, or the whole.

    Every version of the recording is closed, and the original is kept.
    """
    moment = f"{until}T00:00:00Z" if until is not None and re.fullmatch(r"\d{4}-\d\d-\d\d", until) else until
    with server.connect() as spool:
        closure = spool.close_to_readers(
            job_id,
            start=seconds_of("--from", start),
            end=seconds_of("--to", end),
            speaker=speaker,
            until=moment,
            reason=reason,
        )
    server.show(closure, f"{closure.id}: {_what(closure)} is closed {_until(closure)}")


@app.command(name="list")
def list_closures(job_id: JobId, /, *, server: Server = Server()) -> None:
    """List what is closed of a recording, and what was."""
    with server.connect() as spool:
        found = spool.closures(job_id)
    server.show_rows(found, "nothing is closed", ("closure", "what", "closed", "by", "reason"), _cells)


@app.command(name="open")
def lift(
    job_id: JobId,
    closure: Annotated[str, Parameter(help="The closure's id.")],
    /,
    *,
    server: Server = Server(),
) -> None:
    """Open a closed part to all readers again."""
    with server.connect() as spool:
        lifted = spool.lift_closure(job_id, closure)
    server.show(lifted, f"{lifted.id}: {_what(lifted)} is open")


@app.command(name="log")
def list_openings(job_id: JobId, /, *, server: Server = Server()) -> None:
    """List who was given what is closed."""
    with server.connect() as spool:
        found = spool.openings(job_id)
    server.show_rows(found, "never opened", ("when", "by", "way"), _opening_cells)


@app.command(name="suggest")
def suggest(job_id: JobId, /, *, server: Server = Server()) -> None:
    """List words that look like names, phone numbers or addresses.

    By simple rules, which miss some and mark others wrongly: a person decides.
    """
    with server.connect() as spool:
        found = spool.closure_suggestions(job_id)
    server.show_rows(found, "no suggestions", ("from", "to", "looks like", "words"), _suggestion_cells)


@app.command(name="ignore")
def ignore(
    job_id: JobId,
    words: Annotated[str, Parameter(help="The words, as `suggest` shows them.")],
    /,
    *,
    server: Server = Server(),
) -> None:
    """Suggest these words no more: they are not private."""
    with server.connect() as spool:
        kinds = {each.kind for each in spool.closure_suggestions(job_id) if each.text == words}
        if not kinds:
            raise NotFound(f"{words!r} is not suggested for {job_id}.")
        left: list[PrivateOut] = []
        for kind in sorted(kinds):
            left = spool.decide_not_private(job_id, kind, words)
    server.show_rows(left, "no more suggestions", ("from", "to", "looks like", "words"), _suggestion_cells)


def _what(closure: ClosureOut) -> str:
    if closure.kind == "range":
        return f"{closure.start:g} to {closure.end:g} s"
    return closure.speaker or "the recording"


def _until(closure: ClosureOut) -> str:
    return f"until {closure.until:%Y-%m-%d}" if closure.until is not None else "for good"


def _cells(closure: ClosureOut) -> list[Cell]:
    state = f"open since {closure.lifted_at:%Y-%m-%d}" if closure.lifted_at is not None else _until(closure)
    cells = (closure.id, _what(closure), state, closure.created_by, closure.reason or "")
    return [Text(cell, "dim" if closure.lifted_at else "") for cell in cells]


def _opening_cells(opening: OpeningOut) -> list[Cell]:
    return [f"{opening.at:%Y-%m-%d %H:%M} UTC", opening.by, opening.way]


def _suggestion_cells(one: PrivateOut) -> list[Cell]:
    return [f"{one.start:.1f}", f"{one.end:.1f}", one.kind, one.text]
