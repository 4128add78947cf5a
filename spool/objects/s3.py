"""Objects in an S3 bucket, through boto3.

Keys of ours lie below `prefix`. Retries, timeouts and checksums are set for S3-alikes as well as for AWS. A
read pins the ETag of its first answer, so bytes of two versions never mix, and a body cut short is fetched
from where it ended. Error messages name the object, never a credential or a signed address.
"""

import hashlib
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, BinaryIO, cast

from boto3.s3.transfer import S3Transfer, TransferConfig
from botocore.exceptions import BotoCoreError, FlexibleChecksumError
from urllib3.exceptions import HTTPError

from spool.errors import NotFound, ObjectDamaged, SourceChanged, StorageError
from spool.objects.base import NewObject, ObjectInfo, check_key
from spool.objects.local import BLOCK, storage_errors, write_whole
from spool.objects.s3_client import S3Bucket, S3Options
from spool.objects.s3_parts import PARALLEL_BYTES, PartsReader, PinnedObject
from spool.objects.s3_receiver import S3Receiver

MULTIPART_BYTES = 64 * 2**20
READ_BYTES = 64 << 10  # asked of a connection at once, so that a slow one still shows that it moves
# How often a body may break off before we give up: a few times, and once more for each gigabyte that came
# through.
BODY_BREAKS = 5
BYTES_PER_BREAK = 2**30


class S3Store(S3Bucket):
    """An `ObjectStore` in a bucket. Safe to share between threads."""

    def __repr__(self) -> str:
        return f"S3Store({self.bucket!r}, {self.prefix!r})"

    def put_file(self, key: str, path: Path, content_type: str = "application/octet-stream") -> ObjectInfo:
        """Store the file's bytes under `key`; large files in parts, which are aborted when one fails."""
        with storage_errors(str(path)), path.open("rb") as source:
            digest = hashlib.file_digest(source, "sha256").hexdigest()
            size = source.seek(0, io.SEEK_END)
            source.seek(0)
            if size <= MULTIPART_BYTES:
                return self._put(key, source, size, digest, content_type)
        return self._put_parts(key, path, digest, content_type)

    def put_bytes(self, key: str, data: bytes, content_type: str = "application/octet-stream") -> ObjectInfo:
        """Store `data` under `key`."""
        return self._put(key, io.BytesIO(data), len(data), hashlib.sha256(data).hexdigest(), content_type)

    def put_several(self, objects: Sequence[NewObject]) -> None:
        """Store these, one after the other."""
        for each in objects:
            self.put_bytes(*each)

    def open(self, key: str, etag: str | None = None, start: int = 0) -> BinaryIO:
        """The object's bytes from `start` as a stream."""
        return cast("BinaryIO", _Reader(_Body(self, key, etag, start), BLOCK))

    def open_to_copy(self, key: str, etag: str | None = None) -> BinaryIO:
        """The object's bytes as a stream, those of a large one over several connections."""
        body = _Body(self, key, etag)
        if body.size < PARALLEL_BYTES:
            return cast("BinaryIO", _Reader(body, BLOCK))
        body.close()
        pinned = PinnedObject(
            self.bucket, self.prefix + key, self.address_of(key), body.size, body.etag, body.checksums
        )
        return cast("BinaryIO", _Reader(PartsReader(self.client, pinned), BLOCK))

    def get_file(self, key: str, path: Path, etag: str | None = None) -> ObjectInfo:
        """Write the object's bytes to `path`, whole or not at all."""
        with _Body(self, key, etag) as body, storage_errors(str(path)):
            digest = write_whole(path, path.parent, lambda: body.read(BLOCK) or b"")
            return ObjectInfo(key, body.size, body.etag, digest)

    def head(self, key: str) -> ObjectInfo | None:
        """What is stored under `key`."""
        try:
            answer = self.call("head_object", key)
        except NotFound:
            return None
        return ObjectInfo(
            key, answer["ContentLength"], answer["ETag"], answer.get("Metadata", {}).get("sha256")
        )

    def public_url(self, key: str, content_type: str, seconds: int) -> str | None:
        """A presigned address of the object; None without `public_endpoint_url`."""
        if self.options.public_endpoint_url is None:
            return None
        shown = {"ResponseContentType": content_type, "ResponseContentDisposition": "inline"}
        return self.sign(self.public_client, "get_object", check_key(key), seconds, **shown)

    def sign_address(self, key: str, seconds: int) -> str:
        """An address at which anybody who has it may GET the object, whole or in ranges, for so long."""
        mode = {"ChecksumMode": "ENABLED"} if self.options.checksums else {}
        return self.sign(self.signing_client, "get_object", key, seconds, **mode)

    def receiver(self) -> S3Receiver:
        """Takes objects in parts."""
        return self._receiver

    def delete(self, key: str) -> None:
        """Remove the object; no error when there is none."""
        self.call("delete_object", key)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """All objects whose key starts with `prefix`, by key."""
        for page in self.pages("list_objects_v2", prefix):
            for item in page.get("Contents", ()):
                key = item["Key"].removeprefix(self.prefix)
                yield ObjectInfo(key, item["Size"], item["ETag"], modified=item["LastModified"])

    def check(self) -> None:
        """Ask for the bucket."""
        with self.errors(f"s3://{self.bucket}"):
            self.client.head_bucket(Bucket=self.bucket)

    def _put(self, key: str, body: BinaryIO, size: int, digest: str, content_type: str) -> ObjectInfo:
        answer = self.call(
            "put_object", check_key(key), Body=body, ContentType=content_type, Metadata={"sha256": digest}
        )
        return ObjectInfo(key, size, answer["ETag"], digest)

    def _put_parts(self, key: str, path: Path, digest: str, content_type: str) -> ObjectInfo:
        config = TransferConfig(multipart_threshold=MULTIPART_BYTES, multipart_chunksize=MULTIPART_BYTES)
        with self.errors(self.address_of(key)), S3Transfer(self.client, config) as transfer:
            transfer.upload_file(
                str(path),
                self.bucket,
                self.prefix + check_key(key),
                extra_args={"ContentType": content_type, "Metadata": {"sha256": digest}},
            )
        info = self.head(key)
        if info is None:
            raise StorageError(f"{self.address_of(key)} was written and is not there.")
        return info

    @cached_property
    def _receiver(self) -> S3Receiver:
        return S3Receiver(self.bucket, self.prefix, self.options)


