"""Fetches a job's source to a file on this machine.

Handles the four kinds of source and how each may fail: a source that is missing, forbidden or changed fails
the job; a store or server that does not answer is retried; `worker.sources.shares` tells a missing file from
a share that this worker cannot reach.
"""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote_to_bytes, urlsplit

import httpx

from spool.domain.jobs import Source
from spool.errors import (
    CredentialsRefused,
    DiskFull,
    InvalidRequest,
    NotFound,
    ShareMissing,
    SourceChanged,
    SourceError,
    SourceForbidden,
    SourceMissing,
    SourceTooLarge,
    StorageError,
)
from spool.net.address_policy import AddressRules, HostRefused
from spool.objects import ObjectStore, s3_store
from spool.objects.integrity import verify_blocks
from spool.objects.s3_link import Link
from spool.settings import Settings
from worker.sources.https import download
from worker.sources.pace import Pace, PaceLimits, read_watched
from worker.sources.shares import Shares

# A disk or share is gone, and may come back.
_SHARE_LOST = {errno.EIO, errno.ESTALE, errno.ENXIO, errno.ENODEV, errno.EHOSTDOWN, errno.ETIMEDOUT}
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Sources:
    """Fetches sources into `folder`, a directory that belongs to this worker."""

    def __init__(
        self, settings: Settings, objects: ObjectStore, folder: Path, limits: PaceLimits | None = None
    ) -> None:
        """`limits`: how slow a source may be."""
        self._limits = limits or PaceLimits()
        self._settings = settings
        self._objects = objects
        self._folder = folder
        self.shares = Shares(settings.source_roots)

    @property
    def folder(self) -> Path:
        """Where copies are kept while they are needed."""
        return self._folder

    @contextlib.contextmanager
    def fetch(
        self,
        source: Source,
        name: str,
        check: Callable[[], None] = lambda: None,
        hashes: bytes | None = None,
        link: Link | None = None,
    ) -> Iterator[Path]:
        """The source as a local file while the block runs; a copy is removed afterwards.

        `name` is the recording's name in messages; `check` is called twice a second and for every block that
        arrives, and may raise to stop; `hashes` are those of an upload's blocks; `link` provides addresses
        for a source that is read through a connection. Raises SourceMissing, SourceForbidden, SourceChanged,
        SourceUnreachable, SourceError, and StorageError (DiskFull, ObjectDamaged), which is worth a retry.
        """
        if source.kind == "file":
            yield self._file(source, name)
            return
        with _name_disk_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="source-") as own:
            target = Path(own) / "source"
            with _name_disk_errors(self._folder):
                floor = self._settings.disk_floor_bytes
                copy = _Copy(target, name, check, self._limit(source), floor, self._limits)
                copy.refuse_size(source.size)
                if source.kind == "upload":
                    self._upload(source, copy, hashes)
                elif source.kind == "s3":
                    self._s3(source, copy, link)
                else:
                    self._https(source, copy)
            yield target

    def _limit(self, source: Source) -> int:
        settings = self._settings
        return settings.source_max_bytes if source.kind in {"s3", "file"} else settings.upload_max_bytes

    def find_missing_share(self, source: Source, name: str) -> ShareMissing | None:
        """The error if the share of a `file://` source is not there now, which explains every other error of
        reading it."""
        path = _path_of(source)
        for find_place in (_normal, Path.resolve):  # the second does not return from a dead share
            root = self.shares.find_root(find_place(path))
            if root is not None and (problem := self.shares.root_problem(root)) is not None:
                return ShareMissing(f"{name}: the recording cannot be read: {problem}.", root)
        return None

    def _file(self, source: Source, name: str) -> Path:
        """The path of a `file://` source. Links are resolved: the rules apply to their targets."""
        path = _path_of(source)
        if self.shares.find_root(_normal(path)) is not None:
            self.shares.require_root(_normal(path), path, name)  # first: a dead share holds whoever resolves
        try:
            real = path.resolve(strict=True)
        except (FileNotFoundError, NotADirectoryError):
            self._require_root(path.resolve(), path, name)
            self.shares.raise_missing(path.resolve(), path, name)
        except (OSError, RuntimeError) as error:  # RuntimeError: a symlink loop
            self._require_root(_normal(path), path, name)
            if isinstance(error, OSError) and error.errno in _SHARE_LOST:
                raise StorageError(f"{name}: {path} cannot be reached: {_reason(error)}.") from error
            raise SourceForbidden(f"{name}: {path} cannot be reached: {_reason(error)}.") from error
        self._require_root(real, path, name)
        if any(real.is_relative_to(own.resolve()) for own in self._settings.own_folders):
            raise SourceForbidden(f"{name}: {path} is in a folder of Spool's own.")
        if not real.is_file():
            raise SourceForbidden(f"{name}: {path} is not a regular file.")
        size = real.stat().st_size
        if size > self._limit(source):
            raise _too_large(name, self._limit(source))
        if source.size is not None and size != source.size:
            raise SourceChanged(
                f"{name}: {path} had {source.size} bytes when it was submitted and has changed."
            )
        return real

    def _require_root(self, real: Path, path: Path, name: str) -> None:
        """Check that the recording at `real`, submitted as `path`, lies under a root that is there. A link
        that leads out of the roots is the recording's fault, not that of the worker's settings."""
        if self.shares.find_root(real) is None and self.shares.find_root(_normal(path)) is not None:
            raise SourceForbidden(f"{name}: {path} is a link out of the folders that this worker may read.")
        self.shares.require_root(real, path, name)

    def _upload(self, source: Source, copy: "_Copy", hashes: bytes | None) -> None:
        try:
            copy.object(self._objects, source.uri, source.etag, hashes)
        except NotFound:
            raise SourceMissing(f"{copy.name}: the uploaded recording is gone.") from None

    def _s3(self, source: Source, copy: "_Copy", link: Link | None) -> None:
        parts = urlsplit(source.uri, allow_fragments=False)
        bucket, key = parts.netloc, parts.path.lstrip("/")
        if parts.query:  # a key may hold a question mark
            key += f"?{parts.query}"
        if not bucket or not key:
            raise InvalidRequest(f"{copy.name}: {source.uri} does not name a bucket and a key.")
        try:
            copy.object(s3_store(self._settings, bucket, link=link), key, source.etag)
        except CredentialsRefused as error:
            if source.connection is None:  # the operator's credentials, which may be corrected before a retry
                raise
            raise SourceForbidden(f"{copy.name}: connection {source.connection}: {error.message}") from None
        except NotFound:
            raise SourceMissing(f"{copy.name}: there is no object {source.uri}.") from None

    def _https(self, source: Source, copy: "_Copy") -> None:
        name, address = copy.name, _without_secrets(source.uri)

        def require_https(request: httpx.Request) -> None:
            if request.url.scheme != "https":
                raise SourceForbidden(f"{name}: {address} redirects to an address without https.")

        try:
            copy.https(
                source.uri,
                self._settings.source_addresses,
                require_https,
                lambda response: _check_response(response, name, address),
            )
        except HostRefused as error:
            raise SourceForbidden(f"{name}: {error}") from None
        except httpx.TooManyRedirects:
            raise SourceError(f"{name}: {address} redirects in a loop.") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError):
            # httpx lets the IDNAError of a name such as `xn--` through, which a redirect may lead to.
            raise SourceError(f"{name}: {address} is not an address that can be fetched.") from None
        except httpx.HTTPError as error:
            raise StorageError(f"{name}: {address} does not answer ({type(error).__name__}).") from error


