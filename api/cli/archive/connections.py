"""`spool connections`: credentials of other parties' buckets, by name. A client of the HTTP API."""

import os
import sys
from getpass import getpass
from typing import Annotated

from cyclopts import Parameter
from rich.table import Table

from api.cli.connection import Json, Url, connect, out, print_json
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
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Create a connection.

    The secret access key is read from SPOOL_CONNECTION_SECRET, else from standard input.
    """
    secret = os.environ.get(SECRET) or (
        getpass("Secret access key: ") if sys.stdin.isatty() else sys.stdin.readline()
    )
    if not secret.strip():
        raise InvalidRequest(f"Give the secret access key in {SECRET} or on standard input.")
    with connect(url) as (spool, _):
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
    print_json(added) if as_json else out.print(f"{added.name} {_DOES[added.access]} below {added.prefix}")


@app.command(name="list")
def list_connections(
    *,
    project: Annotated[str | None, Parameter(help="List only connections of this project.")] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List connections. Secrets are never shown."""
    with connect(url) as (spool, _):
        rows = spool.connections(project=project)
    if as_json:
        print_json(rows)
        return
    if not rows:
        out.print("no connections", style="dim")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("connection", "project", "access", "prefix", "endpoint", "key"):
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(row.name, row.project, row.access, row.prefix, row.endpoint or "AWS", row.key_id)
    out.print(table)


@app.command
def remove(name: Name, /, *, project: Project = None, url: Url = None) -> None:
    """Delete a connection and its secret."""
    with connect(url) as (spool, _):
        spool.remove_connection(name, project=project)
    out.print(f"{name} removed")
