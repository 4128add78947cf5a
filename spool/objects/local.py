"""Objects as files below one directory.

A write goes to a temporary file beside the tree, is synced to disk and then renamed into place, so a reader
sees the old bytes or the new ones, and a crash leaves at worst a temporary file. Keys become paths only after
`check_key`; a path that links out of the root is refused.
"""

import errno
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from spool.errors import DiskFull, InvalidRequest, NotFound, SourceChanged, StorageError
from spool.objects.base import NewObject, ObjectInfo, check_key
from spool.settings.home import FOLDER_MODE

BLOCK = 1024 * 1024
TEMPORARY = ".tmp"  # no key part starts with a dot, so no key reaches in here
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class FolderStore:
    """An `ObjectStore` in a folder, made on the first write. `content_type` is not kept."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def __repr__(self) -> str:
        return f"FolderStore({str(self.root)!r})"

    def put_file(self, key: str, path: Path, content_type: str = "") -> ObjectInfo:  # noqa: ARG002 - not kept
        """Store the file's bytes under `key`."""
        with storage_errors(f"{path}"), path.open("rb") as source:
            return self._put(key, source)

    def put_bytes(self, key: str, data: bytes, content_type: str = "") -> ObjectInfo:  # noqa: ARG002 - not kept
        """Store `data` under `key`."""
        return self._put(key, BytesIO(data))

    def put_several(self, objects: Sequence[NewObject]) -> None:
        """Store these; a folder is synced once for all that come into it."""
        with storage_errors(objects[0].key if objects else "nothing"), ExitStack() as copies:
            renames = []
            for key, data, _ in objects:
                path = self._path(key)
                self._make_folder(path.parent)
                copy, _ = copies.enter_context(_write_synced(self._temporary(), BytesIO(data).read))
                renames.append((copy, path))
            for copy, path in renames:
                copy.replace(path)
            for folder in {path.parent for _, path in renames}:
                _sync_folder(folder)

    def open(self, key: str, etag: str | None = None, start: int = 0) -> BinaryIO:
        """The object's bytes from `start` as a stream."""
        path = self._path(key)
        with storage_errors(key):
            try:
                stream = path.open("rb")
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                raise NotFound(f"There is no object {key}.") from None
            if etag is not None and _etag(os.fstat(stream.fileno())) != etag:
                stream.close()
                raise SourceChanged(f"The object {key} has changed.")
            stream.seek(start)
            return stream

    def open_to_copy(self, key: str, etag: str | None = None) -> BinaryIO:
        """The object's bytes as a stream."""
        return self.open(key, etag)

    def get_file(self, key: str, path: Path, etag: str | None = None) -> ObjectInfo:
        """Write the object's bytes to `path`, whole or not at all."""
        with self.open(key, etag) as source, storage_errors(key):
            facts = os.fstat(source.fileno())
            digest = write_whole(path, path.parent, lambda: source.read(BLOCK))
        return ObjectInfo(key, facts.st_size, _etag(facts), digest)

    def head(self, key: str) -> ObjectInfo | None:
        """What is stored under `key`; its sha256 is not kept."""
        path = self._path(key)
        with storage_errors(key):
            try:
                facts = path.stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
            return ObjectInfo(key, facts.st_size, _etag(facts)) if path.is_file() else None

    def public_url(self, key: str, content_type: str, seconds: int) -> str | None:  # noqa: ARG002
        """None: nobody else reads the folder."""
        return None

    def receiver(self) -> None:
        """None: nobody else writes into the folder."""
        return

    def delete(self, key: str) -> None:
        """Remove the object, and the folders that it leaves empty."""
        path = self._path(key)
        with storage_errors(key):
            with suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
            for folder in path.parents:
                if folder == self.root:
                    break
                try:
                    folder.rmdir()
                except OSError:  # not empty, or being filled again
                    break

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """All objects whose key starts with `prefix`, by key."""
        start, _, _ = prefix.rpartition("/")
        if start:
            check_key(start)
        with storage_errors("the object store's folder"):
            yield from self._walk(start, prefix)

    def _walk(self, folder: str, prefix: str) -> Iterator[ObjectInfo]:
        """Depth first, one folder's names in memory at a time.

        A folder comes where its name with a slash would: by key, `a-b` is before `a/b`.
        """
        base = f"{folder}/" if folder else ""
        try:
            with os.scandir(self.root / folder) as entries:
                names = sorted(
                    f"{base}{entry.name}/" if entry.is_dir(follow_symlinks=False) else f"{base}{entry.name}"
                    for entry in entries
                    if (base or entry.name != TEMPORARY) and not (entry.is_symlink() and entry.is_dir())
                )
        except (FileNotFoundError, NotADirectoryError):
            return  # it went away, or never was
        for key in names:
            if key.endswith("/"):
                if key.startswith(prefix) or prefix.startswith(key):
                    yield from self._walk(key[:-1], prefix)
            elif key.startswith(prefix):
                with suppress(FileNotFoundError):
                    facts = (self.root / key).stat()
                    modified = datetime.fromtimestamp(facts.st_mtime, UTC)
                    yield ObjectInfo(key, facts.st_size, _etag(facts), modified=modified)

    def check(self) -> None:
        """Write and remove a temporary file."""
        with storage_errors("the object store's folder"):
            folder = self._temporary()
            with tempfile.TemporaryFile(dir=folder) as probe:
                probe.write(b"spool")
                probe.flush()

    def _put(self, key: str, source: BinaryIO) -> ObjectInfo:
        path = self._path(key)
        with storage_errors(key):
            self._make_folder(path.parent)
            digest = write_whole(path, self._temporary(), lambda: source.read(BLOCK))
            facts = path.stat()
        return ObjectInfo(key, facts.st_size, _etag(facts), digest)

    def _temporary(self) -> Path:
        folder = self.root / TEMPORARY
        self._make_folder(folder)
        return folder

    def _make_folder(self, folder: Path) -> None:
        """Every folder from the root down is its user's alone, as `mkstemp` makes the files."""
        if folder.is_dir():
            return
        self.root.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        for part in (*reversed(folder.relative_to(self.root).parents), folder.relative_to(self.root)):
            (self.root / part).mkdir(mode=FOLDER_MODE, exist_ok=True)

    def _path(self, key: str) -> Path:
        path = self.root / check_key(key)
        if not path.parent.resolve().is_relative_to(self.root):
            raise InvalidRequest(f"The key {key!r} leads out of the object store.")
        return path


