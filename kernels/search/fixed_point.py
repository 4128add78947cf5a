"""Scores in fixed point: Q16.16 in int32 that saturates, so that sums and ties depend on no order.

A log-probability is put on the grid of 1 / 65536 once. A search keeps its slots' scores as differences to
the utterance's best, and that one's score as an int32 beside them: a difference on the grid of up to 255 is
exact in a float32, so adding and comparing floats is adding and comparing integers, in the same kernels that
floats use. What falls further behind stays at -255. Knows numbers; does not know searches.
"""

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

ONE = 1 << 16
LEAST = -255.0  # natural logarithm; on_grid in simd.h has it too
_MOST = 2**31 - 1


def on_grid(values: mx.array) -> mx.array:
    """float32 of any shape, rounded to the grid (halves up), within 255 of zero; what is not finite stays."""
    rounded = mx.floor(values * ONE + 0.5) / ONE
    held = mx.clip(rounded, LEAST, -LEAST)
    return mx.where(mx.isfinite(values), held, values)


def number_on_grid(value: float) -> float:
    """`on_grid` of one number."""
    return float(np.array(on_grid(mx.array(value, mx.float32))))


def rebase(scores: mx.array, base: mx.array) -> tuple[mx.array, mx.array]:
    """Differences [B, K] whose best is 0 again, and int32 [B] with what that one had, saturating.

    scores: float32 on the grid, -inf = dead; an utterance of dead slots alone keeps its base.
    """
    top = mx.max(scores, axis=-1, keepdims=True)
    top = mx.where(mx.isfinite(top), top, 0.0)
    moved = base.astype(mx.int64) + mx.round(top[:, 0] * ONE).astype(mx.int64)
    less = mx.maximum(scores - top, LEAST)
    return mx.where(scores > -mx.inf, less, scores), mx.clip(moved, -_MOST, _MOST).astype(mx.int32)


def totals(scores: mx.array, base: mx.array) -> NDArray[np.float64]:
    """The scores [B, K] in natural logarithms, exact: what is left of `scores` and `base` at the end."""
    differences = np.array(scores, np.float64)
    units = differences * ONE + np.array(base, np.int64)[:, None]
    return np.where(np.isfinite(differences), np.clip(units, -_MOST, _MOST) / ONE, differences)


def grid_sum(log_probs: NDArray[np.float32]) -> float:
    """The sum of numbers that are put on the grid first; exact in any order, saturating."""
    held = np.clip(np.floor(log_probs.astype(np.float32) * np.float32(ONE) + np.float32(0.5)), LEAST * ONE, 0)
    return float(np.clip(held.astype(np.int64).sum(), -_MOST, _MOST)) / ONE
