"""Sounds of a window in which no word of its answer begins: a decoder that stops at a long pause, or passes
over a speaker, leaves them out, and its own times do not tell.

Compares the words' times with levels. Neither clock nor chance; knows no family and no other window.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from worker.models.attention.windows import ROUNDS_MAX
from worker.models.base_attention import SAMPLE_RATE, Window
from worker.segmentation.levels import FRAME, frame_moments, levels_of, pauses

PAUSE_SECONDS = 0.5  # sounds that less parts are one
SOUND_SECONDS_MIN = 0.5  # a shorter one may be a breath or a click
EARLY_SECONDS = 0.1  # a word's start may lie that much before the end of the sound before its own
LATE_SECONDS = 0.02  # a start at the very end of a sound belongs to the next
MARGIN_SECONDS = 0.3  # heard before and behind what is asked again
SHORTER_SECONDS = 0.5  # what is asked again is shorter than the window by this at least

Span = tuple[float, float]


def unread_windows(window: Window, samples: NDArray[np.float32], starts: Sequence[float]) -> list[Window]:
    """What is to be asked again of a window of these samples. starts: seconds from its start at which the
    tokens of its words begin, in order. Nothing where there is no word, or no round left."""
    if window.round >= ROUNDS_MAX or not len(starts):
        return []
    spans = unread_spans(sounds(samples), starts, window.seconds)
    return [
        Window(
            window.start + round(first * SAMPLE_RATE),
            min(window.start + round(last * SAMPLE_RATE), window.stop),
            window.round + 1,
        )
        for first, last in spans
        if last - first <= window.seconds - SHORTER_SECONDS
    ]


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
