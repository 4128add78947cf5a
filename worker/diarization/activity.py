"""From speakers' probabilities to segments: hysteresis thresholds, padding, merging, removal of short ones.

Segments of different speakers may overlap.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.diarization.base import SpeakerSegment

Stretch = tuple[float, float]

_STEP = 0.01
_F32 = np.float32


@dataclass(frozen=True, slots=True)
class Hysteresis:
    """A speaker is on from a probability above `onset` until one below `offset`. In seconds: padding before
    and after, the shortest segment kept, and the shortest gap kept."""

    onset: float = 0.5
    offset: float = 0.5
    pad_onset: float = 0.0
    pad_offset: float = 0.0
    min_on: float = 0.0
    min_off: float = 0.0


PLAIN = Hysteresis()
TUNED = {
    "none": PLAIN,
    "callhome-v1": Hysteresis(0.53, 0.49, 0.23, 0.01, 0.42, 0.34),
    "dihard3-v1": Hysteresis(0.64, 0.74, 0.06, 0.0, 0.1, 0.15),
    "callhome-v2": Hysteresis(0.641, 0.561, 0.229, 0.079, 0.511, 0.296),
    "dihard3-v2": Hysteresis(0.56, 1.0, 0.063, 0.002, 0.007, 0.151),
}
"""NVIDIA's values, each tuned for the DER of a data set with its collar (NeMo's `conf/neural_diarizer`)."""


def active_segments(
    probabilities: NDArray[np.float32], frame_seconds: float, rule: Hysteresis = PLAIN
) -> list[SpeakerSegment]:
    """The segments of speakers with `probabilities` `[T, S]`, by start; a speaker's number is its column."""
    segments = [
        SpeakerSegment(start, end, speaker)
        for speaker in range(probabilities.shape[1])
        for start, end in active_stretches(probabilities[:, speaker], frame_seconds, rule)
    ]
    return sorted(segments, key=lambda each: (each.start, each.speaker))


def active_stretches(
    probabilities: NDArray[np.float32], frame_seconds: float, rule: Hysteresis = PLAIN
) -> list[Stretch]:
    """The stretches in which one speaker with `probabilities` `[T]` speaks, in seconds to 10 ms.

    Each frame is repeated for its steps of 10 ms, which matters if `offset` is above `onset`: then a speaker
    goes off at every step and on again, and the padding joins the pieces.
    """
    steps = np.repeat(probabilities, round(frame_seconds / _STEP))
    above, below = (steps > _F32(rule.onset)).tolist(), (steps < _F32(rule.offset)).tolist()
    stretches: list[Stretch] = []
    start: int | None = None
    for step in range(len(steps)):
        if start is None:
            start = step if above[step] else None
        elif below[step]:
            _add(stretches, start, step, rule)
            start = None
    if start is not None:
        _add(stretches, start, len(steps), rule)
    stretches = _merge_spans(stretches)
    if rule.min_on > 0:
        stretches = [(a, b) for a, b in stretches if _F32(b) - _F32(a) >= _F32(rule.min_on)]
    if rule.min_off > 0:
        pairs = itertools.pairwise(stretches)
        gaps = [
            (end, start) for (_, end), (start, _) in pairs if _F32(start) - _F32(end) < _F32(rule.min_off)
        ]
        stretches = _merge_spans([*stretches, *gaps])
    return [(round(a, 2), round(b, 2)) for a, b in stretches]


def _add(stretches: list[Stretch], first: int, last: int, rule: Hysteresis) -> None:
    start, end = max(0.0, first * _STEP - rule.pad_onset), last * _STEP + rule.pad_offset
    if end > start:
        stretches.append((start, end))


def _merge_spans(stretches: Sequence[Stretch]) -> list[Stretch]:
    merged: list[Stretch] = []
    for start, end in sorted(stretches):
        if merged and _F32(merged[-1][1]) >= _F32(start):
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
