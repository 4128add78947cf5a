"""What an answer leaves out of its window: sounds in which no word begins, and words that last too long to be
one. A decoder that stops at a long pause, or passes over a speaker, does not show it in its times.

Compares the words' times with levels. Neither clock nor chance; knows no family and no other window.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from worker.models.attention.windows import ROUNDS_MAX
from worker.models.base_attention import SAMPLE_RATE, Unread, Window
from worker.segmentation.levels import FRAME, frame_moments, levels_of, pauses

PAUSE_SECONDS = 0.5  # sounds that less parts are one
SOUND_SECONDS_MIN = 0.5  # a shorter one may be a breath or a click
EARLY_SECONDS = 0.1  # a word's start may lie that much before the end of the sound before its own
LATE_SECONDS = 0.02  # a start at the very end of a sound belongs to the next
MARGIN_SECONDS = 0.3  # heard before and behind what is asked again
WORD_SECONDS_MAX = 2.0  # no word and no mark sounds longer: others were left out
SHORTER_SECONDS = 0.5  # what is asked again is shorter than the window by this at least

Span = tuple[float, float]


def find_unread(window: Window, samples: NDArray[np.float32], starts: Sequence[float]) -> Unread:
    """What is to be asked again of a window of these samples. starts: seconds from its start at which the
    tokens of its words begin, in order. Nothing where there is no word, or no round left."""
    if window.round >= ROUNDS_MAX or not len(starts):
        return Unread()
    heard = sounds(samples)
    windows = tuple(
        Window(
            window.start + round(first * SAMPLE_RATE),
            min(window.start + round(last * SAMPLE_RATE), window.stop),
            window.round + 1,
        )
        for first, last in unread_spans(heard, starts, window.seconds)
        if last - first <= window.seconds - SHORTER_SECONDS
    )
    return Unread(windows, longest_word(heard, starts, window.seconds) > WORD_SECONDS_MAX)


def longest_word(heard: Sequence[Span], starts: Sequence[float], seconds: float) -> float:
    """The most sound, in seconds, from the start of one token to the next one's or the window's end."""
    edges = sorted({*starts, seconds})
    between = (
        sum(max(0.0, min(last, end) - max(first, start)) for first, last in heard)
        for start, end in pairwise(edges)
    )
    return max(between, default=0.0)


def sounds(samples: NDArray[np.float32]) -> list[Span]:
    """What lies between the pauses, in seconds."""
    at, spans = 0.0, []
    for first, last in pause_spans(samples, PAUSE_SECONDS):
        if first > at:
            spans.append((at, first))
        at = last
    end = len(samples) // FRAME * FRAME / SAMPLE_RATE
    if end > at:
        spans.append((at, end))
    return spans


def pause_spans(samples: NDArray[np.float32], shortest: float) -> list[Span]:
    """The pauses of so many seconds at least, in seconds."""
    step = FRAME / SAMPLE_RATE
    level = levels_of(frame_moments(samples))
    return [(first * step, last * step) for first, last in pauses(level, round(shortest / step))]


def unread_spans(heard: Sequence[Span], starts: Sequence[float], seconds: float) -> list[Span]:
    """Neighbouring sounds in which no start lies, with a margin; the last of all up to `seconds`, the
    window's end. A start in the pause before a sound belongs to it, for words begin too early there."""
    ends = [0.0, *(last for _, last in heard)]
    unread = [
        not any(before - EARLY_SECONDS <= start < last - LATE_SECONDS for start in starts)
        for before, (_, last) in zip(ends, heard, strict=False)
    ]
    spans, first = [], 0
    while first < len(heard):
        if not unread[first]:
            first += 1
            continue
        stop = first
        while stop < len(heard) and unread[stop]:
            stop += 1
        if sum(last - begin for begin, last in heard[first:stop]) >= SOUND_SECONDS_MIN:
            begin = max(heard[first][0] - MARGIN_SECONDS, ends[first])
            end = seconds if stop == len(heard) else min(heard[stop - 1][1] + MARGIN_SECONDS, heard[stop][0])
            spans.append((begin, end))
        first = stop
    return spans