def _normal(path: Path) -> Path:
    """The path without `..`, read from its text alone."""
    return Path(os.path.normpath(path))


def _path_of(source: Source) -> Path:
    parts = urlsplit(source.uri)
    # Decoded through bytes, since a file name need not be UTF-8.
    return Path(os.fsdecode(unquote_to_bytes(parts.path)) if parts.scheme == "file" else source.uri)


def _check_response(response: httpx.Response, name: str, address: str) -> None:
    status = response.status_code
    if status in {404, 410}:
        raise SourceMissing(f"{name}: {address} does not exist (HTTP {status}).")
    if status in {401, 403}:
        raise SourceForbidden(f"{name}: {address} refuses access (HTTP {status}).")
    if status == 429 or status >= 500:
        raise StorageError(f"{name}: {address} answered HTTP {status}.")
    if status != 200:
        raise SourceError(f"{name}: {address} answered HTTP {status} instead of the recording.")


@dataclass(frozen=True, slots=True)
class _Copy:
    """Copies a recording to `target`: at most `limit` bytes, whatever size was announced, leaving `floor`
    bytes of the disk free."""

    target: Path
    name: str
    check: Callable[[], None]
    limit: int
    floor: int
    limits: PaceLimits = field(default_factory=PaceLimits)

    def refuse_size(self, size: int | None) -> None:
        """Raise SourceTooLarge or DiskFull before anything is copied, if the size is known."""
        if size is None:
            return
        if size > self.limit:
            raise _too_large(self.name, self.limit)
        self._refuse_full_disk(size)

    def object(self, store: ObjectStore, key: str, etag: str | None, hashes: bytes | None = None) -> None:
        """Copy an object and verify its blocks by `hashes`. Raises NotFound, SourceChanged, ObjectDamaged."""
        blocks = read_watched(lambda: store.open_to_copy(key, etag), self.check, self._pace())
        with self.target.open("wb") as file, contextlib.closing(blocks):
            for block in blocks if hashes is None else verify_blocks(blocks, hashes, key):
                self._write(file, block)

    def https(
        self,
        address: str,
        rules: AddressRules,
        on_request: Callable[[httpx.Request], None],
        check_answer: Callable[[httpx.Response], None],
    ) -> None:
        """Copy the response body from `address`; its length must be as announced."""
        announced = ""

        def on_response(response: httpx.Response) -> None:
            nonlocal announced
            check_answer(response)
            announced = response.headers.get("content-length", "")

        with self.target.open("wb") as file:
            download(
                address,
                rules,
                self.check,
                self._pace(),
                on_request=on_request,
                on_response=on_response,
                on_block=lambda block: self._write(file, block),
            )
            size = file.tell()
        if announced.isdigit() and size != int(announced):
            raise StorageError(f"{self.name}: the response ended after {size} of {announced} bytes.")

    def _pace(self) -> Pace:
        return Pace(self.name, self.limits)

    def _write(self, file: BinaryIO, block: bytes) -> None:
        if file.tell() + len(block) > self.limit:
            raise _too_large(self.name, self.limit)
        self._refuse_full_disk(len(block))
        file.write(block)

    def _refuse_full_disk(self, size: int) -> None:
        if shutil.disk_usage(self.target.parent).free - size < self.floor:
            raise DiskFull(f"{self.name}: no space is left for the recording ({self.floor} bytes stay free).")


def _too_large(name: str, limit: int) -> SourceTooLarge:
    return SourceTooLarge(f"{name}: the recording is larger than the limit of {limit} bytes.")


@contextlib.contextmanager
def _name_disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise DiskFull(f"No space is left in {folder} for the recording.") from error
        raise StorageError(f"{folder} cannot be written: {_reason(error)}.") from error


def _reason(error: Exception) -> str:
    number = getattr(error, "errno", None)
    return os.strerror(number) if isinstance(number, int) else str(error)


def _without_secrets(address: str) -> str:
    """The address without user, password, query and fragment, where signed addresses carry their key."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"
