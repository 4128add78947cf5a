"""What an object store is: operations on keys, the same for a folder and for S3.

Writes are whole: an object is there with all its bytes or not at all, and a second write of a key replaces
the first. No correctness rests on conditional writes, which stores differ in. Knows no file system and no
network.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from spool.errors import InvalidRequest

KEY_BYTES = 1024
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=@ -]*")


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as it is stored. `etag` changes with the content; `sha256` (hex) is known when we wrote
    it, `modified` (aware, by the store's clock) when it was listed."""

    key: str
    size: int
    etag: str
    sha256: str | None = None
    modified: datetime | None = field(default=None, compare=False)


class NewObject(NamedTuple):
    """An object to be stored."""

    key: str
    data: bytes
    content_type: str = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class PartInfo:
    """A part that arrived: its number from 1, its bytes, and its ETag."""

    number: int
    size: int
    etag: str


@dataclass(frozen=True, slots=True)
class UnfinishedObject:
    """An upload in parts that has not become an object: `begun` is aware, by the store's clock."""

    key: str
    upload: str
    begun: datetime


class Receiver(Protocol):
    """Takes objects in parts that others send straight to the store, each to an address of its own.

    An upload is named by its key and the id that `begin` gave it. Every operation raises StorageError, and
    NotFound for an upload that was joined or dropped, or never was.
    """

    def begin(self, key: str, content_type: str) -> str:
        """The id of a new upload in parts."""

    def address(self, key: str, upload: str, number: int, size: int, seconds: int) -> str:
        """Where part `number` (from 1), of exactly `size` bytes, is to be PUT, for so many seconds."""

    def parts(self, key: str, upload: str, after: int = 0, limit: int | None = None) -> Iterator[PartInfo]:
        """Up to `limit` parts that arrived, by number, those with a number above `after`."""

    def join(self, key: str, upload: str, parts: Sequence[PartInfo]) -> None:
        """Make the object of its parts."""

    def abort(self, key: str, upload: str) -> None:
        """Drop the upload with its parts."""

    def list_unfinished(self, prefix: str) -> Iterator[UnfinishedObject]:
        """Every upload below `prefix` that was begun and neither joined nor dropped."""


class ObjectStore(Protocol):
    """Objects by key.

    Every operation raises StorageError when the store does not answer or refuses (DiskFull when it has no
    space), and InvalidRequest for a key that breaks the rules of `check_key`.
    """

    def put_file(self, key: str, path: Path, content_type: str = "application/octet-stream") -> ObjectInfo:
        """Store the file's bytes under `key`."""

    def put_bytes(self, key: str, data: bytes, content_type: str = "application/octet-stream") -> ObjectInfo:
        """Store `data` under `key`."""

    def put_several(self, objects: Sequence["NewObject"]) -> None:
        """Store these, each whole or not at all, in any order; on return all are there to stay."""

    def open(self, key: str, etag: str | None = None, start: int = 0) -> BinaryIO:
        """The object's bytes from `start` (less than its size) as a stream, read in order; close it.

        Raises NotFound, and SourceChanged when an `etag` is given and the object has another.
        """

    def open_to_copy(self, key: str, etag: str | None = None) -> BinaryIO:
        """Like `open`, for whoever reads to the end: large objects may come over several connections."""

    def get_file(self, key: str, path: Path, etag: str | None = None) -> ObjectInfo:
        """Write the object's bytes to `path`, whole or not at all. Raises NotFound and SourceChanged."""

    def head(self, key: str) -> ObjectInfo | None:
        """What is stored under `key`; None when nothing is."""

    def public_url(self, key: str, content_type: str, seconds: int) -> str | None:
        """An address at which anybody who has it may read the object for so long, as this type; None where
        the store has none."""

    def receiver(self) -> Receiver | None:
        """Takes objects in parts; None if nobody else reaches the store."""

    def delete(self, key: str) -> None:
        """Remove the object; no error when there is none."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """All objects whose key starts with `prefix`, by key."""

    def check(self) -> None:
        """Raise StorageError if the store does not answer."""


def check_key(key: str) -> str:
    """The key, if it is made of plain path parts that no store reads in a way of its own. Raises
    InvalidRequest."""
    parts = key.split("/")
    if len(key.encode()) > KEY_BYTES or not all(_PART.fullmatch(part) for part in parts):
        raise InvalidRequest(f"{key[:200]!r} cannot be the key of an object.")
    return key
