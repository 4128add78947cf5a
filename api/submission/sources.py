"""Checks the source of a job before the job exists: `s3://`, `https://`, and `file://` under a root.

Fetches nothing. The worker checks again when it reads, since a link may have been created in between.
"""

import os
import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from api.auth.principal import Principal, is_below
from spool.domain.jobs import Source
from spool.errors import InvalidRequest, SourceForbidden, SourceMissing
from spool.net.address_policy import AddressRules, HostRefused
from spool.net.pinned_http import split_address
from spool.settings import Settings

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_S3_KEY_BYTES = 1024


def check_source(address: str, settings: Settings, caller: Principal) -> Source:
    """The source that `address` names.

    Raises `InvalidRequest` for an address that names nothing, `SourceForbidden` for one that the settings or
    the caller's key do not allow, `SourceMissing` for a file that does not exist.
    """
    source = _source(address, settings)
    check_place(source.uri, settings, caller)
    return source


def check_place(uri: str, settings: Settings, caller: Principal) -> None:
    """Raise `SourceForbidden` for a place that the key may not read, or where Spool stores its own data."""
    if any(is_below(uri, own) for own in own_places(settings)):
        raise SourceForbidden("Spool stores its own data there; name a source elsewhere.")
    if not caller.reaches(uri):
        raise SourceForbidden("This key may not read sources there.")


def own_places(settings: Settings) -> tuple[str, ...]:
    """Where Spool stores its own data."""
    return _own_places(settings.own_folders, settings.objects)


@cache  # called for each line of a manifest
def _own_places(folders: tuple[Path, ...], objects: str) -> tuple[str, ...]:
    """Where uploads and transcripts of every project are: a source there would show them to other
    projects."""
    kept = tuple(_resolve(folder).as_uri() for folder in folders)
    return kept if objects.startswith("file://") else (*kept, objects.rstrip("/"))


def _source(address: str, settings: Settings) -> Source:
    if not address.isprintable() or address != address.strip():
        raise InvalidRequest("A source must not contain control characters or begin or end with a space.")
    scheme, colon, _ = address.partition("://")
    if not colon:
        sentence = "A source is an address that begins with s3://, https:// or file://."
        if address.startswith("/"):
            sentence += f" Write this path as {Path(address).as_uri()}."
        raise InvalidRequest(sentence)
    match scheme.lower():
        case "s3":
            return _s3_source(address)
        case "https":
            return _web_source(address, settings.source_addresses)
        case "file":
            return _file_source(address, settings.source_roots)
    raise SourceForbidden(f"{scheme}:// sources are not allowed; s3://, https:// and file:// are.")


def is_bucket(name: str) -> bool:
    """Whether a bucket may have this name."""
    return _BUCKET.fullmatch(name) is not None


def source_name(source: Source) -> str:
    """The display name of the recording: the last part of its address."""
    path = source.uri.partition("://")[2] if source.kind == "s3" else unquote(urlsplit(source.uri).path)
    name = "".join(char if char.isprintable() else "\ufffd" for char in path.rstrip("/").rpartition("/")[2])
    return name[:200] or source.kind


def file_path(source: Source) -> Path:
    """Where the file of a checked `file` source lies."""
    return Path(unquote(urlsplit(source.uri).path, errors="surrogateescape"))


def _s3_source(address: str) -> Source:
    # An S3 key is raw text: `?`, `#` and `%` in it mean themselves, so no URL parser may touch it.
    bucket, _, key = address.partition("://")[2].partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise InvalidRequest(f"{bucket!r} is not the name of an S3 bucket.")
    if not key or key.startswith("/") or key.endswith("/"):
        raise InvalidRequest(
            "An S3 source names one object, as s3://bucket/key. A batch takes all that is below a prefix."
        )
    if len(key.encode()) > _S3_KEY_BYTES:
        raise InvalidRequest(f"An S3 key has at most {_S3_KEY_BYTES} bytes.")
    return Source(kind="s3", uri=f"s3://{bucket}/{key}", size=None, etag=None)


def _web_source(address: str, rules: AddressRules) -> Source:
    try:
        parts = split_address(address)
        rules.check_name(parts.hostname or "")
    except ValueError as error:
        raise InvalidRequest(f"The source {error}") from None
    except HostRefused as error:
        # The worker checks what the name resolves to: it may change, and differ between machines.
        raise SourceForbidden(str(error)) from None
    return Source(kind="https", uri=parts.geturl(), size=None, etag=None)


def _file_source(address: str, roots: tuple[Path, ...]) -> Source:
    host, slash, rest = address.partition("://")[2].partition("/")
    if host not in ("", "localhost") or not slash:
        raise InvalidRequest("A file source is file:///absolute/path, with no host.")
    if "?" in rest or "#" in rest:
        raise InvalidRequest("In a file source write ? as %3F and # as %23.")
    text = unquote("/" + rest, errors="surrogateescape")
    if "\x00" in text:
        raise InvalidRequest("A path must not contain a zero byte.")
    path = _resolve(Path(text))
    if not any(path.is_relative_to(_resolve(root)) for root in roots):
        # Worded alike whether or not the file exists, so that nothing outside the roots is revealed.
        raise outside_roots(text)
    try:
        facts = path.stat() if path.is_file() else None
    except OSError:
        facts = None
    if facts is None:
        raise SourceMissing(f"There is no file {text}.")
    return Source(kind="file", uri=path.as_uri(), size=facts.st_size, etag=file_version(facts))


def file_version(facts: os.stat_result) -> str:
    """What changes with a file's content: its size and time of change."""
    return f"{facts.st_size:x}-{facts.st_mtime_ns:x}"


def outside_roots(path: str) -> SourceForbidden:
    """The error for a folder or file outside the allowed folders."""
    return SourceForbidden(
        f"{path} is not under a folder that this server may read from. Upload the recording, or have the "
        "operator add its folder to SPOOL_SOURCE_ROOTS (on one machine: `spool up --sources FOLDER`)."
    )


def _resolve(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        raise SourceForbidden("The path cannot be followed to its end.") from None
