"""Checks where a job's transcript is to be written, before the job exists. Writes nothing.

The server's own credentials may write below `SPOOL_OUTPUT_PREFIXES`, a connection of the project below its
prefix; neither may write where Spool stores its own data.
"""

import os
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from sqlalchemy import Connection

from api.auth.principal import is_below
from api.submission.sources import file_path, is_bucket, own_places
from spool.domain.archive.outputs import JobOutput
from spool.domain.jobs import Source
from spool.errors import InvalidRequest, NotFound, SourceForbidden
from spool.schemas.outputs import OutputRequest
from spool.settings import Settings
from spool.store.archive.connections import get_connection


def check_output(
    tx: Connection, settings: Settings, project: str, asked: OutputRequest | None
) -> JobOutput | None:
    """The output, still without the path of a file.

    Raises InvalidRequest for an address that names no folder or prefix and for an unknown connection,
    SourceForbidden for one that is not allowed.
    """
    if asked is None:
        return None
    prefix = _prefix_of(asked.prefix)
    if any(is_below(prefix, own) or is_below(own, prefix) for own in own_places(settings)):
        raise SourceForbidden("output.prefix: Spool stores its own data there; name a place elsewhere.")
    if asked.connection is not None:
        try:
            connection = get_connection(tx, project, asked.connection)
        except NotFound as error:
            raise InvalidRequest(f"output.connection: {error.message}") from None
        try:
            connection.check_write(prefix)
        except SourceForbidden as error:
            raise SourceForbidden(f"output.prefix: {error.message}") from None
    elif not any(is_below(prefix, each) for each in _prefixes_of(settings, project)):
        raise SourceForbidden(
            f"output.prefix: this server may not write to {prefix}. Name a connection that may, or have the "
            "operator add the address to SPOOL_OUTPUT_PREFIXES."
        )
    formats: list[str] = list(dict.fromkeys(asked.formats))
    return JobOutput(
        prefix=prefix, formats=formats, layout=asked.layout, connection=asked.connection, path=""
    )


def output_of(output: JobOutput | None, name: str, place: str) -> JobOutput | None:
    """The output of one job, with its recording's display name and its path below the submitted address."""
    if output is None:
        return None
    path = place if output["layout"] == "mirror" else name.replace("/", "_")
    return {**output, "path": path}


def place_of(source: Source, settings: Settings, name: str) -> str:
    """The path of a recording that was submitted by its own address: an object's key, a file's path below its
    allowed folder, or a web address's path. An upload has only its name."""
    if source.kind == "s3":
        return source.uri.removeprefix("s3://").partition("/")[2]
    if source.kind == "https":
        return urlsplit(source.uri).path.strip("/") or name
    if source.kind == "upload":
        return name
    path = file_path(source)
    below = [root for root in settings.source_roots if path.is_relative_to(root)]
    return str(path.relative_to(below[0])) if below else path.name


def _prefixes_of(settings: Settings, project: str) -> list[str]:
    prefixes = [prefix.replace("{project}", project) for prefix in settings.output_prefixes]
    return [_prefix_of(prefix) for prefix in prefixes]


def _prefix_of(address: str) -> str:
    """The address with links followed and one slash at its end."""
    scheme, colon, rest = address.partition("://")
    if scheme == "s3" and colon:
        bucket, _, prefix = rest.partition("/")
        if not is_bucket(bucket):
            raise InvalidRequest(f"output.prefix: {bucket!r} is not the name of an S3 bucket.")
        parts = prefix.strip("/").split("/") if prefix.strip("/") else []
        if any(part in {"", ".", ".."} for part in parts):
            raise InvalidRequest("output.prefix: an S3 prefix must not have empty parts, `.` or `..`.")
        return "".join(f"{part}/" for part in ("s3:/", bucket, *parts))
    host, slash, path = rest.partition("/")
    if scheme != "file" or not colon or host not in ("", "localhost") or not slash or set("?#") & set(path):
        raise InvalidRequest("output.prefix: write s3://bucket/prefix/ or file:///absolute/folder/.")
    text = os.fsdecode(unquote_to_bytes("/" + path))
    if "\x00" in text:
        raise InvalidRequest("output.prefix: a path must not contain a zero byte.")
    try:
        return f"{Path(text).resolve().as_uri().rstrip('/')}/"
    except (OSError, RuntimeError):
        raise SourceForbidden("output.prefix: the path cannot be followed to its end.") from None
