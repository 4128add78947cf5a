"""The loudness of one channel over time: where it is silent, and where to cut it.

Answers three questions from one array of levels, computed from the samples alone:

- *pause*: a place to cut between words. A pause stays in the lowest quarter of the range, in dB, between the
  stretch's noise floor (10th percentile) and its loud parts (95th). The measure is relative, so gain and
  background noise do not matter, and a sound without pauses has none.
- *quietest*: where to cut when there is no pause.
- *gated*: a silent stretch, which the engine need not decode (the silence gate). Quiet speech must be kept
  (FluidAudio #803), so loudness alone never decides: a gated stretch is below -60 dBFS AND steady, all its 50
  ms frames within 6 dB of each other for 4 s or more. Speech varies by far more, four times a second, however
  quietly it was recorded. Levels below -96 dBFS count as equal: digital silence and the flicker of a 16-bit
  sample's last bit (±1 is -90 dBFS); speech at that level would have no bits left.

The mean of each frame is subtracted first, so a DC offset does not count as sound.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.audio.resample import SAMPLE_RATE

Levels = NDArray[np.float64]

FRAME = 160
"""Samples a level frame: 10 ms at 16 kHz; every cut falls on a multiple of it."""
GATE_WIDTH = 5
"""Level frames a frame of the gate: 50 ms."""
_TINY = 1e-20
_DEEPEST_FLOOR = 55.0
"""dB below the loud parts; without it digital silence between words would hide pauses with room tone."""


@dataclass(frozen=True)
class GateOptions:
    """When the silence gate closes; lengths in seconds, levels in dBFS (a full-scale square wave is 0)."""

    level: float = -60.0
    range: float = 6.0
    floor: float = -96.0
    seconds: float = 4.0
    margin: float = 0.5


def frame_moments(samples: NDArray[np.float32]) -> NDArray[np.float64]:
    """`[frames, 2]`: mean and mean square of each whole 10 ms frame of `samples`."""
    count = len(samples) // FRAME
    frames = samples[: count * FRAME].reshape(count, FRAME).astype(np.float64)
    return np.stack([frames.mean(axis=1), np.einsum("ij,ij->i", frames, frames) / FRAME], axis=1)


def levels_of(moments: NDArray[np.float64], width: int = 1) -> Levels:
    """Level in dBFS of every `width` frames; an incomplete last group is averaged over what it has."""
    if width > 1 and len(moments):
        starts = np.arange(0, len(moments), width)
        sizes = np.diff(np.append(starts, len(moments)))[:, None]
        moments = np.add.reduceat(moments, starts, axis=0) / sizes
    power: Levels = 10.0 * np.log10(np.maximum(moments[:, 1] - moments[:, 0] ** 2, _TINY))
    return power


def pauses(levels: Levels, min_frames: int) -> Iterator[tuple[int, int]]:
    """Runs `[first, last)` of at least `min_frames` 10 ms frames that are quiet compared with the rest."""
    if not len(levels):
        return
    smooth = _smooth(levels)
    floor, loud = np.percentile(smooth, (10.0, 95.0))
    floor = max(floor, loud - _DEEPEST_FLOOR)
    threshold = floor + 0.25 * (loud - floor)
    yield from _runs(smooth <= threshold, min_frames)


def _smooth(levels: Levels) -> Levels:
    """Levels of the mean power over 50 ms around each frame; those of single frames vary too much."""
    power = np.convolve(10.0 ** (levels / 10.0), np.ones(GATE_WIDTH) / GATE_WIDTH, mode="same")[: len(levels)]
    smooth: Levels = 10.0 * np.log10(np.maximum(power, _TINY))
    return smooth


def _runs(mask: NDArray[np.bool_], min_frames: int) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if last - first >= min_frames:
            yield first, last


def best_pause(levels: Levels, first: int, last: int, min_frames: int) -> int | None:
    """The frame in `[first, last]` at which to cut: the middle of the longest pause, None if there is none.

    Pauses are found in all of `levels` and clipped to the range. Lengths above one second count as equal;
    among equals the quieter and then the later one wins (longer chunks cost less).
    """
    best: tuple[int, float, int] | None = None
    for start, end in pauses(levels, min_frames):
        start, end = max(start, first), min(end, last)
        if end - start < min_frames:
            continue
        depth = -float(levels[start:end].mean())
        middle = (start + end) // 2
        best = max(best or (0, 0.0, 0), (min(end - start, 100), depth, middle))
    return best[2] if best else None


def quietest(levels: Levels, first: int, last: int, width: int = 10) -> int:
    """The frame in `[first, last]` in the middle of the `width` frames with the least energy."""
    if last - first <= width:
        return (first + last) // 2
    power = 10.0 ** (levels[first:last] / 10.0)
    sums = np.convolve(power, np.ones(width), mode="valid")
    return first + int(np.argmin(sums)) + width // 2


def end_of_gated(levels50: Levels, first: int, gate: GateOptions) -> int:
    """The end of the gated stretch that begins at 50 ms frame `first`; `first` itself if there is none."""
    levels = np.maximum(levels50[first:], gate.floor)
    low, high = np.minimum.accumulate(levels), np.maximum.accumulate(levels)
    broken = np.flatnonzero((high > gate.level) | (high - low > gate.range))
    return first + int(broken[0]) if len(broken) else len(levels50)


def find_gated(levels50: Levels, gate: GateOptions) -> tuple[int, int] | None:
    """The first gated stretch `[first, last)`, in 50 ms frames, that is long enough for the gate."""
    need = gate_frames(gate.seconds)
    if len(levels50) < need:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(np.maximum(levels50, gate.floor), need)
    high = windows.max(axis=1)
    silences = np.flatnonzero((high <= gate.level) & (high - windows.min(axis=1) <= gate.range))
    return (int(silences[0]), end_of_gated(levels50, int(silences[0]), gate)) if len(silences) else None


def is_silent_throughout(levels50: Levels, gate: GateOptions) -> bool:
    """Whether a stretch, however short, is digital silence but for its lowest bit."""
    return bool((levels50 <= gate.floor + gate.range).all())


def gate_frames(seconds: float) -> int:
    """Seconds as whole 50 ms frames, rounded up."""
    return math.ceil(seconds * SAMPLE_RATE / (FRAME * GATE_WIDTH) - 1e-9)
