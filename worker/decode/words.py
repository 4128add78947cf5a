"""From a hypothesis's tokens and frames to words with seconds.

Knows sentencepiece's mark for the start of a word; does not know chunks, only the offset it is given.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from spool.domain.transcript import Word
from worker.decode.types import Hypothesis

WORD_START = "▁"
UNKNOWN = "<unk>"  # decoded with a space on both sides, so it is a word of its own
DIGITS = 3  # milliseconds
# What is printed is far coarser than what a batch's shape does to a float (docs/numerics.md), so
# that a transcript does not tell its batch (law 7).
CONFIDENCE_DIGITS = 3
SCORE_DIGITS = 3


class Decoder(Protocol):
    """What words need of a tokenizer."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """The piece of each id."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""


def words_of(
    hypothesis: Hypothesis, tokenizer: Decoder, frame_seconds: float, offset_seconds: float = 0.0
) -> list[Word]:
    """The hypothesis's words in order; their texts joined by spaces are the tokenizer's text of all tokens.

    A word starts when its first token is emitted and ends when its last one does (its frame + its duration,
    at least one frame), but not after the next word's start. Times are seconds, `offset_seconds` added, to
    the millisecond, and never decrease. Confidence is the lowest of the word's tokens, 0 where a search
    gave none.
    """
    groups = [
        (text, first, last)
        for first, last in _groups(hypothesis.tokens, tokenizer.pieces)
        if (text := tokenizer.decode(hypothesis.tokens[first:last]).strip())
    ]

    def seconds(frames: int) -> float:
        return round(max(offset_seconds + frames * frame_seconds, 0.0), DIGITS)

    words: list[Word] = []
    limit: float | None = None
    for text, first, last in reversed(groups):
        start = seconds(hypothesis.times[first])
        end = seconds(hypothesis.times[last - 1] + max(hypothesis.durations[last - 1], 1))
        confidence = round(min(hypothesis.confidences[first:last], default=0.0), CONFIDENCE_DIGITS)
        words.append(
            Word(text=text, start=start, end=end if limit is None else min(end, limit), confidence=confidence)
        )
        limit = start
    return words[::-1]


def _groups(tokens: Sequence[int], pieces: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Half-open ranges of tokens that make one word each."""
    first = 0
    for index in range(1, len(tokens)):
        if begins_word(pieces[tokens[index - 1]], pieces[tokens[index]]):
            yield first, index
            first = index
    if tokens:
        yield first, len(tokens)


def begins_word(before: str, piece: str) -> bool:
    """Does a word begin between these two pieces?"""
    # A mark alone opens the word that follows, so the next piece's own mark still begins another.
    return piece.startswith(WORD_START) or UNKNOWN in (piece, before)
