"""When the tokens and words of a window were spoken, in frames and seconds of its utterance."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spool.domain.recognition import Hypothesis
from spool.domain.transcript import Word
from worker.decode.alignment.aligner import align_texts
from worker.decode.alignment.words import AlignedWord
from worker.decode.attention.assembly import text_tokens
from worker.decode.words import CONFIDENCE_DIGITS, DIGITS
from worker.models.base import TokenSpan
from worker.models.base_attention import (
    SAMPLE_RATE,
    AttentionModel,
    HeardWindow,
    TimedText,
    TokenTimes,
    Window,
)


def time_words(model: AttentionModel, windows: Sequence[HeardWindow]) -> list[TimedText]:
    """The tokens and words of each window in time. Words that the family cannot time are timed by its aligner
    where it has one, else they stand side by side."""
    timed, spelled = model.time(windows), {}
    for index, window in enumerate(windows):
        if timed[index].words is None:
            text = text_tokens(model, window.tokens)
            spelled[index] = model.tokenizer.words(text, window.prompt.language)
    alignments: list[tuple[AlignedWord, ...] | None] = [None] * len(spelled)
    if model.aligner is not None:
        texts = [" ".join(span.text for span in spans) for spans in spelled.values()]
        alignments = align_texts(model.aligner, [windows[index].samples for index in spelled], texts)
    for (index, spans), aligned in zip(spelled.items(), alignments, strict=True):
        times = timed[index].times
        if aligned is not None and len(aligned) == len(spans):
            times = _times_by_aligner(times, spans, aligned)
            seconds = [(word.start, word.end) for word in aligned]
        else:
            seconds = [(float(times.starts[span.first]), float(times.starts[span.last])) for span in spans]
        timed[index] = TimedText(times, _words(spans, seconds, times.probabilities))
    return timed


def _times_by_aligner(
    times: TokenTimes, spans: Sequence[TokenSpan], aligned: Sequence[AlignedWord]
) -> TokenTimes:
    """The tokens of a word share the aligner's time for it evenly."""
    starts = np.full(len(times.starts), aligned[-1].end if aligned else times.starts[-1], np.float32)
    for span, word in zip(spans, aligned, strict=True):
        starts[span.first : span.last] = np.linspace(word.start, word.end, span.last - span.first, False)
    # Tokens that are in no word stand where the next one begins.
    for at in range(len(starts) - 2, -1, -1):
        if not any(span.first <= at < span.last for span in spans):
            starts[at] = starts[at + 1]
    return TokenTimes(starts, times.probabilities)


def _words(
    spans: Sequence[TokenSpan], seconds: Sequence[tuple[float, float]], shares: NDArray[np.float32]
) -> tuple[Word, ...]:
    """The words with their start and end; as sure as the least probable of their tokens."""
    return tuple(
        Word(
            text=span.text.strip(),
            start=start,
            end=end,
            confidence=float(shares[span.first : span.last].min(initial=1.0)),
        )
        for span, (start, end) in zip(spans, seconds, strict=True)
    )


def place_tokens(
    model: AttentionModel, tokens: Sequence[int], score: float, times: TokenTimes, window: Window
) -> Hypothesis:
    """Tokens with their frames in the utterance; what is no text lies where the next text does."""
    opening = model.opening(tokens).length
    begin = window.start / SAMPLE_RATE
    frames = [round((begin + float(start)) / model.info.frame_seconds) for start in times.starts]
    starts, lengths, shares, at = [], [], [], 0
    for place, token in enumerate(tokens):
        text = place >= opening and model.is_text(token)
        starts.append(frames[at])
        lengths.append(frames[at + 1] - frames[at] if text else 0)
        shares.append(float(times.probabilities[at]) if text else 0.0)
        at += text
    return Hypothesis(tuple(tokens), score, tuple(starts), tuple(lengths), tuple(shares))


def place_word(word: Word, window: Window, samples: int) -> Word:
    """The word in seconds of its utterance of so many samples, within it."""
    begin, end = window.start / SAMPLE_RATE, samples / SAMPLE_RATE
    return word.model_copy(
        update={
            "start": round(min(begin + word.start, end), DIGITS),
            "end": round(min(begin + word.end, end), DIGITS),
            "confidence": round(word.confidence, CONFIDENCE_DIGITS),
        }
    )
