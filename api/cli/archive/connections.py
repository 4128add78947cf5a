"""`spool connections`: credentials of other parties' buckets, by name. A client of the HTTP API."""

import os
import sys
from getpass import getpass
from typing import Annotated

from cyclopts import Parameter

from api.cli.connection import Server, Url, connect, out
from spool.commandline.app import new_app
from spool.errors import InvalidRequest
from spool.schemas.outputs import Access

app = new_app("Manage credentials of other parties' buckets.", "connections")

SECRET = "SPOOL_CONNECTION_SECRET"  # noqa: S105 - the name of a variable
_DOES = {"read": "reads", "write": "writes", "both": "reads and writes"}
Name = Annotated[str, Parameter(name="NAME", help="The connection's name.")]
Project = Annotated[str | None, Parameter(help="The project that may use it. Default: default.")]


@app.command
def add(
    name: Name,
    /,
    *,
    prefix: Annotated[
        str,
        Parameter(metavar="S3URL", help="s3://bucket/prefix/, below which it reads or writes."),
    ],
    key_id: Annotated[str, Parameter(help="The access key's id.")],
    endpoint: Annotated[
        str | None, Parameter(metavar="URL", help="Address of an S3-compatible store. Default: AWS.")
    ] = None,
    region: Annotated[str | None, Parameter(help="Default: us-east-1.")] = None,
    access: Annotated[
        Access | None, Parameter(help="Whether it reads sources or writes outputs. Default: write.")
    ] = None,
    project: Project = None,
    server: Server = Server(),
) -> None:
    """Create a connection.

    The secret access key is read from SPOOL_CONNECTION_SECRET, else from standard input.
    """
    secret = os.environ.get(SECRET) or (
        getpass("Secret access key: ") if sys.stdin.isatty() else sys.stdin.readline()
    )
    if not secret.strip():
        raise InvalidRequest(f"Give the secret access key in {SECRET} or on standard input.")
    with server.connect() as spool:
        added = spool.add_connection(
            name,
            prefix=prefix,
            key_id=key_id,
            secret=secret.strip(),
            endpoint=endpoint,
            region=region,
            access=access,
            project=project,
        )
    server.show(added, f"{added.name} {_DOES[added.access]} below {added.prefix}")


@app.command(name="list")
def list_connections(
    *,
    project: Annotated[str | None, Parameter(help="List only connections of this project.")] = None,
    server: Server = Server(),
) -> None:
    """List connections. Secrets are never shown."""
    with server.connect() as spool:
        rows = spool.connections(project=project)
    server.show_rows(
        rows,
        "no connections",
        ("connection", "project", "access", "prefix", "endpoint", "key"),
        lambda row: (row.name, row.project, row.access, row.prefix, row.endpoint or "AWS", row.key_id),
    )


@app.command
def remove(name: Name, /, *, project: Project = None, url: Url = None) -> None:
    """Delete a connection and its secret."""
    with connect(url) as spool:
        spool.remove_connection(name, project=project)
    out.print(f"{name} removed")
