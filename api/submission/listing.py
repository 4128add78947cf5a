"""Lists what is under a prefix or in a folder, recordings and others, one after another, never all at once.

A file whose name is not that of a recording is judged by its first kilobytes (`spool.recordings.probe`).

Also derives a custom id from a path.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes

from api.auth.principal import Principal
from api.submission.sources import check_place, checked_source, outside_roots
from spool.domain.jobs import Source
from spool.domain.manifest import SkippedFile, in_blocks
from spool.errors import InvalidRequest, NotFound, SourceError, SourceForbidden, SourceMissing
from spool.objects import ObjectInfo, ObjectStore, s3_store
from spool.recordings.folder import walk
from spool.recordings.probe import (
    HIDDEN,
    PROBE_BYTES,
    has_recordings_name,
    is_hidden,
    reason_to_skip,
)
from spool.settings import Settings

CUSTOM_ID = 200
_PROBES = 16
_PROBED_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Listed:
    """A recording: its path below the address, and its source, or why it cannot be one."""

    place: str
    source: Source | SourceError | InvalidRequest


def listed(address: str, settings: Settings, caller: Principal) -> Iterator[Listed | SkippedFile]:
    """Every recording below `address` (`s3://bucket/prefix/` or `file:///folder/`), and every other file.

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


def _objects(address: str, settings: Settings, caller: Principal) -> Iterator[Listed | SkippedFile]:
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    store = s3_store(settings, bucket, prefix)

    def judge(item: ObjectInfo) -> Listed | SkippedFile:
        if reason := _reason(item.key, lambda: _first_bytes(store, item)):
            return SkippedFile(_printable(item.key), reason)
        full = "/".join(part for part in (prefix.strip("/"), item.key) if part)
        return Listed(item.key, _object_source(bucket, full, item, settings, caller))

    try:
        with ThreadPoolExecutor(_PROBES, thread_name_prefix="probe") as pool:
            for block in in_blocks(store.list(), _PROBED_AT_ONCE):
                probed = [item for item in block if item.key and not item.key.endswith("/")]
                quick = all(
                    is_hidden(item.key.rpartition("/")[2]) or has_recordings_name(item.key) for item in probed
                )
                yield from map(judge, probed) if quick else pool.map(judge, probed)
    except NotFound:
        raise SourceMissing(f"There is no bucket {bucket}.") from None


def _reason(place: str, head: Callable[[], bytes]) -> str | None:
    """Why the file at `place` is skipped, its folders included."""
    *folders, name = place.split("/")
    return HIDDEN if any(map(is_hidden, folders)) else reason_to_skip(name, head)


def _first_bytes(store: ObjectStore, item: ObjectInfo) -> bytes:
    if not item.size:
        return b""
    with store.open(item.key) as stream:
        return stream.read(PROBE_BYTES)


def _printable(place: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in place)


def _object_source(
    bucket: str, key: str, item: ObjectInfo, settings: Settings, caller: Principal
) -> Source | SourceError | InvalidRequest:
    try:
        source = checked_source(f"s3://{bucket}/{key}", settings, caller)
    except (SourceError, InvalidRequest) as error:
        return error
    return Source(kind="s3", uri=source.uri, size=item.size, etag=item.etag)


def _files(folder: Path, settings: Settings, caller: Principal) -> Iterator[Listed | SkippedFile]:
    for path, reason in walk(folder):
        place = path.relative_to(folder).as_posix()
        if reason is not None:
            yield SkippedFile(_printable(place), reason)
            continue
        try:
            if not place.isprintable():
                raise InvalidRequest("The name holds control characters or is not UTF-8.")
            yield Listed(place, checked_source(path.as_uri(), settings, caller))
        except (SourceError, InvalidRequest) as error:
            yield Listed(_printable(place), error)
