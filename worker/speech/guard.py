"""Checks words against the speech detector: which were probably invented, and how much speech has words.

Pure functions of timed words and the detector's probabilities; the caller decides what to drop. A true word
reaches a probability of 0.1 within 0.1 s of its time in 99.9 % of 6,224 cases (docs/speakers.md), so a word
that does not is doubtful, and only a segment of doubtful words alone is worth dropping.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from worker.audio.resample import SAMPLE_RATE
from worker.speech.detector import FRAME_SECONDS
from worker.speech.spans import Stretch

DOUBT = 0.1
MARGIN = 0.1
DROP_MARGIN = 0.5
"""Seconds: a model's times may be off by more than `MARGIN` (an isolated word was 0.2 s late), so a segment
is dropped only if there is no speech this far around its words."""


class HasTimes(Protocol):
    """Anything with a start and an end in seconds of the recording."""

    @property
    def start(self) -> float: ...

    @property
    def end(self) -> float: ...


def doubtful_words(
    words: Sequence[HasTimes],
    probabilities: NDArray[np.float32],
    threshold: float = DOUBT,
    margin: float = MARGIN,
) -> list[bool]:
    """For each word whether the detector stays below `threshold` from `margin` before it to `margin` after.

    A word beyond the last probability is judged by the last one; without any, no word is doubtful.
    """
    last = len(probabilities) - 1
    if last < 0:
        return [False] * len(words)
    verdicts = []
    for word in words:
        first = min(max(int((word.start - margin) / FRAME_SECONDS), 0), last)
        stop = max(int(np.ceil((word.end + margin) / FRAME_SECONDS)), first + 1)
        verdicts.append(bool(probabilities[first:stop].max() < threshold))
    return verdicts


def find_invented(doubtful: Sequence[bool], segments: Sequence[range]) -> list[bool]:
    """For each segment (a range of word indices) whether it has words and all of them are doubtful."""
    return [bool(segment) and all(doubtful[index] for index in segment) for segment in segments]


def measure_coverage(words: Sequence[HasTimes], stretches: Sequence[Stretch], reach: float = 0.5) -> float:
    """How much of the stretches lies within `reach` seconds of a word."""
    covered = _union([(max(0.0, word.start - reach), word.end + reach) for word in words])
    both = 0.0
    at = 0
    for first, last in stretches:
        start, end = first / SAMPLE_RATE, last / SAMPLE_RATE
        while at < len(covered) and covered[at][1] <= start:
            at += 1
        index = at
        while index < len(covered) and covered[index][0] < end:
            both += min(end, covered[index][1]) - max(start, covered[index][0])
            index += 1
    return both


def _union(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined
