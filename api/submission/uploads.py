"""Receives `multipart/form-data` as a stream: the file goes to disk block by block, other parts stay small.

Knows the form's parts (`file`, and small ones, by default `request` as JSON) and the size limits. An upload
that breaks off, is too large or malformed leaves no file behind.
"""

import contextlib
import errno
import hashlib
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from api.problems import Problem
from api.submission.bodies import SUBMISSION
from spool import clock
from spool.errors import DiskFull

JOB_PARTS = frozenset({"request"})
_HEADERS_BYTES = 64 * 1024
"""What a form may contain besides the bytes of its parts."""
_BOUNDARY_BYTES = 200  # RFC 2046 allows 70
_HEADER_BYTES = 16 * 1024  # of one part
_SMALL_PARTS = 100
_BLOCK = 1024 * 1024
_PREFIX = "upload-"
# No upload takes this long. A younger file may belong to an upload in another process.
_REMAINS_S = 24 * 3600


@dataclass(frozen=True)
class Upload:
    """A received file. `name` is the sender's file name, without folders."""

    path: Path
    size: int
    sha256: str
    name: str
    content_type: str
    parts: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    """The small parts by name, in order of arrival."""

    @property
    def request(self) -> bytes:
        """The part `request`; empty if there is none."""
        return self.parts.get("request", (b"",))[0]

    @property
    def transcript(self) -> bytes | None:
        """The part `transcript`, if there is one."""
        return self.parts.get("transcript", (None,))[0]


@asynccontextmanager
async def receive_upload(
    request: Request,
    folder: Path,
    limit: int,
    parts: frozenset[str] = JOB_PARTS,
    parts_limit: int = SUBMISSION.size,
) -> AsyncIterator[Upload]:
    """Receive the form of `request` into a temporary file in `folder`, deleted when the block ends.

    Beside `file`, of at most `limit` bytes, it may have `parts`, of `parts_limit` bytes together: once each,
    or repeatedly where the name ends in `[]`. Raises `Problem` 400 for a malformed form and 413 for too many
    bytes, and passes on the client's disconnect.
    """
    _, parameters = parse_options_header(request.headers.get("content-type"))
    boundary = parameters.get(b"boundary")
    if not boundary or len(boundary) > _BOUNDARY_BYTES:
        raise Problem(
            400,
            "invalid_request",
            f"The content type of a form needs a boundary of 1 to {_BOUNDARY_BYTES} bytes.",
        )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit + parts_limit + _HEADERS_BYTES:
        raise too_large(limit)
    with _name_full_disk():
        folder.mkdir(parents=True, exist_ok=True)
        # Unbuffered: a full disk must fail the write, not the close.
        file = tempfile.NamedTemporaryFile(dir=folder, prefix=_PREFIX, buffering=0)  # noqa: SIM115 (with, below)
    with file:
        form = Form(file.file, boundary, limit, parts, parts_limit)
        await _pass_on(form, request)
        yield form.upload(Path(file.name))


@asynccontextmanager
async def receive_body(request: Request, folder: Path, limit: int) -> AsyncIterator[Upload]:
    """Receive the bare body of `request` as if it were a form's file, with the same limits."""
    with _name_full_disk():
        folder.mkdir(parents=True, exist_ok=True)
        file = tempfile.NamedTemporaryFile(dir=folder, prefix=_PREFIX, buffering=0)  # noqa: SIM115 (with, below)
    with file:
        body = Body(file.file, limit)
        await _pass_on(body, request)
        yield body.upload(Path(file.name))


async def _pass_on(form: "Form | Body", request: Request) -> None:
    # Blocks go to the disk on a thread, so that a slow disk stops this upload and no other request.
    waiting = bytearray()
    received = 0
    async for piece in request.stream():
        received += len(piece)
        if received > form.limit + form.parts_limit + _HEADERS_BYTES:
            raise too_large(form.limit)
        waiting += piece
        if len(waiting) >= _BLOCK:
            await run_in_threadpool(form.write, bytes(waiting))
            waiting.clear()
    await run_in_threadpool(form.write, bytes(waiting))
    await run_in_threadpool(form.finish)


def drop_remains(folder: Path) -> None:
    """Remove files of uploads whose server was killed long ago."""
    for file in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if clock.time() - file.stat().st_mtime > _REMAINS_S:
                file.unlink()


@contextmanager
def _name_full_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull("No space is left where uploads are received; try again later.") from error
        raise


def too_large(limit: int) -> Problem:
    """The error for a file that is larger than `limit` bytes."""
    return Problem(413, "too_large", f"The file is larger than the {limit} bytes allowed here.", limit=limit)


