"""Where a job's transcript is written, besides Spool's own object store.

Pure: settings decide which addresses are allowed, and the exporter what is written.
"""

import hashlib
from typing import Literal, TypedDict

Layout = Literal["flat", "mirror"]
"""`mirror`: below the prefix in the same folders as the recordings; `flat`: all in one folder."""


class JobOutput(TypedDict):
    """A job's output as stored in its row: the address below which files are written (it ends in a slash),
    the formats, and the file's path there without a format's suffix."""

    prefix: str
    formats: list[str]
    layout: Layout
    connection: str | None
    path: str


def destination_of(output: JobOutput) -> str:
    """What must be reachable for this output's files to be written: a connection, a bucket, or the
    folder."""
    if output["connection"] is not None:
        return f"connection:{output['connection']}"
    scheme, _, rest = output["prefix"].partition("://")
    return f"s3://{rest.partition('/')[0]}" if scheme == "s3" else output["prefix"]


def target_of(project: str, output: JobOutput, uri: str) -> str:
    """The digest of one file, ignoring case, as the file systems of Macs and Windows do: two jobs with the
    same digest would write the same file."""
    owner = f"{project}/{output['connection']}" if output["connection"] else ""
    return hashlib.sha256(f"{owner}\n{uri.casefold()}".encode(errors="surrogateescape")).hexdigest()
