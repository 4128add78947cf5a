"""Where a job's transcript is written to, besides Spool's own object store.

Pure: which addresses are allowed is for the settings to say, and what is written there for the exporter.
"""

import hashlib
from typing import Literal, TypedDict

Layout = Literal["flat", "mirror"]
"""`mirror`: below the prefix as the recordings are below theirs; `flat`: all in one folder."""


class JobOutput(TypedDict):
    """A job's output as its row keeps it: the address below which files are written (it ends in a slash), the
    formats, and the file's path there without a format's suffix."""

    prefix: str
    formats: list[str]
    layout: Layout
    connection: str | None
    path: str


def destination_of(output: JobOutput) -> str:
    """What has to answer for this output's files to be written: a connection, a bucket, or the folders."""
    if output["connection"] is not None:
        return f"connection:{output['connection']}"
    scheme, _, rest = output["prefix"].partition("://")
    return f"s3://{rest.partition('/')[0]}" if scheme == "s3" else "folders"


def target_of(project: str, output: JobOutput, uri: str) -> str:
    """The digest of one file, in any case of its letters, since file systems of Macs and Windows compare
    names so: two jobs with the same digest would write the same file."""
    owner = f"{project}/{output['connection']}" if output["connection"] else ""
    return hashlib.sha256(f"{owner}\n{uri.casefold()}".encode(errors="surrogateescape")).hexdigest()
