"""Options that say where transcripts are written, and the subcommand that writes them again."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from api.cli.completion import complete_job
from api.cli.connection import Server
from spool.commandline.app import GROUPS
from spool.errors import InvalidRequest

Connection = Annotated[
    str | None,
    Parameter(
        name="--connection",
        group=GROUPS["Output"],
        metavar="NAME",
        help="Read s3:// addresses with this connection (`spool connections`).",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Output:
    """Where the server writes transcripts, besides its own store."""

    output: Annotated[
        str | None,
        Parameter(
            name="--output",
            metavar="PREFIX",
            group=GROUPS["Output"],
            help="Have the server write transcripts below s3://bucket/prefix/ or a folder of its own.",
        ),
    ] = None
    formats: Annotated[
        list[str] | None,
        Parameter(
            name="--output-format",
            metavar="FORMAT",
            group=GROUPS["Output"],
            help="Format to write; repeat for several. Default: txt.",
        ),
    ] = None
    layout: Annotated[
        Literal["mirror", "flat"] | None,
        Parameter(
            name="--output-layout",
            group=GROUPS["Output"],
            help="Mirror the recordings' folders, or write all files into one. Default: mirror.",
        ),
    ] = None
    connection: Annotated[
        str | None,
        Parameter(
            name="--output-connection",
            metavar="NAME",
            group=GROUPS["Output"],
            help="Write with this connection (`spool connections`).",
        ),
    ] = None

    def to_request(self) -> dict[str, Any]:
        """The request's field; None without an output."""
        if self.output is None:
            if self.formats or self.layout or self.connection:
                raise InvalidRequest("Say where to write transcripts: --output PREFIX.")
            return {}
        prefix = self.output if "://" in self.output else f"{Path(self.output).resolve().as_uri()}/"
        asked = {"layout": self.layout, "connection": self.connection}
        request = {"prefix": prefix, "formats": self.formats or ["txt"]}
        return {"output": request | {name: value for name, value in asked.items() if value is not None}}


def export(
    job_id: Annotated[str, Parameter(name="ID", completer=complete_job, help="A job's id.")],
    /,
    *,
    server: Server = Server(),
) -> None:
    """Write a job's output files again.

    `spool status ID` shows which files exist, and why others do not.
    """
    with server.connect() as spool:
        files = spool.export_again(job_id)
    server.show(files, f"{len(files)} files will be written")
