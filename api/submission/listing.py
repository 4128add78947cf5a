"""Lists the recordings under a prefix or in a folder, one after another, never all at once.

Symbolic links to directories are not followed, so there are no loops; a link to a file counts as the file it
leads to. Also derives a custom id from a path.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes

from api.auth.principal import Principal
from api.submission.sources import check_place, checked_source, outside_roots
from spool.domain.jobs import Source
from spool.domain.manifest import is_recording
from spool.errors import InvalidRequest, NotFound, SourceError, SourceForbidden, SourceMissing
from spool.objects import ObjectInfo, s3_store
from spool.settings import Settings

CUSTOM_ID = 200


@dataclass(frozen=True, slots=True)
class Listed:
    """A recording: its path below the address, and its source, or why it cannot be one."""

    place: str
    source: Source | SourceError | InvalidRequest


def listed(address: str, settings: Settings, caller: Principal) -> Iterator[Listed]:
    """Every recording below `address` (`s3://bucket/prefix/` or `file:///folder/`).

    Raises InvalidRequest, SourceForbidden, SourceMissing or StorageError.
    """
    if address.startswith("s3://"):
        check_place(f"{address.rstrip('/')}/", settings, caller)
        yield from _objects(address, settings, caller)
    elif address.startswith("file://"):
        folder = folder_of(address, settings.source_roots)
        check_place(f"{folder.as_uri()}/", settings, caller)
        yield from _files(folder, settings, caller)
    else:
        raise InvalidRequest("A batch is listed from s3://bucket/prefix/ or file:///folder/.")


def custom_id_of(place: str) -> str:
    """The path itself; of a very long one the beginning and a digest of the whole."""
    if len(place) <= CUSTOM_ID:
        return place
    digest = hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()[:32]
    return f"{place[: CUSTOM_ID - len(digest) - 1]}~{digest}"


def folder_of(address: str, roots: tuple[Path, ...]) -> Path:
    """The folder, with links followed. Raises SourceForbidden and SourceMissing."""
    host, slash, rest = address.removeprefix("file://").partition("/")
    if host not in ("", "localhost") or not slash or "?" in rest or "#" in rest:
        raise InvalidRequest("A folder is file:///absolute/path/, with no host, ? or #.")
    text = os.fsdecode(unquote_to_bytes("/" + rest))
    if "\x00" in text:
        raise InvalidRequest("A path must not contain a zero byte.")
    try:
        path = Path(text).resolve()
    except (OSError, RuntimeError):
        raise SourceForbidden("The path cannot be followed to its end.") from None
    if not any(path.is_relative_to(root) for root in roots):
        raise outside_roots(text)
    if not path.is_dir():
        raise SourceMissing(f"There is no folder {text}.")
    return path


def _objects(address: str, settings: Settings, caller: Principal) -> Iterator[Listed]:
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    try:
        for item in s3_store(settings, bucket, prefix).list():
            if not is_recording(item.key):
                continue
            full = "/".join(part for part in (prefix.strip("/"), item.key) if part)
            yield Listed(item.key, _object_source(bucket, full, item, settings, caller))
    except NotFound:
        raise SourceMissing(f"There is no bucket {bucket}.") from None


def _object_source(
    bucket: str, key: str, item: ObjectInfo, settings: Settings, caller: Principal
) -> Source | SourceError | InvalidRequest:
    try:
        source = checked_source(f"s3://{bucket}/{key}", settings, caller)
    except (SourceError, InvalidRequest) as error:
        return error
    return Source(kind="s3", uri=source.uri, size=item.size, etag=item.etag)


def _files(folder: Path, settings: Settings, caller: Principal) -> Iterator[Listed]:
    for path in _walked(folder):
        place = path.relative_to(folder).as_posix()
        try:
            if not place.isprintable():
                raise InvalidRequest("The name holds control characters or is not UTF-8.")
            yield Listed(place, checked_source(path.as_uri(), settings, caller))
        except (SourceError, InvalidRequest) as error:
            yield Listed("".join(c if c.isprintable() else "\ufffd" for c in place), error)


def _walked(folder: Path) -> Iterator[Path]:
    """Recordings in order of their names, directory by directory."""
    waiting = [folder]
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                ordered = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise SourceForbidden(f"{directory} cannot be listed: {error.strerror}.") from None
        waiting += [directory / e.name for e in reversed(ordered) if e.is_dir(follow_symlinks=False)]
        yield from (directory / e.name for e in ordered if is_recording(e.name) and not e.is_dir())