def write_whole(path: Path, temporary: Path, read: Callable[[], bytes]) -> str:
    """Write what `read` gives, until it gives nothing, to `path` by way of a file in `temporary`; its
    SHA-256.

    `temporary` has to be on the same file system. Raises OSError with `path` untouched.
    """
    with _write_synced(temporary, read) as (copy, digest):
        copy.replace(path)
    _sync_folder(path.parent)
    return digest


@contextmanager
def _write_synced(temporary: Path, read: Callable[[], bytes]) -> Iterator[tuple[Path, str]]:
    """A file in `temporary` with what `read` gives, on the disk, and its SHA-256; removed if the block
    fails."""
    digest = hashlib.sha256()
    handle, name = tempfile.mkstemp(dir=temporary, prefix=".spool-")
    try:
        with os.fdopen(handle, "wb") as target:
            while block := read():
                digest.update(block)
                target.write(block)
            target.flush()
            os.fsync(target.fileno())
        yield Path(name), digest.hexdigest()
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _etag(facts: os.stat_result) -> str:
    return f"{facts.st_ino:x}-{facts.st_size:x}-{facts.st_mtime_ns:x}"


@contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """File system failures as StorageError or DiskFull; `what` is named in the message."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFull(f"No space is left to store {what}.") from error
        raise StorageError(f"Storing or reading {what} failed: {error.strerror}.") from error