class Body:
    """A body that is not a form: receives blocks in order and writes them to `file`."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file = file
        self.limit = limit
        self.parts_limit = 0
        self._size = 0
        self._hash = hashlib.sha256()

    def write(self, block: bytes) -> None:
        """Write a block. Raises `Problem` when the body becomes too large, `DiskFull`."""
        self._size += len(block)
        if self._size > self.limit:
            raise too_large(self.limit)
        self._hash.update(block)
        left = memoryview(block)
        with _name_full_disk():
            while left:
                left = left[self._file.write(left) :]

    def finish(self) -> None:
        """The body is complete."""

    def upload(self, path: Path) -> Upload:
        """The body as received into `path`."""
        return Upload(path, self._size, self._hash.hexdigest(), "upload", "application/octet-stream")


@dataclass
class _Part:
    """The part being read: its headers so far, then its name."""

    headers: dict[str, bytes] = field(default_factory=dict)
    header_name: bytearray = field(default_factory=bytearray)
    header_value: bytearray = field(default_factory=bytearray)
    header_bytes: int = 0
    name: str = ""


class Form:
    """The parser of a form: receives blocks in order, writes `file` to disk and keeps the small parts."""

    def __init__(
        self,
        file: IO[bytes],
        boundary: bytes,
        limit: int,
        parts: frozenset[str] = JOB_PARTS,
        parts_limit: int = SUBMISSION.size,
    ) -> None:
        self._file = file
        self.parts_limit = parts_limit
        self._small = parts
        self.limit = limit
        self._part = _Part()
        self._seen: set[str] = set()
        self._ended = False
        self._kept: dict[str, list[bytearray]] = {}
        self._kept_bytes = 0
        self._size = 0
        self._hash = hashlib.sha256()
        self._file_name = ""
        self._content_type = "application/octet-stream"
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._header_name,
                "on_header_value": self._header_value,
                "on_header_end": self._header_end,
                "on_headers_finished": self._headers_finished,
                "on_part_data": self._data,
                "on_end": self._end,
            },
        )

    def write(self, block: bytes) -> None:
        """Parse a block. Raises `Problem` for a malformed form, `DiskFull`."""
        try:
            with _name_full_disk():
                self._parser.write(block)
        except FormParserError as error:
            raise Problem(400, "invalid_request", f"The form cannot be read: {error}.") from None

    def finish(self) -> None:
        """The form is complete. Raises `Problem` if something is missing."""
        if not self._ended:
            raise Problem(400, "invalid_request", "The form ends before its closing boundary.")
        if "file" not in self._seen:
            raise Problem(422, "invalid_request", "The form has no part called `file`.")

    def upload(self, path: Path) -> Upload:
        """The form as received into `path`."""
        name = "".join(char for char in self._file_name.replace("\\", "/") if char.isprintable())
        return Upload(
            path=path,
            size=self._size,
            sha256=self._hash.hexdigest(),
            name=name.rpartition("/")[2][:200] or "upload",
            content_type=self._content_type,
            parts={name: tuple(map(bytes, each)) for name, each in self._kept.items()},
        )

    def _begin(self) -> None:
        self._part = _Part()

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._count_header(end - start)
        self._part.header_name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._count_header(end - start)
        self._part.header_value += data[start:end]

    def _count_header(self, size: int) -> None:
        self._part.header_bytes += size
        if self._part.header_bytes > _HEADER_BYTES:
            raise Problem(400, "invalid_request", f"The headers of a part exceed {_HEADER_BYTES} bytes.")

    def _header_end(self) -> None:
        name = self._part.header_name.decode("latin-1").lower()
        self._part.headers[name] = bytes(self._part.header_value)
        self._part.header_name.clear()
        self._part.header_value.clear()

    def _refusal(self, name: str) -> str:
        if name in self._seen:
            return f"The form has more than one part `{name}`."
        known = ", ".join(f"`{part}`" for part in sorted(self._small | {"file"}))
        return f"The form has an unknown part {name[:100]!r}. Known parts: {known}."

    def _headers_finished(self) -> None:
        _, parameters = parse_options_header(self._part.headers.get("content-disposition"))
        name = parameters.get(b"name", b"").decode("utf-8", "replace")
        if name not in self._small | {"file"} or (name in self._seen and not name.endswith("[]")):
            raise Problem(422, "invalid_request", self._refusal(name))
        if sum(map(len, self._kept.values())) >= _SMALL_PARTS:
            raise Problem(413, "too_large", f"The form has more than {_SMALL_PARTS} parts beside `file`.")
        self._seen.add(name)
        self._part.name = name
        if name != "file":
            self._kept.setdefault(name, []).append(bytearray())
        if name == "file":
            self._file_name = parameters.get(b"filename", b"").decode("utf-8", "replace")
            content_type = self._part.headers.get("content-type", b"").decode("ascii", "ignore")
            self._content_type = content_type[:100] or self._content_type

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._part.name != "file":
            self._kept_bytes += end - start
            if self._kept_bytes > self.parts_limit:
                raise Problem(413, "too_large", f"The parts beside `file` exceed {self.parts_limit} bytes.")
            self._kept[self._part.name][-1] += data[start:end]
            return
        self._size += end - start
        if self._size > self.limit:
            raise too_large(self.limit)
        block = memoryview(data)[start:end]
        self._hash.update(block)
        while block:
            block = block[self._file.write(block) :]

    def _end(self) -> None:
        self._ended = True
