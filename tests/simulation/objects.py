"""The object store of a simulation: in memory, and at times slow, refusing, full, or cut within a write."""

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from spool import clock
from spool.objects.base import NewObject, ObjectInfo, check_key
from tests.simulation.product import Product
from tests.simulation.scheduler import Scheduler


class Objects:
    """What is stored, the same for all processes: bytes, time and SHA-256. `refused`: the share of operations
    that fail."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.stored: dict[str, tuple[bytes, datetime, str]] = {}
        self.refused = 0.0
        self.full = False


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

    def receiver(self) -> None:
        return

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
        return ObjectInfo(key, len(data), digest[:16], digest, modified.astimezone(UTC))

    def _answer(self) -> None:
        scheduler = self._objects.scheduler
        scheduler.sleep(scheduler.random.uniform(0.001, 0.02))
        if self._objects.refused and scheduler.random.random() < self._objects.refused:
            raise self._errors.StorageError("The object store does not answer.")
