"""How well phones fit what was heard in many short windows, and where in each they fit best.

A path through the phones (CTC's topology: silence may stand between two, a phone may last) begins anywhere in
its window and ends anywhere; its score is its log-likelihood ratio against the best free path, a phone. Plain
numpy, all windows at once.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spool.sounds.lexicon import Pronunciation
from spool.sounds.phones import SILENCE, STEP

_NEVER = -(1 << 30)
_AT_ONCE = 512
_BEGIN_BITS = 8
"""Of a path's number below its score: where it began."""
MOST_FRAMES = 1 << _BEGIN_BITS


class Spots(NamedTuple):
    """Of each window: the score a phone, at most 0, and the frames [first, last)."""

    scores: NDArray[np.float32]
    first: NDArray[np.int32]
    last: NDArray[np.int32]


def spot_phones(costs: NDArray[np.uint8], phones: Pronunciation) -> Spots:
    """costs: uint8 [N, T, SILENCE + 1] of at most `MOST_FRAMES` frames, as `blocks.KeptFrames` has them."""
    parts = [_spot(costs[at : at + _AT_ONCE], phones) for at in range(0, max(len(costs), 1), _AT_ONCE)]
    return Spots(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _spot(costs: NDArray[np.uint8], phones: Pronunciation) -> Spots:
    windows, frames, _ = costs.shape
    classes = np.full(2 * len(phones) - 1, SILENCE, np.intp)
    classes[::2] = phones
    # Two steps at once: over the silence between two phones, unless they are the same.
    same = np.array([one == other for one, other in zip(phones[1:], phones, strict=False)], np.bool_)
    emissions = costs.transpose(1, 2, 0)[:, classes].astype(np.int32) << _BEGIN_BITS
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
    scores = (top >> _BEGIN_BITS).astype(np.float32) * np.float32(STEP / len(phones))
    return Spots(scores, top & (MOST_FRAMES - 1), last)
