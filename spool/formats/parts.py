"""A record taken apart without reading its words: 20 hours of them take seconds."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, overload

from pydantic import TypeAdapter

from spool.domain.archive.record import Record, WholeRecord
from spool.domain.spacing import join_words
from spool.domain.transcript import Segment, Speaker, Transcript, Word
from spool.formats.rendering import render_bytes

# How `render` writes lists of the transcript. A line break within a string is escaped, so only the record's
# own lines can look like these.
WORDS = b'\n  "words": [\n'
SEGMENTS = b'\n  ],\n  "segments": [\n'
END = b"\n  ],\n"
NEXT = b",\n"
BETWEEN = b"\n    },\n    {\n"
_NO_LISTS = b'\n  "words": [],\n  "segments": [],\n'
_CHANNEL = b'\n      "channel": %d'
_MOST_CHANNELS = 10
_TEXT = re.compile(rb'\n      "text": (".*"),\n')
RANGE = re.compile(rb'"first_word": (\d+),\n      "last_word": (\d+)')
_BLOCK = 1 << 16
_RUN = 32
"""Words that are read at once where one of them is asked for."""

word_list = TypeAdapter(tuple[Word, ...])
segment_list = TypeAdapter(tuple[Segment, ...])
_text_list = TypeAdapter(list[str])


class RecordParts(NamedTuple):
    """The insides of a record's two long lists, and the transcript without them."""

    around: Transcript
    words: Sequence[bytes]
    segments: bytes

    def render(self, names: Mapping[str, str]) -> list[bytes]:
        """The whole, as pieces."""
        before, _, after = render_bytes(self.around.with_names(names), "json").partition(_NO_LISTS)
        return [before + WORDS, *self.words, SEGMENTS, self.segments, END + after]


def split_record(record: bytes) -> RecordParts | None:
    """None if it has no words, or is not laid out as `render` does."""
    words = record.find(WORDS)
    segments = record.find(SEGMENTS, words)
    end = record.find(END, segments + len(SEGMENTS))
    if min(words, segments, end) < 0:
        return None
    return RecordParts(
        Transcript.model_validate_json(record[:words] + _NO_LISTS + record[end + len(END) :]),
        [record[words + len(WORDS) : segments]],
        record[segments + len(SEGMENTS) : end],
    )


def open_record(record: bytes) -> Record:
    """A record whose words are read as they are asked for, if its layout lets them be found."""
    parts = split_record(record)
    if parts is None:
        return WholeRecord(Transcript.model_validate_json(record))
    return _OpenRecord(record, parts)


def read_ranges(segments: bytes, words: int) -> list[tuple[int, int]]:
    """The first and the last word of each segment; none unless they have so many words, in order."""
    ranges = [(int(first), int(last)) for first, last in RANGE.findall(segments)]
    firsts = [first for first, _ in ranges]
    return ranges if [*firsts, words] == [0, *(last + 1 for _, last in ranges)] else []


def read_text(segments: bytes) -> str:
    """The text of all segments."""
    return join_words(_text_list.validate_json(b"[" + b",".join(_TEXT.findall(segments)) + b"]"))


def cut_list(listed: bytes) -> list[bytes]:
    """The elements of a list's inside."""
    first, last = b"    {\n", b"\n    }"
    return [first + each + last for each in listed.removeprefix(first).removesuffix(last).split(BETWEEN)]


def move_words(segments: bytes, by: int) -> bytes:
    """Segments whose words have other numbers: so many more."""

    def move(found: re.Match[bytes]) -> bytes:
        return b'"first_word": %d,\n      "last_word": %d' % (int(found[1]) + by, int(found[2]) + by)

    return RANGE.sub(move, segments) if by else segments


def write_list(elements: Sequence[Word | Segment]) -> bytes:
    """As the inside of a list."""
    lines = (each.model_dump_json(indent=2).replace("\n", "\n    ") for each in elements)
    return ",\n".join(f"    {each}" for each in lines).encode()


def separate(lists: Iterable[bytes]) -> Iterator[bytes]:
    """The elements of all lists as the inside of one, without copying them."""
    some = False
    for each in filter(None, lists):
        if some:
            yield NEXT
        yield each
        some = True


class _OpenRecord:
    def __init__(self, record: bytes, parts: RecordParts) -> None:
        self.around = parts.around
        self.words: Sequence[Word] = _Words(parts.words[0])
        self._listed = parts.words[0]
        self._record = record
        self._whole: Transcript | None = None

    @property
    def speakers(self) -> Sequence[Speaker]:
        return self.around.speakers

    def read(self) -> Transcript:
        if self._whole is None:
            self._whole = Transcript.model_validate_json(self._record)
        return self._whole

    def is_in_order(self, channels: Sequence[int]) -> bool:
        if max(channels) >= _MOST_CHANNELS:
            return False
        return all(
            self._listed.rfind(_CHANNEL % one) < self._listed.find(_CHANNEL % other)
            for one, other in pairwise(channels)
        )


class _Words(Sequence[Word]):
    """The words of a list's inside."""

    def __init__(self, listed: bytes) -> None:
        self._listed = listed
        self._run: tuple[int, tuple[Word, ...]] = (-1, ())

    @cached_property
    def _blocks(self) -> list[int]:
        """How many words end before each block of bytes, and in all."""
        ends = [0]
        for begin in range(0, len(self._listed), _BLOCK):
            # What begins in the block, if it ends in the next one, too.
            end = begin + _BLOCK + len(BETWEEN) - 1
            ends.append(ends[-1] + self._listed.count(BETWEEN, begin, end))
        return ends

    def __len__(self) -> int:
        return self._blocks[-1] + 1

    @overload
    def __getitem__(self, at: int) -> Word: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Word, ...]: ...
    def __getitem__(self, at: int | slice) -> Word | tuple[Word, ...]:
        if isinstance(at, slice):
            first, after, step = at.indices(len(self))
            return self._read(first, after)[::step] if step > 0 else tuple(self)[at]
        number = at + len(self) if at < 0 else at
        if not 0 <= number < len(self):
            raise IndexError(at)
        run = number // _RUN * _RUN
        if self._run[0] != run:
            self._run = (run, self._read(run, min(run + _RUN, len(self))))
        return self._run[1][number - run]

    def _read(self, first: int, after: int) -> tuple[Word, ...]:
        if first >= after:
            return ()
        begin = self._find(first)
        end = len(self._listed) if after == len(self) else self._find(after) - len(NEXT)
        return word_list.validate_json(b"[" + self._listed[begin:end] + b"]")

    def _find(self, number: int) -> int:
        """Where a word begins."""
        if not number:
            return 0
        block = bisect_right(self._blocks, number - 1) - 1
        at = block * _BLOCK - 1
        for _ in range(number - self._blocks[block]):
            at = self._listed.index(BETWEEN, at + 1)
        return at + len(b"\n    },\n")
