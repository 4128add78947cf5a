"""A large object read from its beginning to its end over several connections, by boto3's transfer manager.

The bytes come out in order, so whoever reads hashes and limits them as those of a single stream. Each ranged
GET is pinned to the ETag of the first answer. Servers send no checksum with a range (S3 keeps them of the
object and of its multipart parts, which our ranges aren't), so botocore verifies none: the checksum of the
whole object, which the first answer named, is held against the bytes that come out here.
"""

import base64
import hashlib
import io
import queue
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from boto3.s3.transfer import TransferConfig, create_transfer_manager
from s3transfer.subscribers import BaseSubscriber

from spool import clock
from spool.errors import ObjectDamaged, SourceChanged, StorageError
from spool.objects.s3_errors import s3_errors

PARALLEL_BYTES = 32 << 20
"""The least size of an object that is worth more than one connection."""
PART_BYTES = 8 << 20
CONNECTIONS = 4
PARTS_AHEAD = 4
"""Parts in memory at once; a worker holds so many for each recording that it fetches."""
_READ_BYTES = 64 << 10  # asked of a connection at once, so that a slow one still shows that it moves
_BLOCKS_AHEAD = 16
_POLL_SECONDS = 0.5


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def digest(self) -> bytes: ...


class _Crc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


# Those that botocore verifies without its C library.
_CHECKSUMS: Mapping[str, Callable[[], _Digest]] = {
    "ChecksumCRC32": _Crc32,
    "ChecksumSHA1": hashlib.sha1,
    "ChecksumSHA256": hashlib.sha256,
}


@dataclass(frozen=True, slots=True)
class PinnedObject:
    """An object as its first answer described it. `key` is the bucket's, `name` what messages call it."""

    bucket: str
    key: str
    name: str
    size: int
    etag: str
    checksums: Mapping[str, str]
    """The answer's fields with checksums (`ChecksumCRC32` and others), in base64."""


class PartsReader(io.RawIOBase):
    """The object's bytes in order.

    Reading raises StorageError, SourceChanged, SourceForbidden, NotFound and ObjectDamaged.
    """

    def __init__(self, client: Any, pinned: PinnedObject) -> None:  # noqa: ANN401 - boto3 makes its clients at run time
        super().__init__()
        self._pinned = pinned
        self._sink = _Sink()
        self._client = _PinningClient(client, pinned, self._sink.stopped)
        self._held = b""
        self._offset = 0
        self._ended = False
        self._checks = [
            (base64.b64decode(value), _CHECKSUMS[name]())
            for name, value in pinned.checksums.items()
            if name in _CHECKSUMS and "-" not in value  # with one: a checksum of checksums
        ]
        config = TransferConfig(
            multipart_threshold=PART_BYTES,
            multipart_chunksize=PART_BYTES,
            max_concurrency=CONNECTIONS,
            io_chunksize=_READ_BYTES,
            max_io_queue=_BLOCKS_AHEAD,
            preferred_transfer_client="classic",  # the one whose requests we see
        )
        config.max_in_memory_download_chunks = PARTS_AHEAD
        self._manager = create_transfer_manager(self._client, config)
        self._future = self._manager.download(
            pinned.bucket, pinned.key, self._sink, subscribers=[_Described(pinned, self._sink)]
        )

    def readable(self) -> bool:
        """True: `io.BufferedReader` asks."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        """The next bytes; 0 at the end, once the object's checksum is right."""
        if not self._held and not self._ended:
            self._held = self._next_block()
            self._offset += len(self._held)
            for _, digest in self._checks:
                digest.update(self._held)
            if not self._held:
                self._check_end()
                self._ended = True
        block, self._held = self._held[: len(buffer)], self._held[len(buffer) :]
        buffer[: len(block)] = block
        return len(block)

    def _next_block(self) -> bytes:
        while not self._sink.stopped.is_set():
            with suppress(queue.Empty):
                block = self._sink.blocks.get(timeout=_POLL_SECONDS)
                if block is not None:
                    return block
                with s3_errors(self._pinned.name):
                    self._future.result()
                return b""
        raise StorageError(f"Reading {self._pinned.name} was interrupted.")

    def _check_end(self) -> None:
        if self._offset != self._pinned.size:
            raise StorageError(
                f"Reading {self._pinned.name} broke off at byte {self._offset} of {self._pinned.size}."
            )
        if any(digest.digest() != expected for expected, digest in self._checks):
            raise ObjectDamaged(f"{self._pinned.name} was damaged on its way here.")

    def interrupt(self) -> None:
        """End a read that waits in another thread; it and all later ones raise StorageError."""
        self._sink.stopped.set()
        self._future.cancel()
        self._client.hang_up()

    def close(self) -> None:
        """End the transfer and its threads."""
        if not self.closed:
            self.interrupt()
            self._manager.shutdown(cancel=True)
            self._client.close_answers()
        super().close()


class _Sink:
    """Where the transfer manager writes, in order and from one thread; None is the end."""

    def __init__(self) -> None:
        self.blocks: queue.Queue[bytes | None] = clock.Queue(_BLOCKS_AHEAD)
        self.stopped = clock.Event()

    def write(self, block: bytes) -> None:
        if block:
            self.put(block)

    def put(self, block: bytes | None) -> None:
        while not self.stopped.is_set():
            with suppress(queue.Full):
                self.blocks.put(block, timeout=_POLL_SECONDS)
                return


class _Described(BaseSubscriber):  # type: ignore[misc]  # s3transfer has no types
    """Says what the object is, so that nobody asks for it again, and when the transfer has ended."""

    def __init__(self, pinned: PinnedObject, sink: _Sink) -> None:
        self._pinned = pinned
        self._sink = sink

    def on_queued(self, future: Any, **_: object) -> None:  # noqa: ANN401
        future.meta.provide_transfer_size(self._pinned.size)
        future.meta.provide_object_etag(self._pinned.etag)

    def on_done(self, **_: object) -> None:
        self._sink.put(None)


class _PinningClient:
    """The client, with every answer held to the pinned version: If-Match and Range are wishes, and a store
    that doesn't know them answers with whatever it has."""

    def __init__(self, client: Any, pinned: PinnedObject, stopped: clock.Event) -> None:  # noqa: ANN401
        self._client = client
        self._pinned = pinned
        self._stopped = stopped
        self._bodies: set[Any] = set()
        self._lock = clock.Lock()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._client, name)

    def get_object(self, **parameters: str) -> dict[str, Any]:
        if self._stopped.is_set():
            raise StorageError(f"Reading {self._pinned.name} was interrupted.")
        answer: dict[str, Any] = self._client.get_object(**parameters)
        body = answer["Body"]
        if answer["ETag"] != self._pinned.etag:
            body.close()
            raise SourceChanged(f"{self._pinned.name} has changed.")
        if "Range" in parameters and "ContentRange" not in answer:
            body.close()
            raise StorageError(f"The object store answers a range of {self._pinned.name} with all of it.")
        with self._lock:
            self._bodies = {other for other in self._bodies if not other._raw_stream.closed} | {body}
        if self._stopped.is_set():
            self.hang_up()
        return answer

    def hang_up(self) -> None:
        """End every read that waits."""
        with self._lock:
            bodies = set(self._bodies)
        for body in bodies:
            with suppress(RuntimeError, ValueError, OSError):  # it has been read to its end, or closed
                body._raw_stream.shutdown()

    def close_answers(self) -> None:
        """Give back the connections of answers that broke off, once nobody reads them."""
        for body in self._bodies:
            body.close()
