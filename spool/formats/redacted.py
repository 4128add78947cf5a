"""A transcript as JSON without what is closed, made from the record's own bytes: only segments with closed
words are read and written."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from spool.domain.archive.closures import ClosedParts, name_speakers
from spool.domain.archive.edits import Edit, apply_edits, rebuild_words
from spool.domain.transcript import Transcript, Word
from spool.formats.corrected import correct_parts
from spool.formats.parts import (
    NEXT,
    RecordParts,
    cut_list,
    move_words,
    read_ranges,
    read_text,
    segment_list,
    separate,
    word_list,
    write_list,
)
from spool.formats.rendering import render_bytes

_TIMES = re.compile(rb'\n      "start": ([^,\n]+),\n      "end": ([^,\n]+),\n')
_SPEAKER = re.compile(rb'\n      "speaker": ("speaker_\d+")')


def redact_record(
    record: bytes, edits: Sequence[Edit], names: Mapping[str, str], closed: ClosedParts
) -> list[bytes]:
    """The record with `edits` applied and its speakers named, without what is closed, as consecutive pieces
    of JSON: the bytes of rendering `closed.redact` of the transcript."""
    parts = None if closed.is_whole else correct_parts(record, edits)
    if parts is not None and closed:
        parts = _redact(parts, closed)
    if parts is not None:
        return parts.render(names)
    whole = Transcript.model_validate_json(record)
    return [render_bytes(closed.redact(apply_edits(whole, edits).with_names(names)), "json")]


def mark_record(
    record: bytes, edits: Sequence[Edit], names: Mapping[str, str], closed: ClosedParts
) -> list[bytes]:
    """All of it, with marks of what is closed to others: the bytes of rendering `closed.mark`."""
    parts = correct_parts(record, edits)
    if parts is not None:
        return parts._replace(around=closed.mark(parts.around)).render(names)
    whole = Transcript.model_validate_json(record)
    return [render_bytes(closed.mark(apply_edits(whole, edits).with_names(names)), "json")]


class _Stretch(NamedTuple):
    """Segments in a row that have closed words, as readers see them. before: the number of its first word,
    which `shown` counts from 0."""

    begin: int
    end: int
    before: int
    after: int
    shown: Transcript


def _redact(parts: RecordParts, closed: ClosedParts) -> RecordParts | None:
    """None unless the segments have all words, in order, and all is laid out as `render` does."""
    listed = b"".join(parts.words)
    words, segments = cut_list(listed), cut_list(parts.segments)
    ranges = read_ranges(parts.segments, len(words))
    times = _TIMES.findall(listed)
    labels = {each.label for each in parts.around.speakers}
    known = {f'"{label}"'.encode() for label in labels}
    if len(ranges) != len(segments) or len(times) != len(words):
        return None
    if not {*_SPEAKER.findall(parts.segments)} <= known:
        return None
    silenced = _find_closed(words, times, closed)
    firsts = [first for first, _ in ranges]
    touched = {bisect_right(firsts, at) - 1 for at in silenced}
    if known:
        touched |= {
            at
            for at, (first, last) in enumerate(ranges)
            if _speaker(segments[at]) != _find_speaker(words[first : last + 1], known)
        }
    spoken = {label: listed.count(b'\n      "speaker": "%s"' % label.encode()) for label in labels}
    stretches = []
    for begin, end in _join(sorted(touched)):
        stretch = _open(parts.around, closed, words, segments, ranges, begin, end)
        stretches.append(stretch[0])
        for label in labels:
            spoken[label] += stretch[1][label]
    speakers = tuple(each.model_copy(update={"words": spoken[each.label]}) for each in parts.around.speakers)
    around = closed.redact_around(parts.around.model_copy(update={"speakers": speakers}))
    return _write(around, words, segments, stretches)


def _find_closed(
    words: Sequence[bytes], times: Iterable[tuple[bytes, bytes]], closed: ClosedParts
) -> list[int]:
    """The numbers of the closed words."""
    flags = closed.find_closed((float(start), float(end), None) for start, end in times)
    found = {at for at, is_closed in enumerate(flags) if is_closed}
    for label in closed.labels:
        own = b'\n      "speaker": "%s"' % label.encode()
        found |= {at for at, word in enumerate(words) if own in word}
    return sorted(found)


def _speaker(element: bytes) -> bytes | None:
    found = _SPEAKER.search(element)
    return found[1] if found else None


def _find_speaker(words: Iterable[bytes], known: Container[bytes]) -> bytes | None:
    """The first speaker of these words that is known."""
    return next((own for word in words if (own := _speaker(word)) in known), None)


def _join(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Runs of following numbers: the first, and the one after the last."""
    begin = end = -1
    for number in numbers:
        if number != end:
            if end > 0:
                yield begin, end
            begin = number
        end = number + 1
    if end > 0:
        yield begin, end


def _open(
    around: Transcript,
    closed: ClosedParts,
    words: Sequence[bytes],
    segments: Sequence[bytes],
    ranges: Sequence[tuple[int, int]],
    begin: int,
    end: int,
) -> tuple[_Stretch, Counter[str | None]]:
    """A stretch, and how many words of each speaker it has more than before."""
    first, last = ranges[begin][0], ranges[end - 1][1]
    read = word_list.validate_json(b"[" + _as_list(words[first : last + 1]) + b"]")
    listed = move_words(_as_list(segments[begin:end]), -first)
    own = around.model_copy(
        update={"words": read, "segments": segment_list.validate_json(b"[" + listed + b"]")}
    )
    shown, homes = closed.open_words(read)
    more = Counter(word.speaker for word in shown)
    more.subtract(Counter(word.speaker for word in read))
    return _Stretch(begin, end, first, last + 1, rebuild_words(own, shown, homes)), more


def _as_list(elements: Sequence[bytes]) -> bytes:
    return NEXT.join(elements)


def _write(
    around: Transcript, words: Sequence[bytes], segments: Sequence[bytes], stretches: Iterable[_Stretch]
) -> RecordParts:
    written: list[bytes] = []
    shown: list[bytes] = []
    word = segment = grown = 0  # what is written, and how many words more than before there are
    for each in stretches:
        own: Sequence[Word] = each.shown.words
        named = name_speakers(each.shown.model_copy(update={"speakers": around.speakers}), own)
        written += (_as_list(words[word : each.before]), write_list(own))
        shown.append(move_words(_as_list(segments[segment : each.begin]), grown))
        shown.append(move_words(write_list(named), each.before + grown))
        grown += len(own) - (each.after - each.before)
        word, segment = each.after, each.end
    written.append(_as_list(words[word:]))
    shown.append(move_words(_as_list(segments[segment:]), grown))
    left = NEXT.join(filter(None, shown))
    text = read_text(left)
    return RecordParts(around.model_copy(update={"text": text}), list(separate(written)), left)
