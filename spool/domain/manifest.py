"""A batch's manifest: one source a line as JSON, read line by line, and the report of its bad lines.

Pure: knows what a line may hold and how much of it is ever in memory. Knows neither settings (whether a
source is allowed is asked by the caller) nor SQL.
"""

import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any, BinaryIO, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from spool.domain.priority import PriorityName
from spool.errors import InvalidRequest, first_fault

Item = TypeVar("Item")

LINE_BYTES = 64 * 1024
LINES = 1_000_000
"""Lines in one manifest; the digests that find duplicates take about 100 bytes a line."""
REPORTED = 100
"""Bad lines that a report lists; it counts all."""
TAGS = 16
_SUFFIXES = frozenset(
    {".aac", ".aif", ".aiff", ".amr", ".au", ".avi", ".caf", ".flac", ".m4a", ".m4b", ".mka", ".mkv", ".mov"}
    | {".mp2", ".mp3", ".mp4", ".mpeg", ".mpg", ".oga", ".ogg", ".opus", ".wav", ".weba", ".webm", ".wma"}
)


def is_recording(name: str) -> bool:
    """Whether a file of this name is a recording, by its suffix; for batches of a folder or a prefix."""
    return f".{name.rpartition('.')[2].lower()}" in _SUFFIXES


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not contain control characters")
    return text


Printable = Annotated[str, AfterValidator(_printable)]
Name = Annotated[Printable, Field(min_length=1, max_length=200)]
TagName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")]
Tags = Annotated[
    dict[TagName, Annotated[Printable, Field(max_length=200)]],
    Field(max_length=TAGS, description=f"Up to {TAGS} names and values of your own, kept with the job."),
]


class ManifestLine(BaseModel):
    """One line: a source, with the submitter's id, name, options and tags."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Annotated[str, Field(min_length=1, max_length=4096)]
    custom_id: Name | None = None
    name: Name | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    tags: Tags = Field(default_factory=dict)
    priority: PriorityName | None = None


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that creates no job: its number (from 1), its `custom_id` where that is readable, and why."""

    line: int
    code: str
    message: str
    custom_id: str | None = None


@dataclass
class Report:
    """Counts of a manifest, and its first bad lines."""

    lines: int = 0
    bad: int = 0
    bad_lines: list[BadLine] = field(default_factory=list)

    def add(self, bad: BadLine) -> None:
        """Count a bad line, and list it if it is among the first."""
        self.bad += 1
        if len(self.bad_lines) < REPORTED:
            self.bad_lines.append(bad)


class Seen:
    """The custom ids of one batch so far, as digests, so that long ids take no more memory."""

    def __init__(self) -> None:
        self._digests: set[bytes] = set()

    def first(self, custom_id: str) -> bool:
        """Add the id; return whether it is new."""
        before = len(self._digests)
        self._digests.add(hashlib.blake2b(custom_id.encode(), digest_size=16).digest())
        return len(self._digests) > before


def numbered_lines(stream: BinaryIO, limit: int = LINE_BYTES) -> Iterator[tuple[int, bytes | None]]:
    """The lines of `stream` with their numbers from 1, blank ones left out.

    A line of more than `limit` bytes is None: the rest of it is skipped without being held in memory.
    """
    number = 0
    while piece := stream.readline(limit + 1):
        number += 1
        if len(piece) > limit and not piece.endswith(b"\n"):
            while (rest := stream.readline(io.DEFAULT_BUFFER_SIZE)) and not rest.endswith(b"\n"):
                pass
            yield number, None
            continue
        text = piece.removeprefix(b"\xef\xbb\xbf") if number == 1 else piece
        if text.strip():
            yield number, text


def read_line(number: int, text: bytes | None) -> ManifestLine | BadLine:
    """The line, or what is wrong with it. Submitted values are left out, since they may be secrets."""
    if text is None:
        return BadLine(number, "line_too_long", f"The line has more than {LINE_BYTES} bytes.")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        return BadLine(number, "not_json", "The line is not JSON in UTF-8.")
    if not isinstance(value, dict):
        return BadLine(number, "not_json", "The line is not a JSON object.")
    try:
        return ManifestLine.model_validate(value)
    except ValidationError as error:
        return BadLine(number, "invalid_request", first_fault(error), _custom_id(value))


def manifest_lines(stream: BinaryIO, report: Report) -> Iterator[tuple[int, ManifestLine | BadLine]]:
    """The lines of a manifest, good and bad; `report` counts them, and the caller reports the bad ones to it.

    Whether a `custom_id` is a duplicate is for the caller to check, since only lines that create jobs use
    theirs up. Raises InvalidRequest for more than `LINES` lines.
    """
    for number, text in numbered_lines(stream):
        report.lines += 1
        if report.lines > LINES:
            raise InvalidRequest(f"A manifest has at most {LINES} lines; submit several manifests.")
        yield number, read_line(number, text)


def in_blocks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items in lists of `size`, the last one shorter; never an empty one."""
    left = iter(items)
    while block := list(islice(left, size)):
        yield block


def _custom_id(value: dict[str, Any]) -> str | None:
    custom_id = value.get("custom_id")
    return custom_id[:200] if isinstance(custom_id, str) and custom_id.isprintable() else None
