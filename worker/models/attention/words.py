"""From the times of tokens to words with seconds.

Words end where the next begins, so one before a pause swallows it, and one behind a pause begins too early.
OpenAI's cure shortens words that are longer than twice the median at sentence marks and at the start; here a
chunk is cured by itself. (openai-whisper, timing.add_word_timestamps.) What is still heard in a pause is cut
off then, as stable-ts does (`suppress_silence`). Knows no chunk's place in a recording.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spool.domain.transcript import Word
from worker.models.attention.unread import pause_spans
from worker.models.base import TokenSpan
from worker.models.base_attention import TokenTimes

OPENING = "\"'“¿([{-"
CLOSING = "\"'.。,，!！?？:：”)]}、"  # noqa: RUF001 - full-width marks are meant
SENTENCE_MARKS = ".。!！?？"  # noqa: RUF001 - full-width marks are meant
MEDIAN_SECONDS_MAX = 0.7
WORD_PAUSE_SECONDS = 0.2  # what counts as a pause between words, as where chunks are cut


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word with its space and marks, seconds from the window's start, its tokens' mean probability."""

    text: str
    start: float
    end: float
    probability: float

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return self.end - self.start


def find_words(
    spans: Sequence[TokenSpan], times: TokenTimes, samples: NDArray[np.float32], *, spaced: bool
) -> tuple[Word, ...]:
    """The words of a window of these samples in seconds from its start. spans, times: as for `time_words`;
    spaced: whether the language is written with spaces."""
    if not spans:
        return ()
    timed = without_pauses(time_words(spans, times), pause_spans(samples, WORD_PAUSE_SECONDS))
    return tuple(
        Word(text=text, start=word.start, end=max(word.start, word.end), confidence=word.probability)
        for word in (join_unspaced(timed) if spaced else timed)
        if (text := word.text.strip())
    )


def time_words(spans: Sequence[TokenSpan], times: TokenTimes) -> list[TimedWord]:
    """spans: `Tokenizer.words` of the tokens that `times` are of. No word ends before it
    starts."""
    words = [_time_span(span, times) for span in spans]
    lengths = [word.seconds for word in words if word.seconds > 0]
    median = min(MEDIAN_SECONDS_MAX, float(np.median(lengths))) if lengths else 0.0
    words = _shorten_at_marks(words, 2 * median) if lengths else words
    by_first = {span.first: word for span, word in zip(spans, words, strict=True)}
    joined = []
    for span in join_punctuation(spans):
        parts = [by_first[part.first] for part in spans if span.first <= part.first < span.last]
        shares = times.probabilities[span.first : span.last]
        probability = float(shares.mean()) if len(shares) else 0.0
        joined.append(TimedWord(span.text, parts[0].start, parts[-1].end, probability))
    return _shorten_at_start(joined, median)


def without_pauses(words: Sequence[TimedWord], pauses: Sequence[tuple[float, float]]) -> list[TimedWord]:
    """The words without what of them lies in a pause (start and end in seconds, in order). A pause within a
    word leaves the longer side of it, the later of equals; a word that lies in one pause stays as it is."""
    cut = []
    for word in words:
        start, end = word.start, word.end
        for first, last in pauses:
            if last <= start or end <= first or (first <= start and end <= last):
                continue
            if end - last >= first - start:
                start = last
            else:
                end = first
        cut.append(replace(word, start=start, end=end))
    return cut


def join_unspaced(words: Sequence[TimedWord]) -> list[TimedWord]:
    """Pieces without a space before them, joined to the word before: `m` and `'appelle`, `92` and
    `-go`. Openai-whisper lists them as words of their own. Not for languages without spaces."""
    joined: list[TimedWord] = []
    for word in words:
        if joined and word.text and not word.text[0].isspace():
            last = joined[-1]
            probability = min(last.probability, word.probability)
            joined[-1] = replace(last, text=last.text + word.text, end=word.end, probability=probability)
        else:
            joined.append(word)
    return joined


def _time_span(span: TokenSpan, times: TokenTimes) -> TimedWord:
    shares = times.probabilities[span.first : span.last]
    start, end = float(times.starts[span.first]), float(times.starts[span.last])
    return TimedWord(span.text, start, end, float(shares.mean()) if len(shares) else 0.0)


def _shorten_at_marks(words: Sequence[TimedWord], longest: float) -> list[TimedWord]:
    out = list(words[:1])
    for before, word in pairwise(words):
        if word.seconds > longest:
            if word.text in SENTENCE_MARKS:
                word = replace(word, end=word.start + longest)
            elif before.text in SENTENCE_MARKS:
                word = replace(word, start=word.end - longest)
        out.append(word)
    return out


def _shorten_at_start(words: list[TimedWord], median: float) -> list[TimedWord]:
    """The first word, where it and the second swallowed the pause before them."""
    longest = 2 * median
    if not words or words[0].end <= 4 * median:
        return words
    first, second = words[0], words[1] if len(words) > 1 else None
    if first.seconds <= longest and (second is None or second.end - first.start <= 2 * longest):
        return words
    if second is not None and second.seconds > longest:
        boundary = max(second.end / 2, second.end - longest)
        first, second = replace(first, end=boundary), replace(second, start=boundary)
    first = replace(first, start=max(0.0, first.end - longest))
    return [first, *([second] if second is not None else []), *words[2:]]


def join_punctuation(words: Sequence[TokenSpan]) -> list[TokenSpan]:
    """Opening marks joined to the word that follows them, closing marks to the one before (openai-whisper,
    timing.merge_punctuations)."""
    joined: list[TokenSpan] = []
    for word in reversed(words):
        if joined and word.text.startswith(" ") and word.text.strip() in OPENING:
            after = joined.pop()
            joined.append(TokenSpan(word.text + after.text, word.first, after.last))
        else:
            joined.append(word)
    out: list[TokenSpan] = []
    for word in reversed(joined):
        if out and not out[-1].text.endswith(" ") and word.text in CLOSING:
            out[-1] = TokenSpan(out[-1].text + word.text, out[-1].first, word.last)
        else:
            out.append(word)
    return out
