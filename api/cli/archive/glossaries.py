"""`spool glossary`: named, versioned lists of phrases. A client of the HTTP API."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from api.cli.connection import Server, Url, connect, out, print_json
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
    server: Server = Server(),
) -> None:
    """Add a version of a glossary from a file."""
    text = _read(file)
    content = {"csv": text} if file.suffix.casefold() == ".csv" else {"text": text}
    with server.connect() as spool:
        added = spool.put_glossary(
            name, **content, weight=weight, extend=extend, auto_add_after=auto_add_after, project=project
        )
    _print_version(server, added)


@app.command
def add(
    name: Name,
    /,
    *phrases: Annotated[str, Parameter(name="PHRASE", help="Words as they are spoken.", required=True)],
    project: Project = None,
    server: Server = Server(),
) -> None:
    """Add phrases to a glossary; existing ones are kept."""
    with server.connect() as spool:
        added = spool.put_glossary(name, phrases=list(phrases), extend=True, project=project)
    _print_version(server, added)


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
    server: Server = Server(),
) -> None:
    """List names that corrections put in place of what was recognised."""
    with server.connect() as spool:
        rows = spool.glossary_suggestions(project=project, glossary=name, recordings=recordings)
    titles = ("phrase", "recordings", "for example")
    server.show_rows(rows, "no suggestions", titles, lambda row: (row.phrase, row.recordings, row.job))


@app.command(name="list")
def list_glossaries(*, project: Project = None, server: Server = Server()) -> None:
    """List glossaries, each with its latest version."""
    with server.connect() as spool:
        rows = spool.glossaries(project=project)
    server.show_rows(
        rows,
        "no glossaries",
        ("glossary", "project", "phrases", "weight", "by"),
        lambda row: (
            f"{row.name}@{row.version}",
            row.project,
            row.count,
            f"{row.weight:g}",
            row.created_by,
        ),
    )


@app.command
def show(
    reference: Annotated[str, Parameter(name="NAME[@VERSION]", help="Default: its latest version.")],
    /,
    *,
    project: Project = None,
    server: Server = Server(),
) -> None:
    """Print the phrases of a glossary, one per line."""
    with server.connect() as spool:
        version = spool.glossary(reference, project=project)
    if server.as_json:
        print_json(version)
        return
    for phrase in version.phrases:
        print(phrase)


@app.command
def delete(name: Name, /, *, project: Project = None, url: Url = None) -> None:
    """Delete all versions of a glossary. Jobs that named it keep its phrases."""
    with connect(url) as spool:
        spool.remove_glossary(name, project=project)
    out.print(f"{name} deleted")


def _print_version(server: Server, added: GlossaryOut) -> None:
    noun = "phrase" if added.count == 1 else "phrases"
    server.show(added, f"{added.name}@{added.version}: {added.count} {noun}")


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
