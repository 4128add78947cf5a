"""From a hypothesis's tokens and frames to words with times in seconds. The tokenizer divides tokens into
words."""

from collections.abc import Sequence
from typing import Protocol

from spool.domain.recognition import Hypothesis, WordFrames
from spool.domain.transcript import Word
from worker.models.base import TokenSpan, is_wide

DIGITS = 3  # milliseconds
# Rounding hides the differences that a batch's shape makes to floats (docs/numerics.md), so that a transcript
# does not depend on its batch (law 7).
CONFIDENCE_DIGITS = 3
SCORE_DIGITS = 3


class WordTokenizer(Protocol):
    """The part of a tokenizer that words need."""

    def words(self, tokens: Sequence[int], language: str | None = None) -> list[TokenSpan]:
        """The words that tokens spell."""


class TextTokenizer(Protocol):
    """The part of a tokenizer that texts need."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens."""


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
    the millisecond, and never decrease. Confidence is the lowest of the word's tokens, 0 if a search gives
    none. A search that knows words gives their frames itself.
    """

    def seconds(frames: int) -> float:
        return round(max(offset_seconds + frames * frame_seconds, 0.0), DIGITS)

    words: list[Word] = []
    limit: float | None = None
    for spoken in reversed(_list_words(hypothesis, tokenizer, language)):
        start, end = seconds(spoken.first), seconds(spoken.last)
        words.append(
            Word(
                text=spoken.text.strip(),
                start=start,
                end=end if limit is None else min(end, limit),
                confidence=round(spoken.confidence, CONFIDENCE_DIGITS),
            )
        )
        limit = start
    return words[::-1]


def _list_words(
    hypothesis: Hypothesis, tokenizer: WordTokenizer, language: str | None
) -> Sequence[WordFrames]:
    if hypothesis.spoken is not None:
        return hypothesis.spoken
    return [
        WordFrames(
            span.text,
            hypothesis.times[span.first],
            hypothesis.times[span.last - 1] + max(hypothesis.durations[span.last - 1], 1),
            min(hypothesis.confidences[span.first : span.last], default=0.0),
        )
        for span in tokenizer.words(hypothesis.tokens, language)
    ]


def text_of(hypothesis: Hypothesis, tokenizer: TextTokenizer) -> str:
    """The hypothesis's text: that of its words if the search knows them, else of its tokens."""
    if hypothesis.spoken is None:
        return tokenizer.decode(hypothesis.tokens).strip()
    text = ""
    for word in hypothesis.spoken:
        glued = not text or is_wide(text[-1]) or is_wide(word.text[0])
        text += word.text if glued else f" {word.text}"
    return text
