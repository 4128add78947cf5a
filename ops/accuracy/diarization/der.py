"""Diarization error rate: miss, false alarm and confusion over the reference's speaker time.

Overlap counts. Speakers are mapped one to one so that the least is wrong. The collar is half a width, as
in NeMo and md-eval: 0.25 leaves out 0.25 s on both sides of each boundary of the reference, which
pyannote.metrics calls 0.5.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Segment = tuple[float, float, Hashable]


@dataclass(frozen=True)
class DiarizationError:
    """Shares of the reference's speaker time."""

    miss: float
    false_alarm: float
    confusion: float

    @property
    def total(self) -> float:
        return self.miss + self.false_alarm + self.confusion


def diarization_error(
    reference: Sequence[Segment], hypothesis: Sequence[Segment], collar: float = 0.25, step: float = 0.005
) -> DiarizationError:
    """Of segments (start, end, speaker) in seconds, counted in steps of `step` seconds."""
    length = round(max((end for _, end, _ in (*reference, *hypothesis)), default=0.0) / step) + 1
    scored = np.ones(length, bool)
    width = round(collar / step)
    for start, end, _ in reference:
        for boundary in (round(start / step), round(end / step)):
            scored[max(0, boundary - width) : boundary + width] = False
    true, guess = _grid(reference, length, step)[scored], _grid(hypothesis, length, step)[scored]
    spoken, given = true.sum(1), guess.sum(1)
    total = max(int(spoken.sum()), 1)
    right = best_match(true.astype(np.float64).T @ guess)
    return DiarizationError(
        miss=float(np.maximum(spoken - given, 0).sum()) / total,
        false_alarm=float(np.maximum(given - spoken, 0).sum()) / total,
        confusion=(float(np.minimum(spoken, given).sum()) - right) / total,
    )


def _grid(segments: Sequence[Segment], length: int, step: float) -> NDArray[np.bool_]:
    """`[length, speakers]`: who speaks in each step."""
    names = list(dict.fromkeys(name for *_, name in segments)) or [None]
    grid = np.zeros((length, len(names)), bool)
    for start, end, name in segments:
        grid[round(start / step) : round(end / step), names.index(name)] = True
    return grid


def best_match(gains: NDArray[np.float64]) -> float:
    """The largest sum of `gains` `[A, B]` with at most one from each row and column."""
    if gains.shape[0] < gains.shape[1]:
        gains = gains.T
    if gains.shape[1] > 16:
        raise ValueError("more than 16 speakers on both sides are too many to match")

    @cache
    def best(row: int, taken: int) -> float:
        if row == len(gains):
            return 0.0
        free = [column for column in range(gains.shape[1]) if not taken >> column & 1]
        return max(
            best(row + 1, taken),
            *(gains[row, column] + best(row + 1, taken | 1 << column) for column in free),
            0.0,
        )

    return float(best(0, 0))
