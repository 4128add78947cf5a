"""Lists the files under a prefix or in a folder, recordings and others, one at a time.

If its name doesn't help, a file is judged by its first kilobytes (`spool.recordings.probe`). Also derives
custom ids from paths.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote_to_bytes

from api.auth.principal import Principal
from api.submission.connections import S3Access
from api.submission.sources import check_place, check_source, file_version, outside_roots
from spool.domain.jobs import Source
from spool.domain.manifest import SkippedFile, in_blocks
from spool.errors import (
    CredentialsRefused,
    InvalidRequest,
    NotFound,
    SourceError,
    SourceForbidden,
    SourceMissing,
)
from spool.objects import ObjectInfo, ObjectStore
from spool.recordings.folder import skip_reason, walk_files
from spool.recordings.probe import HIDDEN, PROBE_BYTES, has_recordings_name, is_hidden, reason_to_skip
from spool.settings import Settings

CUSTOM_ID = 200
_PROBES = 16
PROBED_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class ListedRecording:
    """A recording: its path below the address, and its source, or why it cannot be one."""

    place: str
    source: Source | SourceError | InvalidRequest


Judgement = Source | SkippedFile | SourceError | InvalidRequest


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that was listed but not read: its path below the address, what changes with its content
    (`version`: an object's ETag, a file's size and time of change)."""

    place: str
    version: str
    is_quick: bool
    """Whether the name is enough to tell what the file is."""
    judge: Callable[[], Judgement]
    """Returns the source, or why the file is none."""


def list_recordings(
    address: str, access: S3Access, caller: Principal
) -> Iterator[ListedRecording | SkippedFile]:
    """Every recording below `address` (`s3://bucket/prefix/` or `file:///folder/`), and every other file.

    Raises InvalidRequest, SourceForbidden, SourceMissing or StorageError.
    """
    for block in in_blocks(list_candidates(address, access, caller), PROBED_AT_ONCE):
        for candidate, judged in judge_all(block):
            if isinstance(judged, SkippedFile):
                yield judged
            else:
                yield ListedRecording(candidate.place, judged)


def list_candidates(address: str, access: S3Access, caller: Principal) -> Iterator[Candidate]:
    """Every file below `address`, unread. Raises as `list_recordings` does."""
    settings = access.settings
    if address.startswith("s3://"):
        check_place(f"{address.rstrip('/')}/", settings, caller)
        access.check(f"{address.rstrip('/')}/")
        yield from _list_objects(address, access, caller)
    elif address.startswith("file://"):
        folder = folder_of(address, settings.source_roots)
        check_place(f"{folder.as_uri()}/", settings, caller)
        for path, unread in walk_files(folder):
            yield _file(folder, path, unread, settings, caller)
    else:
        raise InvalidRequest("A batch is listed from s3://bucket/prefix/ or file:///folder/.")


def judge_all(block: Sequence[Candidate]) -> Iterator[tuple[Candidate, Judgement]]:
    """What each candidate is, in order; several files are read at a time."""
    if all(candidate.is_quick for candidate in block):
        yield from ((candidate, candidate.judge()) for candidate in block)
        return
    with ThreadPoolExecutor(_PROBES, thread_name_prefix="probe") as pool:
        yield from zip(block, pool.map(lambda candidate: candidate.judge(), block), strict=True)


def find_candidate(address: str, place: str, access: S3Access, caller: Principal) -> Candidate | None:
    """The object at `place` below an `s3://` address; None if there is none."""
    bucket, prefix, store = _open(address, access)
    item = store.head(place)
    return None if item is None else _object(bucket, prefix, store, item, access, caller)


def custom_id_of(place: str) -> str:
    """The path itself; if it is very long, its beginning and a digest of the whole."""
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


def _open(address: str, access: S3Access) -> tuple[str, str, ObjectStore]:
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    return bucket, prefix.strip("/"), access.store(bucket, prefix)


def _list_objects(address: str, access: S3Access, caller: Principal) -> Iterator[Candidate]:
    bucket, prefix, store = _open(address, access)
    try:
        for item in store.list():
            if item.key and not item.key.endswith("/"):
                yield _object(bucket, prefix, store, item, access, caller)
    except NotFound:
        raise SourceMissing(f"There is no bucket {bucket}.") from None
    except CredentialsRefused as error:
        # Whoever waits for the list is told at once; repeating the request would not help.
        if access.name is None:
            raise SourceForbidden(
                f"{error.message} Give the API credentials for S3, or name a connection."
            ) from None
        raise SourceForbidden(f"Connection {access.name}: {error.message}") from None


def _object(
    bucket: str, prefix: str, store: ObjectStore, item: ObjectInfo, access: S3Access, caller: Principal
) -> Candidate:
    def judge() -> Judgement:
        if reason := _reason(item.key, lambda: _first_bytes(store, item)):
            return SkippedFile(_printable(item.key), reason)
        full = "/".join(part for part in (prefix, item.key) if part)
        return _object_source(bucket, full, item, access, caller)

    is_quick = is_hidden(item.key.rpartition("/")[2]) or has_recordings_name(item.key)
    return Candidate(item.key, item.etag, is_quick, judge)


def _reason(place: str, head: Callable[[], bytes]) -> str | None:
    """Why the file at `place` is skipped, judging by its folders too."""
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
    bucket: str, key: str, item: ObjectInfo, access: S3Access, caller: Principal
) -> Source | SourceError | InvalidRequest:
    try:
        source = access.apply(check_source(f"s3://{bucket}/{key}", access.settings, caller))
    except (SourceError, InvalidRequest) as error:
        return error
    return replace(source, size=item.size, etag=item.etag)


def _file(folder: Path, path: Path, unread: str | None, settings: Settings, caller: Principal) -> Candidate:
    place = path.relative_to(folder).as_posix()

    def judge() -> Judgement:
        reason = unread or skip_reason(path)
        if reason is not None:
            return SkippedFile(_printable(place), reason)
        try:
            if not place.isprintable():
                raise InvalidRequest("The name holds control characters or is not UTF-8.")
            return check_source(path.as_uri(), settings, caller)
        except (SourceError, InvalidRequest) as error:
            return error

    version = ""
    if unread is None:
        # A link may lead nowhere, or the file be gone: judging it reports that.
        with contextlib.suppress(OSError):
            version = file_version(path.stat())
    # Local files are read one by one, since they are on the same disk.
    return Candidate(place if place.isprintable() else _printable(place), version, True, judge)
