"""A batch's manifest: one source per line as JSON or CSV, read line by line, and the report of its bad lines.

Pure. Owns what a line may contain and how much of it is ever in memory; the caller checks whether a source is
allowed.
"""

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Annotated, Any, BinaryIO, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from spool.domain.priority import PriorityName
from spool.errors import InvalidRequest, first_fault

Item = TypeVar("Item")

LINE_BYTES = 64 * 1024
LINES = 1_000_000
"""Lines in one manifest; the digests that find duplicates take about 100 bytes a line."""
REPORTED = 100
"""Bad lines, and skipped files, that a report lists; it counts all."""
TAGS = 16
_CSV_COLUMNS = frozenset({"source", "custom_id", "name", "priority"})


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not contain control characters")
    return text


Printable = Annotated[str, AfterValidator(_printable)]
NAME_LENGTH = 200
Name = Annotated[Printable, Field(min_length=1, max_length=NAME_LENGTH)]
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
    """A line that creates no job: its number (from 1), its `custom_id` if it is readable, and why."""

    line: int
    code: str
    message: str
    custom_id: str | None = None


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file of a folder or prefix that makes no job: its path there, and why."""

    path: str
    reason: str


@dataclass
class ManifestReport:
    """Counts of a manifest or a listing, its first bad lines, and the first files that were skipped."""

    lines: int = 0
    bad: int = 0
    bad_lines: list[BadLine] = field(default_factory=list)
    unchanged: int = 0
    skipped: int = 0
    skipped_files: list[SkippedFile] = field(default_factory=list)

    def add(self, bad: BadLine) -> None:
        """Count a bad line, and list it if it is among the first."""
        self.bad += 1
        if len(self.bad_lines) < REPORTED:
            self.bad_lines.append(bad)

    def skip(self, file: SkippedFile) -> None:
        """Count a file that makes no job, and list it if it is among the first."""
        self.skipped += 1
        if len(self.skipped_files) < REPORTED:
            self.skipped_files.append(file)


class CustomIds:
    """The custom ids of one batch so far, as digests, so that long ids take no more memory."""

    def __init__(self) -> None:
        self._digests: set[bytes] = set()

    def first(self, custom_id: str) -> bool:
        """Add the id; return whether it is new."""
        before = len(self._digests)
        self._digests.add(hashlib.blake2b(custom_id.encode(), digest_size=16).digest())
        return len(self._digests) > before


def number_lines(stream: BinaryIO, limit: int = LINE_BYTES) -> Iterator[tuple[int, bytes | None]]:
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


_NO_HEADER = BadLine(
    1, "not_json", "The line is neither a JSON object in UTF-8 nor a CSV header with the column `source`."
)


def rows_of(stream: BinaryIO) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
    """The lines of a manifest with their numbers from 1, as they were written: JSON, or CSV with a header.

    CSV is recognised by its first line, which names the columns: `source`, and optionally `custom_id`,
    `name`, `priority`, `tags.NAME` and `options.NAME` (options as JSON, or as plain text). Commas, semicolons
    or tabs separate cells; an empty cell means no value. Raises InvalidRequest for an unknown column.
    """
    lines = number_lines(stream)
    first = next(lines, None)
    if first is None:
        return
    columns = _columns(first[1])
    if columns is None:
        for number, text in chain([first], lines):
            row = _json_row(number, text)
            is_header = number == first[0] and isinstance(row, BadLine) and row.code == "not_json"
            yield number, replace(_NO_HEADER, line=number) if is_header else row
        return
    names, separator = columns
    for number, text in lines:
        yield number, _csv_row(number, text, names, separator)


def _columns(text: bytes | None) -> tuple[list[str], str] | None:
    """The columns named by a CSV's first line, and their separator; None if it is not such a line."""
    try:
        line = (text or b"").decode().strip()
    except UnicodeDecodeError:
        return None
    for separator in (",", ";", "\t"):
        try:
            names = [name.strip() for name in next(csv.reader([line], delimiter=separator), [])]
        except csv.Error:  # a carriage return in the middle
            return None
        if "source" in names:
            for name in names:
                if name not in _CSV_COLUMNS and not name.startswith(("tags.", "options.")):
                    known = "source, custom_id, name, priority, tags.NAME and options.NAME"
                    raise InvalidRequest(f"line 1: a manifest has no column {name!r}; it has {known}.")
            return names, separator
    return None


def _csv_row(number: int, text: bytes | None, names: list[str], separator: str) -> dict[str, Any] | BadLine:
    if text is None:
        return _too_long(number)
    try:
        cells = next(csv.reader([text.decode().rstrip("\r\n")], delimiter=separator, strict=True), [])
    except (UnicodeDecodeError, csv.Error):
        return BadLine(number, "not_csv", "The line is not CSV in UTF-8, or has an unclosed quoted cell.")
    if len(cells) > len(names):
        return BadLine(number, "not_csv", f"Expected {len(names)} cells, found {len(cells)}.")
    row: dict[str, Any] = {}
    for name, cell in zip(names, cells, strict=False):
        if not cell:
            continue
        group, dot, key = name.partition(".")
        if dot:
            row.setdefault(group, {})[key] = _plain(cell) if group == "options" else cell
        else:
            row[name] = cell
    return row


def _plain(cell: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return cell


def _too_long(number: int) -> BadLine:
    return BadLine(number, "line_too_long", f"The line has more than {LINE_BYTES} bytes.")


def _json_row(number: int, text: bytes | None) -> dict[str, Any] | BadLine:
    if text is None:
        return _too_long(number)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        return BadLine(number, "not_json", "The line is not JSON in UTF-8.")
    return value if isinstance(value, dict) else BadLine(number, "not_json", "The line is not a JSON object.")


def read_manifest_line(number: int, row: dict[str, Any] | BadLine) -> ManifestLine | BadLine:
    """The line, or what is wrong with it. Submitted values are left out, since they may be secrets."""
    if isinstance(row, BadLine):
        return row
    try:
        return ManifestLine.model_validate(row)
    except ValidationError as error:
        return BadLine(number, "invalid_request", first_fault(error), _custom_id(row))


def manifest_lines(stream: BinaryIO, report: ManifestReport) -> Iterator[tuple[int, ManifestLine | BadLine]]:
    """The lines of a manifest, good and bad; `report` counts them, and the caller reports the bad ones to it.

    The caller checks whether a `custom_id` is a duplicate, since only lines that create jobs use one up.
    Raises InvalidRequest for more than `LINES` lines.
    """
    for number, row in rows_of(stream):
        report.lines += 1
        if report.lines > LINES:
            raise InvalidRequest(f"A manifest has at most {LINES} lines; submit several manifests.")
        yield number, read_manifest_line(number, row)


def in_blocks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items in lists of `size`, the last one shorter; never an empty one."""
    left = iter(items)
    while block := list(islice(left, size)):
        yield block


def _custom_id(value: dict[str, Any]) -> str | None:
    custom_id = value.get("custom_id")
    return custom_id[:200] if isinstance(custom_id, str) and custom_id.isprintable() else None
