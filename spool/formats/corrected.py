"""A corrected transcript as JSON, made from the record's own bytes: only what was corrected is read and
written.

To read and write 20 hours of words takes seconds, and a few of them are corrected.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import TypeAdapter

from spool.domain.archive.edits import Edit, apply_edits, find_effective_edits
from spool.domain.spacing import join_words
from spool.domain.transcript import Correction, Segment, Transcript, Word, count_words
from spool.formats.parts import BETWEEN, NEXT, RecordParts, split_record, word_list
from spool.formats.rendering import render_bytes

_TEXT = re.compile(rb'\n      "text": (".*"),\n')
_RANGE = re.compile(rb'"first_word": (\d+),\n      "last_word": (\d+)')
_SHORTEST, _FEW = 80, 16
"""No word takes fewer bytes, so more than a few words don't end within as many times these."""

_segment_list = TypeAdapter(tuple[Segment, ...])
_text_list = TypeAdapter(list[str])


def correct_record(record: bytes, edits: Sequence[Edit], names: Mapping[str, str]) -> list[bytes]:
    """The record with `edits` applied and its speakers named, as consecutive pieces of JSON: the bytes of
    `render_bytes(apply_edits(transcript, edits).with_names(names), "json")`."""
    parts = split_record(record)
    live = find_effective_edits(edits)
    if parts is not None and live:
        parts = _correct(parts, live)
    if parts is not None:
        return parts.render(names)
    whole = Transcript.model_validate_json(record)
    return [render_bytes(apply_edits(whole, edits).with_names(names), "json")]


def _correct(parts: RecordParts, edits: Sequence[Edit]) -> RecordParts | None:
    """None unless the segments have all words, in order, and some word is left."""
    words = _WordReader(parts.words[0])
    segments = _cut_segments(parts.segments)
    ranges = [(int(first), int(last)) for first, last in _RANGE.findall(parts.segments)]
    if [first for first, _ in ranges] != [0, *(last + 1 for _, last in ranges[:-1])]:
        return None
    if len(ranges) != len(segments) or ranges[-1][1] + 1 != words.count:
        return None
    written: list[bytes] = []
    shown: list[bytes] = []
    corrections: list[Correction] = []
    spoken = {speaker.label: speaker.words for speaker in parts.around.speakers}
    done = grown = 0  # segments that are dealt with; words that were added before them
    for begin, end in _find_touched([first for first, _ in ranges], edits):
        first, last = ranges[begin][0], ranges[end - 1][1]
        written.append(words.take(first))
        shown.append(_move(NEXT.join(segments[done:begin]), grown))
        own = parts.around.model_copy(
            update={
                "words": word_list.validate_json(b"[" + words.take(last + 1) + b"]"),
                "segments": _segment_list.validate_json(
                    b"[" + _move(NEXT.join(segments[begin:end]), -first) + b"]"
                ),
            }
        )
        new = apply_edits(own, [edit.shift(-first) for edit in edits if edit.touches(first, last)])
        for before, after in zip(count_words(own.speakers, own.words), new.speakers, strict=True):
            spoken[after.label] += after.words - before.words
        corrections += (_place(each, first, first + grown) for each in new.corrections)
        written.append(_write(new.words))
        shown.append(_move(_write(new.segments), first + grown))
        grown += len(new.words) - len(own.words)
        done = end
    written.append(words.take(words.count))
    shown.append(_move(NEXT.join(segments[done:]), grown))
    if not any(written):
        return None
    left = NEXT.join(filter(None, shown))
    corrected = {
        "text": join_words(_text_list.validate_json(b"[" + b",".join(_TEXT.findall(left)) + b"]")),
        "speakers": tuple(
            each.model_copy(update={"words": spoken[each.label]}) for each in parts.around.speakers
        ),
        "corrections": tuple(corrections),
    }
    return RecordParts(parts.around.model_copy(update=corrected), list(_separate(written)), left)


class _WordReader:
    """The words of a record from first to last."""

    def __init__(self, listed: bytes) -> None:
        self.count = listed.count(BETWEEN) + 1
        self._listed = listed
        self._taken = 0
        self._at = 0

    def take(self, end: int) -> bytes:
        """The next words, up to the one before `end`."""
        begin = self._at
        if end == self.count:
            self._at = len(self._listed) + len(NEXT)
        else:
            self._skip(end - self._taken)
        self._taken = end
        return self._listed[begin : max(begin, self._at - len(NEXT))]

    def _skip(self, words: int) -> None:
        while words > _FEW:
            end = self._at + words * _SHORTEST
            words -= self._listed.count(BETWEEN, self._at, end)
            self._at = end - len(BETWEEN) + 1
        for _ in range(words):
            self._at = self._listed.index(BETWEEN, self._at) + len(b"\n    },\n")


def _cut_segments(listed: bytes) -> list[bytes]:
    first, last = b"    {\n", b"\n    }"
    return [first + each + last for each in listed.removeprefix(first).removesuffix(last).split(BETWEEN)]


def _find_touched(firsts: Sequence[int], edits: Sequence[Edit]) -> Iterator[tuple[int, int]]:
    """Which segments edits touch, as ranges in order; those that share an edit are in one range. firsts: the
    segments' first words."""
    begin = end = 0
    for edit in sorted(edits, key=lambda each: each.first_word):
        at = bisect_right(firsts, edit.first_word) - 1
        if at >= end:
            if end:
                yield begin, end
            begin = at
        end = max(end, bisect_right(firsts, edit.last_word))
    yield begin, end


def _move(segments: bytes, by: int) -> bytes:
    def move(found: re.Match[bytes]) -> bytes:
        return b'"first_word": %d,\n      "last_word": %d' % (int(found[1]) + by, int(found[2]) + by)

    return _RANGE.sub(move, segments) if by else segments


def _place(correction: Correction, recognised: int, shown: int) -> Correction:
    return correction.model_copy(
        update={
            "word": correction.word + shown,
            "first_word": correction.first_word + recognised,
            "last_word": correction.last_word + recognised,
        }
    )


def _write(elements: Sequence[Word | Segment]) -> bytes:
    """As the inside of a list."""
    lines = (each.model_dump_json(indent=2).replace("\n", "\n    ") for each in elements)
    return ",\n".join(f"    {each}" for each in lines).encode()


def _separate(lists: Iterable[bytes]) -> Iterator[bytes]:
    """The elements of all lists as the inside of one, without copying them."""
    some = False
    for each in filter(None, lists):
        if some:
            yield NEXT
        yield each
        some = True
