"""`spool glossary`: named, versioned lists of phrases. A client of the HTTP API."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.table import Table

from api.cli.connection import Json, Url, connect, out, print_json
from spool.commandline.app import new_app
from spool.domain.search.glossary import MOST_GLOSSARY_BYTES
from spool.errors import InvalidRequest
from spool.schemas.glossaries import GlossaryOut

app = new_app("Manage lists of names and phrases for jobs to favour.", "glossary")

Name = Annotated[str, Parameter(name="NAME", help="The glossary's name.")]
Project = Annotated[str | None, Parameter(help="The project that uses it. Default: default.")]


@app.command
def put(
    name: Name,
    file: Annotated[
        Path,
        Parameter(name="FILE", help="One phrase per line; of a .csv, the column `phrase`, or the first."),
    ],
    /,
    *,
    weight: Annotated[
        float | None, Parameter(help="Weight of its phrases. Default: 1; with --extend, unchanged.")
    ] = None,
    extend: Annotated[bool, Parameter(help="Keep the latest version's phrases too.")] = False,
    auto_add_after: Annotated[
        int | None,
        Parameter(
            metavar="N",
            validator=Number(gte=1),
            help="Automatically add names that corrections wrote in N recordings (`suggest`).",
        ),
    ] = None,
    project: Project = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Add a version of a glossary from a file."""
    text = _read(file)
    content = {"csv": text} if file.suffix.casefold() == ".csv" else {"text": text}
    with connect(url) as (spool, _):
        added = spool.put_glossary(
            name, **content, weight=weight, extend=extend, auto_add_after=auto_add_after, project=project
        )
    _print_version(added, as_json)


@app.command
def add(
    name: Name,
    /,
    *phrases: Annotated[str, Parameter(name="PHRASE", help="Words as they are spoken.", required=True)],
    project: Project = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Add phrases to a glossary; existing ones are kept."""
    with connect(url) as (spool, _):
        added = spool.put_glossary(name, phrases=list(phrases), extend=True, project=project)
    _print_version(added, as_json)


@app.command
def suggest(
    name: Annotated[
        str | None, Parameter(name="NAME", help="Leave out the phrases of this glossary.")
    ] = None,
    /,
    *,
    recordings: Annotated[
        int, Parameter(metavar="N", validator=Number(gte=1), help="In at least N recordings.")
    ] = 1,
    project: Project = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List names that corrections put in place of what was recognised."""
    with connect(url) as (spool, _):
        rows = spool.glossary_suggestions(project=project, glossary=name, recordings=recordings)
    if as_json:
        print_json(rows)
        return
    if not rows:
        out.print("no suggestions", style="dim")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("phrase", "recordings", "for example"):
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(row.phrase, str(row.recordings), row.job)
    out.print(table)


@app.command(name="list")
def list_glossaries(*, project: Project = None, url: Url = None, as_json: Json = False) -> None:
    """List glossaries, each with its latest version."""
    with connect(url) as (spool, _):
        rows = spool.glossaries(project=project)
    if as_json:
        print_json(rows)
        return
    if not rows:
        out.print("no glossaries", style="dim")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("glossary", "project", "phrases", "weight", "by"):
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(
            f"{row.name}@{row.version}", row.project, str(row.count), f"{row.weight:g}", row.created_by
        )
    out.print(table)


@app.command
def show(
    reference: Annotated[str, Parameter(name="NAME[@VERSION", help="Default: its latest version.")],
    /,
    *,
    project: Project = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Print the phrases of a glossary, one per line."""
    with connect(url) as (spool, _):
        version = spool.glossary(reference, project=project)
    if as_json:
        print_json(version)
        return
    for phrase in version.phrases:
        print(phrase)


@app.command
def delete(name: Name, /, *, project: Project = None, url: Url = None) -> None:
    """Delete all versions of a glossary. Jobs that named it keep its phrases."""
    with connect(url) as (spool, _):
        spool.remove_glossary(name, project=project)
    out.print(f"{name} deleted")


def _print_version(added: GlossaryOut, as_json: bool) -> None:
    noun = "phrase" if added.count == 1 else "phrases"
    print_json(added) if as_json else out.print(f"{added.name}@{added.version}: {added.count} {noun}")


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(MOST_GLOSSARY_BYTES + 1)
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}.") from None
    if len(content) > MOST_GLOSSARY_BYTES:
        raise InvalidRequest(f"{file} is larger than the {MOST_GLOSSARY_BYTES} bytes allowed for a glossary.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidRequest(f"{file}, line {line}: is not UTF-8; save the file as UTF-8.") from None
