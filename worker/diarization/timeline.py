"""Speakers of windows to a timeline: who speaks in each 0.1 s of speech, joined into segments.

Owns the smoothing and the numbering by arrival; knows no audio and no network.
"""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from worker.audio.resample import SAMPLE_RATE
from worker.diarization.base import SpeakerSegment
from worker.diarization.clustering import Labels, centroids_of
from worker.diarization.windows import Span
from worker.speech.spans import Stretch

_STEP = 0.1
_SMOOTH = 5
_REACH = 0.8
"""Seconds from a window's middle at which it has no weight left."""
_AT_ONCE = 600
"""Steps weighed at once: a minute."""


def build_timeline(
    stretches: Sequence[Stretch], spans: Sequence[Span], prints: NDArray[np.float32], labels: Labels
) -> list[SpeakerSegment]:
    """Each 0.1 s of speech goes to the centroid nearest to the mean of the windows over it.

    Windows are weighed by a triangle around their middle, and what each centroid scores is smoothed over 0.5
    s within a stretch. A stretch without a window goes as the nearest window. `spans` are in order.
    """
    if not len(spans):
        return []
    bounds: NDArray[np.float64] = np.array(spans, np.float64)
    starts, ends = bounds[:, 0], bounds[:, 1]
    scores: NDArray[np.float32] = prints @ centroids_of(prints, labels)[1].T
    segments: list[SpeakerSegment] = []
    for first, last in stretches:
        start, end = first / SAMPLE_RATE, last / SAMPLE_RATE
        steps = max(1, round((end - start) / _STEP))
        times = (start + (np.arange(steps) + 0.5) * _STEP).astype(np.float64)
        speakers = _speakers(times, starts, ends, scores)
        if speakers is None:
            nearest = np.abs((starts + ends) / 2 - (start + end) / 2).argmin()
            speakers = np.full(steps, scores[nearest].argmax())
        edges = np.flatnonzero(np.diff(np.concatenate([[-1], speakers, [-1]]))).tolist()
        segments += [
            SpeakerSegment(start + a * _STEP, min(end, start + b * _STEP), int(speakers[a]))
            for a, b in itertools.pairwise(edges)
        ]
    return number_by_arrival(segments)


def _speakers(
    times: NDArray[np.float64],
    starts: NDArray[np.float64],
    ends: NDArray[np.float64],
    scores: NDArray[np.float32],
) -> Labels | None:
    """The best speaker of each time of one stretch; None if no window lies over any of them."""
    parts, heard = [], False
    for at in range(0, len(times), _AT_ONCE):
        some = times[at : at + _AT_ONCE]
        near = slice(np.searchsorted(ends, some[0]), np.searchsorted(starts, some[-1], side="right"))
        first, last = starts[near], ends[near]
        weights = np.maximum(0, 1 - np.abs(some[:, None] - (first + last) / 2) / _REACH)
        weights *= (first <= some[:, None]) & (some[:, None] <= last)
        heard = heard or bool(weights.any())
        parts.append(weights @ scores[near])
    if not heard:
        return None
    total = np.concatenate(parts)
    if len(times) < _SMOOTH:
        return np.full(len(times), total.sum(0).argmax())
    kernel = np.ones(_SMOOTH)
    best: Labels = np.stack([np.convolve(column, kernel, "same") for column in total.T], 1).argmax(1)
    return best


def number_by_arrival(segments: Iterable[SpeakerSegment]) -> list[SpeakerSegment]:
    """The segments with speakers renumbered from 0 in the order in which they first speak."""
    numbers: dict[int, int] = {}
    return [
        SpeakerSegment(segment.start, segment.end, numbers.setdefault(segment.speaker, len(numbers)))
        for segment in segments
    ]


def render_rttm(segments: Iterable[SpeakerSegment], name: str, channel: int = 1) -> str:
    """The segments as RTTM (NIST RT-09), one line each; blanks in `name` become underscores."""
    recording = "_".join(name.split()) or "recording"
    return "".join(
        f"SPEAKER {recording} {channel} {segment.start:.3f} {segment.end - segment.start:.3f} <NA> <NA> "
        f"speaker_{segment.speaker} <NA> <NA>\n"
        for segment in segments
    )
