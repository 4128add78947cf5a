"""Groups words into segments of readable length.

A segment ends at a pause of 0.8 s and after a sentence. One that would exceed 15 s or 200 characters is
divided in its second half, after a comma if there is one, else at the longest pause. Segments never cross
channels or speakers.

`Transcript.words` is ordered by channel and then by start, so that a segment is a contiguous range of it;
segments are ordered by start over all channels, as a conversation is read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spool.domain.spacing import join_words
from spool.domain.transcript import Segment, Word

_CLOSERS = "\"'»)]\N{RIGHT DOUBLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}"
_OPENERS = "\"'«([\N{LEFT DOUBLE QUOTATION MARK}\N{LEFT SINGLE QUOTATION MARK}"
_WIDE = ("\N{FULLWIDTH QUESTION MARK}", "\N{FULLWIDTH EXCLAMATION MARK}")
_ENDS = (".", "?", "!", "…", "。", *_WIDE)
_COMMAS = (",", ";", ":", "\N{EN DASH}", "\N{EM DASH}", "、", "\N{FULLWIDTH COMMA}")
_ABBREVIATIONS = frozenset(
    (
        "mr",
        "mrs",
        "ms",
        "messrs",
        "dr",
        "prof",
        "st",
        "rev",
        "hon",
        "gen",
        "col",
        "capt",
        "lt",
        "sgt",
        "vs",
        "e.g",
        "i.e",
    )
)


@dataclass(frozen=True)
class SegmentOptions:
    """Limits of a segment, in seconds and characters."""

    pause: float = 0.8
    max_seconds: float = 15.0
    max_characters: int = 200


def segments_of(words: Sequence[Word], options: SegmentOptions | None = None) -> list[Segment]:
    """The segments of `words`, ordered by start; `first_word` and `last_word` index `words`, both
    inclusive.

    Raises `ValueError` where `words` are not ordered by channel and then by start.
    """
    keys = [(word.channel, word.start) for word in words]
    if keys != sorted(keys):
        raise ValueError("words must be ordered by channel and then by start")
    options = options or SegmentOptions()
    segments = [_segment(words, first, last) for first, last in _ranges(words, options)]
    return sorted(segments, key=lambda segment: (segment.start, segment.channel))


def ends_sentence(text: str) -> bool:
    """Whether a word ends a sentence by its punctuation, and is neither an initial nor an abbreviation."""
    bare = text.rstrip(_CLOSERS)
    if not bare.endswith(_ENDS):
        return False
    stem = bare.rstrip("".join(_ENDS)).lstrip(_OPENERS)
    initial = len(stem) == 1 and stem.isupper() and stem != "I"
    return not (bare.endswith(".") and (initial or stem.casefold() in _ABBREVIATIONS))


def ends_clause(text: str) -> bool:
    """Whether a word ends a sentence or a clause by its punctuation."""
    return ends_sentence(text) or text.rstrip(_CLOSERS).endswith(_COMMAS)


def _ranges(words: Sequence[Word], options: SegmentOptions) -> Iterator[tuple[int, int]]:
    """`(first, last)` indices, both inclusive, tiling `words`."""
    first = 0
    for index, word in enumerate(words):
        while index > first and _too_long(words, first, index, options):
            last = _best_end(words, first, index - 1)
            yield first, last
            first = last + 1
        if index + 1 == len(words) or _breaks(word, words[index + 1], options):
            yield first, index
            first = index + 1


def _breaks(word: Word, following: Word, options: SegmentOptions) -> bool:
    apart = following.channel != word.channel or following.start - word.end > options.pause
    return apart or following.speaker != word.speaker or ends_sentence(word.text)


def _too_long(words: Sequence[Word], first: int, last: int, options: SegmentOptions) -> bool:
    characters = sum(len(words[index].text) + 1 for index in range(first, last + 1)) - 1
    seconds = words[last].end - words[first].start
    return characters > options.max_characters or seconds > options.max_seconds


def _best_end(words: Sequence[Word], first: int, last: int) -> int:
    """The word of `[first, last]` after which to divide; `words[last + 1]` is the one that does not fit."""
    half = (words[first].start + words[last].end) / 2
    places = [index for index in range(first, last + 1) if words[index].end >= half] or [last]
    return max(
        places,
        key=lambda index: (
            ends_clause(words[index].text),
            round(words[index + 1].start - words[index].end, 3),
            index,
        ),
    )


def _segment(words: Sequence[Word], first: int, last: int) -> Segment:
    text = " ".join(join_words(words[index].text for index in range(first, last + 1)).split())
    return Segment(
        start=words[first].start,
        end=max(words[first].start, words[last].end),
        text=text,
        channel=words[first].channel,
        first_word=first,
        last_word=last,
        speaker=words[first].speaker,
    )
