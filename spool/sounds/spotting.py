"""How well phones fit what was heard in many short windows, and where in each they fit best.

A path through the phones (CTC's topology: silence may stand between two, a phone may last) begins anywhere in
its window and ends anywhere; its score is its log-likelihood ratio against the best free path, a phone. Plain
numpy, all windows at once. Scores alone take a third of the time, so only the best windows are searched for
the place.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spool.sounds.lexicon import Pronunciation
from spool.sounds.phones import SILENCE, STEP

Costs = Mapping[int, NDArray[np.uint8]]
"""Of each phone of the query and of silence, uint8 [frames, windows] (`blocks.KeptFrames.costs`)."""
_NEVER = -(1 << 30)
_BEGIN_BITS = 8
"""Of a path's number below its score: where it began."""
MOST_FRAMES = 1 << _BEGIN_BITS
_FAR = -10_000
"""In steps: what a path that is not possible yet begins with. A worse score is not exact."""
_MOST_SHORT = 44
"""Phones with which no sum leaves 16 bits: a state can be reached within two frames a phone, so that its sum
is at least twice 255 a phone below `_FAR`."""


class Spots(NamedTuple):
    """Of each window: the frames [first, last) of the best path; of equal ones that which begins last, and of
    these that which ends first."""

    first: NDArray[np.int32]
    last: NDArray[np.int32]


def score_phones(costs: Costs, phones: Pronunciation) -> NDArray[np.float32]:
    """The best score a phone of each window, at most 0."""
    kind = np.int16 if len(phones) <= _MOST_SHORT else np.int32
    heard = np.stack([costs[phone] for phone in phones]).astype(kind)
    quiet = costs[SILENCE].astype(kind)
    windows = quiet.shape[1]
    said = np.full((len(phones), windows), _FAR, kind)
    between, moved = np.full((2, len(phones) - 1, windows), _FAR, kind)
    doubled = [at for at in range(len(phones) - 1) if phones[at] == phones[at + 1]]
    best = np.full(windows, _FAR, kind)
    for at in range(len(quiet)):
        np.maximum(said[1:], between, out=moved)
        np.maximum(between, said[:-1], out=between)
        # Straight from phone to phone, unless they are the same.
        straight = said[:-1]
        if doubled:
            straight = straight.copy()
            straight[doubled] = moved[doubled]
        np.maximum(moved, straight, out=moved)
        between -= quiet[at]
        np.maximum(said[0], 0, out=said[0])
        said[1:] = moved
        said -= heard[:, at]
        np.maximum(best, said[-1], out=best)
    return best.astype(np.float32) * np.float32(STEP / len(phones))


def spot_phones(costs: Costs, phones: Pronunciation) -> Spots:
    """Where the phones fit best, in windows of at most `MOST_FRAMES` frames."""
    frames, windows = costs[SILENCE].shape
    classes = [SILENCE] * (2 * len(phones) - 1)
    classes[::2] = phones
    # Two steps at once: over the silence between two phones, unless they are the same.
    same = np.array([one == other for one, other in zip(phones[1:], phones, strict=False)], np.bool_)
    emissions = np.stack([costs[number] for number in classes], axis=1).astype(np.int32) << _BEGIN_BITS
    # Of equal scores the later beginning is the larger number.
    best = np.full((len(classes), windows), _NEVER, np.int32)
    came, skipping = np.empty_like(best), np.empty_like(best[2::2])
    top, last = np.full(windows, _NEVER, np.int32), np.zeros(windows, np.int32)
    for at in range(frames):
        np.copyto(came, best)
        np.maximum(came[1:], best[:-1], out=came[1:])
        np.copyto(skipping, best[:-2:2])
        skipping[same] = _NEVER
        np.maximum(came[2::2], skipping, out=came[2::2])
        np.maximum(came[0], at, out=came[0])
        np.subtract(came, emissions[at], out=best)
        better = best[-1] > top
        np.copyto(top, best[-1], where=better)
        np.copyto(last, at + 1, where=better)
    return Spots(top & (MOST_FRAMES - 1), last)
