"""A corrected transcript as JSON, made from the record's own bytes: only what was corrected is read and
written.

To read and write 20 hours of words takes seconds, and a few of them are corrected.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from spool.domain.archive.edits import Edit, apply_edits, find_effective_edits
from spool.domain.transcript import Correction, Transcript, recount_speakers
from spool.formats.parts import (
    BETWEEN,
    NEXT,
    RecordParts,
    cut_list,
    move_words,
    read_ranges,
    read_text,
    segment_list,
    separate,
    split_record,
    word_list,
    write_list,
)
from spool.formats.rendering import render_bytes

_SHORTEST, _FEW = 80, 16
"""No word takes fewer bytes, so more than a few words don't end within as many times these."""


def correct_record(record: bytes, edits: Sequence[Edit], names: Mapping[str, str]) -> list[bytes]:
    """The record with `edits` applied and its speakers named, as consecutive pieces of JSON: the bytes of
    `render_bytes(apply_edits(transcript, edits).with_names(names), "json")`."""
    parts = correct_parts(record, edits)
    if parts is not None:
        return parts.render(names)
    whole = Transcript.model_validate_json(record)
    return [render_bytes(apply_edits(whole, edits).with_names(names), "json")]


def correct_parts(record: bytes, edits: Sequence[Edit]) -> RecordParts | None:
    """The parts of the record with `edits` applied; None if they cannot be told apart, or no word is left."""
    parts = split_record(record)
    live = find_effective_edits(edits)
    return _correct(parts, live) if parts is not None and live else parts


def _correct(parts: RecordParts, edits: Sequence[Edit]) -> RecordParts | None:
    """None unless the segments have all words, in order, and some word is left."""
    words = _WordReader(parts.words[0])
    segments = cut_list(parts.segments)
    ranges = read_ranges(parts.segments, words.count)
    if len(ranges) != len(segments):
        return None
    written: list[bytes] = []
    shown: list[bytes] = []
    corrections: list[Correction] = []
    spoken = {speaker.label: speaker.words for speaker in parts.around.speakers}
    done = grown = 0  # segments that are dealt with; words that were added before them
    for begin, end in _find_touched([first for first, _ in ranges], edits):
        first, last = ranges[begin][0], ranges[end - 1][1]
        written.append(words.take(first))
        shown.append(move_words(NEXT.join(segments[done:begin]), grown))
        own = parts.around.model_copy(
            update={
                "words": word_list.validate_json(b"[" + words.take(last + 1) + b"]"),
                "segments": segment_list.validate_json(
                    b"[" + move_words(NEXT.join(segments[begin:end]), -first) + b"]"
                ),
            }
        )
        new = apply_edits(own, [edit.shift(-first) for edit in edits if edit.touches(first, last)])
        for before, after in zip(recount_speakers(own.speakers, own.words), new.speakers, strict=True):
            spoken[after.label] += after.words - before.words
        corrections += (_place(each, first, first + grown) for each in new.corrections)
        written.append(write_list(new.words))
        shown.append(move_words(write_list(new.segments), first + grown))
        grown += len(new.words) - len(own.words)
        done = end
    written.append(words.take(words.count))
    shown.append(move_words(NEXT.join(segments[done:]), grown))
    if not any(written):
        return None
    left = NEXT.join(filter(None, shown))
    corrected = {
        "text": read_text(left),
        "speakers": tuple(
            each.model_copy(update={"words": spoken[each.label]}) for each in parts.around.speakers
        ),
        "corrections": tuple(corrections),
    }
    return RecordParts(parts.around.model_copy(update=corrected), list(separate(written)), left)


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


def _place(correction: Correction, recognised: int, shown: int) -> Correction:
    return correction.model_copy(
        update={
            "word": correction.word + shown,
            "first_word": correction.first_word + recognised,
            "last_word": correction.last_word + recognised,
        }
    )
