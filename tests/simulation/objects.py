"""The object store of a simulation: in memory, and at times slow, refusing, full, or cut within a write."""

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from spool import clock
from spool.errors import NotFound
from spool.objects.base import NewObject, ObjectInfo, PartInfo, UnfinishedObject, check_key
from tests.simulation.product import Product
from tests.simulation.scheduler import Scheduler


class Objects:
    """What is stored, the same for all processes: bytes, time and SHA-256. `refused`: the share of operations
    that fail."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.stored: dict[str, tuple[bytes, datetime, str]] = {}
        self.unfinished: dict[str, tuple[str, datetime, dict[int, bytes]]] = {}
        """Uploads in parts, by id: the key, since when, and the parts."""
        self.begun = 0
        self.refused = 0.0
        self.full = False


def etag_of(sha256: str) -> str:
    """The ETag of an object with this SHA-256."""
    return sha256[:16]


class SimulatedStore:
    """An `ObjectStore`."""

    def __init__(self, objects: Objects, product: Product | None = None) -> None:
        """`product`: the version whose errors it raises."""
        self._objects, self._errors = objects, (product or Product()).errors

    def put_file(self, key: str, path: Path, content_type: str = "") -> ObjectInfo:
        return self.put_bytes(key, path.read_bytes(), content_type)

    def put_bytes(self, key: str, data: bytes, content_type: str = "") -> ObjectInfo:
        self._answer()
        if self._objects.full:
            raise self._errors.DiskFull("The object store is full.")
        self._objects.stored[check_key(key)] = data, clock.now(), hashlib.sha256(data).hexdigest()
        self._answer()  # it may be there although the answer is lost
        return self._info(key)

    def put_several(self, objects: Sequence[NewObject]) -> None:
        for key, data, content_type in objects:
            self.put_bytes(key, data, content_type)

    def open(self, key: str, etag: str | None = None, start: int = 0) -> BinaryIO:
        self._answer()
        if key not in self._objects.stored:
            raise self._errors.NotFound(f"There is no object {key}.")
        if etag is not None and etag != self._info(key).etag:
            raise self._errors.SourceChanged(f"The object {key} has changed.")
        return BytesIO(self._objects.stored[key][0][start:])

    def open_to_copy(self, key: str, etag: str | None = None) -> BinaryIO:
        return self.open(key, etag)

    def get_file(self, key: str, path: Path, etag: str | None = None) -> ObjectInfo:
        with self.open(key, etag) as source:
            path.write_bytes(source.read())
        return self._info(key)

    def head(self, key: str) -> ObjectInfo | None:
        self._answer()
        return self._info(key) if key in self._objects.stored else None

    def public_url(self, key: str, content_type: str, seconds: int) -> str | None:
        return None

    def receiver(self) -> "SimulatedReceiver":
        return SimulatedReceiver(self._objects)

    def delete(self, key: str) -> None:
        self._answer()
        self._objects.stored.pop(key, None)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self._answer()
        yield from [self._info(key) for key in sorted(self._objects.stored) if key.startswith(prefix)]

    def check(self) -> None:
        self._answer()

    def _info(self, key: str) -> ObjectInfo:
        data, modified, digest = self._objects.stored[key]
        return ObjectInfo(key, len(data), etag_of(digest), digest, modified.astimezone(UTC))

    def _answer(self) -> None:
        _answer(self._objects, self._errors)


class SimulatedReceiver:
    """A `Receiver`; `put` is what a client does at the address of a part."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def begin(self, key: str, content_type: str) -> str:
        self._answer()
        self._objects.begun += 1
        upload = f"multipart-{self._objects.begun}"
        self._objects.unfinished[upload] = key, clock.now(), {}
        self._answer()
        return upload

    def address(self, key: str, upload: str, number: int, size: int, seconds: int) -> str:
        return f"https://objects/{key}?upload={upload}&part={number}"

    def put(self, upload: str, number: int, data: bytes) -> None:
        """Send a part."""
        self._answer()
        self._find(upload)[number] = data
        self._answer()

    def parts(self, key: str, upload: str, after: int = 0, limit: int | None = None) -> Iterator[PartInfo]:
        self._answer()
        found = sorted((number, data) for number, data in self._find(upload).items() if number > after)
        for number, data in found[:limit]:
            yield PartInfo(number, len(data), hashlib.sha256(data).hexdigest()[:16])

    def join(self, key: str, upload: str, parts: Sequence[PartInfo]) -> None:
        self._answer()
        found = self._find(upload)
        data = b"".join(found[part.number] for part in parts)
        self._objects.stored[key] = data, clock.now(), hashlib.sha256(data).hexdigest()
        del self._objects.unfinished[upload]
        self._answer()  # it may be joined although the answer is lost

    def abort(self, key: str, upload: str) -> None:
        self._answer()
        self._find(upload)
        del self._objects.unfinished[upload]

    def list_unfinished(self, prefix: str) -> Iterator[UnfinishedObject]:
        self._answer()
        for upload, (key, begun, _) in sorted(self._objects.unfinished.items()):
            if key.startswith(prefix):
                yield UnfinishedObject(key, upload, begun.astimezone(UTC))

    def _find(self, upload: str) -> dict[int, bytes]:
        if upload not in self._objects.unfinished:
            raise NotFound(f"There is no upload {upload}.")
        return self._objects.unfinished[upload][2]

    def _answer(self) -> None:
        _answer(self._objects, Product().errors)


def _answer(objects: Objects, errors: Any) -> None:
    """Take a moment, and at times refuse."""
    scheduler = objects.scheduler
    scheduler.sleep(scheduler.random.uniform(0.001, 0.02))
    if objects.refused and scheduler.random.random() < objects.refused:
        raise errors.StorageError("The object store does not answer.")
