"""From a job's source to a file on this machine that the audio reader can open.

Knows the four kinds of source and how each may fail: what is gone, forbidden or changed fails the job at
once, a store or a server that does not answer is worth a retry. Knows no audio and no state of a job.
"""

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

import httpx

from spool.addresses import HostRefused
from spool.errors import (
    DiskFull,
    InvalidRequest,
    NotFound,
    SourceChanged,
    SourceError,
    SourceForbidden,
    SourceMissing,
    StorageError,
)
from spool.objects import ObjectStore, s3_store
from spool.settings import Settings
from spool.store.rows import Source
from worker.web import web_client

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Sources:
    """Fetches sources into `folder`, a directory of this worker's own on a disk with room."""

    def __init__(self, settings: Settings, objects: ObjectStore, folder: Path) -> None:
        self._settings = settings
        self._objects = objects
        self._folder = folder

    @contextlib.contextmanager
    def fetched(self, source: Source, name: str, check: Callable[[], None] = lambda: None) -> Iterator[Path]:
        """The source as a local file while the block runs; what was copied is removed after it.

        `name` is what messages call it; `check` is called while bytes arrive and may raise to stop. Raises
        SourceMissing, SourceForbidden, SourceChanged, SourceError, and StorageError or DiskFull, which may
        pass.
        """
        if source.kind == "file":
            yield self._file(source, name)
            return
        with _full_disk_is_named(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder, prefix="source-") as own:
            target = Path(own) / "source"
            with _full_disk_is_named(self._folder):
                if source.kind == "upload":
                    self._upload(source, name, target)
                elif source.kind == "s3":
                    self._s3(source, name, target)
                else:
                    self._https(source, name, target, check)
            yield target

    def _file(self, source: Source, name: str) -> Path:
        """A file where it lies. Links are resolved first: what counts is where the bytes are."""
        parts = urlsplit(source.uri)
        # Through bytes, since a name on disk need not be UTF-8; the address holds it percent-encoded.
        path = Path(os.fsdecode(unquote_to_bytes(parts.path)) if parts.scheme == "file" else source.uri)
        try:
            real = path.resolve(strict=True)
        except FileNotFoundError:
            raise SourceMissing(f"{name}: {path} is not there (any more).") from None
        except (OSError, RuntimeError) as error:  # RuntimeError: a circle of links
            raise SourceForbidden(f"{name}: {path} cannot be reached: {_reason(error)}.") from error
        if not any(real.is_relative_to(root) for root in self._settings.source_roots):
            raise SourceForbidden(f"{name}: {path} lies outside the folders that SPOOL_SOURCE_ROOTS allows.")
        if not real.is_file():
            raise SourceForbidden(f"{name}: {path} is not a regular file.")
        if source.size is not None and real.stat().st_size != source.size:
            raise SourceChanged(
                f"{name}: {path} had {source.size} bytes when it was submitted and has changed."
            )
        return real

    def _upload(self, source: Source, name: str, target: Path) -> None:
        try:
            self._objects.get_file(source.uri, target, source.etag)
        except NotFound:
            raise SourceMissing(f"{name}: the uploaded recording is gone.") from None

    def _s3(self, source: Source, name: str, target: Path) -> None:
        parts = urlsplit(source.uri, allow_fragments=False)
        bucket, key = parts.netloc, parts.path.lstrip("/")
        if parts.query:  # a key may hold a question mark
            key += f"?{parts.query}"
        if not bucket or not key:
            raise InvalidRequest(f"{name}: {source.uri} does not name a bucket and a key.")
        try:
            s3_store(self._settings, bucket).get_file(key, target, source.etag)
        except NotFound:
            raise SourceMissing(f"{name}: there is no object {source.uri}.") from None

    def _https(self, source: Source, name: str, target: Path, check: Callable[[], None]) -> None:
        address = _without_secrets(source.uri)

        def stay_with_tls(request: httpx.Request) -> None:
            if request.url.scheme != "https":
                raise SourceForbidden(f"{name}: {address} leads to an address without https.")

        try:
            with web_client(self._settings.source_addresses) as client:
                client.event_hooks = {"request": [stay_with_tls]}  # called for each redirect too
                with client.stream("GET", source.uri, headers={"Accept-Encoding": "identity"}) as response:
                    _refuse_bad_answer(response, name, address)
                    _copy_limited(response, target, self._settings.upload_max_bytes, name, check)
        except HostRefused as error:
            raise SourceForbidden(f"{name}: {error}") from None
        except httpx.TooManyRedirects:
            raise SourceError(f"{name}: {address} leads in a circle of redirects.") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise SourceError(f"{name}: {address} is not an address that can be fetched.") from None
        except httpx.HTTPError as error:
            raise StorageError(f"{name}: {address} does not answer ({type(error).__name__}).") from error


def _refuse_bad_answer(response: httpx.Response, name: str, address: str) -> None:
    status = response.status_code
    if status in {404, 410}:
        raise SourceMissing(f"{name}: {address} is not there (HTTP {status}).")
    if status in {401, 403}:
        raise SourceForbidden(f"{name}: {address} refuses access (HTTP {status}).")
    if status == 429 or status >= 500:
        raise StorageError(f"{name}: {address} answered HTTP {status}.")
    if status != 200:
        raise SourceError(f"{name}: {address} answered HTTP {status} instead of the recording.")


def _copy_limited(
    response: httpx.Response, target: Path, limit: int, name: str, check: Callable[[], None]
) -> None:
    """Copy the body, at most `limit` bytes whatever the server announced, and all that it announced."""
    announced = response.headers.get("content-length")
    size = 0
    with target.open("wb") as file:
        for block in response.iter_raw(1 << 20):
            check()
            size += len(block)
            if size > limit:
                raise SourceError(f"{name}: the recording is larger than the limit of {limit} bytes.")
            file.write(block)
    if announced is not None and announced.isdigit() and size != int(announced):
        raise StorageError(f"{name}: the answer ended after {size} of {announced} bytes.")


@contextlib.contextmanager
def _full_disk_is_named(folder: Path) -> Iterator[None]:
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
    """The address without user, password, query and fragment: signed addresses carry their key there."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"