@lru_cache(maxsize=64)
def open_bucket(bucket: str, prefix: str, options: S3Options) -> S3Store:
    """A store that is kept, as are its connections: each job of an archive asks for the same one."""
    return S3Store(bucket, prefix, options)


class _Reader(io.BufferedReader):
    """A stream whose read can be ended from another thread."""

    def interrupt(self) -> None:
        """End a read that waits; it and all later ones raise StorageError."""
        cast("_Body | PartsReader", self.raw).interrupt()


class _Body(io.RawIOBase):
    """An object's bytes in order, asked for again from where a connection broke."""

    def __init__(self, store: S3Store, key: str, etag: str | None, start: int = 0) -> None:
        super().__init__()
        self._store = store
        self._key = key
        condition = {"IfMatch": etag} if etag else {}
        answer = store.call("get_object", key, **condition, **({"Range": f"bytes={start}-"} if start else {}))
        self.size: int = start + answer["ContentLength"]
        self.etag: str = etag or answer["ETag"]
        self.checksums = {name: value for name, value in answer.items() if name.startswith("Checksum")}
        self._refuse_other(answer)
        self._stream = answer["Body"]
        self._offset = start
        self._breaks = 0
        self._broken = False
        self._interrupted = False

    def _refuse_other(self, answer: dict[str, Any]) -> None:
        """If-Match is a wish: a store that does not know it answers with whatever it has."""
        if answer["ETag"] != self.etag:
            answer["Body"].close()
            raise SourceChanged(f"{self._key} has changed.")

    def readable(self) -> bool:
        """True: `io.BufferedReader` asks."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        """The next bytes; 0 at the end. Raises StorageError and SourceChanged."""
        while True:
            try:
                if self._broken and self._offset < self.size:
                    self._resume()
                # At the end too: it is there that botocore compares the CRC of the whole.
                block = b"" if self._broken else self._stream.read(min(len(buffer), READ_BYTES))
            except FlexibleChecksumError as error:
                raise ObjectDamaged(f"{self._key} was damaged on its way here.") from error
            except (BotoCoreError, HTTPError, OSError, StorageError) as error:
                self._note_break(error)
                continue
            if block:
                buffer[: len(block)] = block
                self._offset += len(block)
                return len(block)
            if self._offset >= self.size:
                return 0
            self._note_break(None)

    def interrupt(self) -> None:
        """End a read that waits in another thread."""
        self._interrupted = True
        with suppress(RuntimeError, ValueError, OSError):  # it has been read to its end, or closed
            self._stream._raw_stream.shutdown()

    def _note_break(self, error: Exception | None) -> None:
        if self._interrupted:
            raise StorageError(f"Reading {self._key} was interrupted.") from error
        self._broken = True
        self._breaks += 1
        if self._breaks > BODY_BREAKS + self._offset // BYTES_PER_BREAK:
            raise StorageError(
                f"Reading {self._key} broke off at byte {self._offset} of {self.size}."
            ) from error

    def _resume(self) -> None:
        self._stream.close()
        answer = self._store.call("get_object", self._key, IfMatch=self.etag, Range=f"bytes={self._offset}-")
        self._refuse_other(answer)
        self._stream = answer["Body"]
        self._broken = False

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()
