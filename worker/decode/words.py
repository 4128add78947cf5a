"""From a hypothesis's tokens and frames to words with seconds.

Where words begin is the tokenizer's business; chunks are others', all but the offset that is given.
"""

from collections.abc import Sequence
from typing import Protocol

from spool.domain.transcript import Word
from worker.decode.types import Hypothesis
from worker.models.base import TokenSpan

DIGITS = 3  # milliseconds
# What is printed is far coarser than what a batch's shape does to a float (docs/numerics.md), so
# that a transcript does not tell its batch (law 7).
CONFIDENCE_DIGITS = 3
SCORE_DIGITS = 3


class WordTokenizer(Protocol):
    """What words need of a tokenizer."""

    def words(self, tokens: Sequence[int], language: str | None = None) -> list[TokenSpan]:
        """The words that tokens spell."""


def words_of(
    hypothesis: Hypothesis,
    tokenizer: WordTokenizer,
    frame_seconds: float,
    offset_seconds: float = 0.0,
    language: str | None = None,
) -> list[Word]:
    """The hypothesis's words in order, as the tokenizer divides them.

    A word starts when its first token is emitted and ends when its last one does (its frame + its duration,
    at least one frame), but not after the next word's start. Times are seconds, `offset_seconds` added, to
    the millisecond, and never decrease. Confidence is the lowest of the word's tokens, 0 where a search
    gave none.
    """

    def seconds(frames: int) -> float:
        return round(max(offset_seconds + frames * frame_seconds, 0.0), DIGITS)

    words: list[Word] = []
    limit: float | None = None
    for span in reversed(tokenizer.words(hypothesis.tokens, language)):
        first, last = span.first, span.last
        start = seconds(hypothesis.times[first])
        end = seconds(hypothesis.times[last - 1] + max(hypothesis.durations[last - 1], 1))
        confidence = round(min(hypothesis.confidences[first:last], default=0.0), CONFIDENCE_DIGITS)
        words.append(
            Word(
                text=span.text.strip(),
                start=start,
                end=end if limit is None else min(end, limit),
                confidence=confidence,
            )
        )
        limit = start
    return words[::-1]
