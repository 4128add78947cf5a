"""Scores in fixed point: saturating Q16.16 in int32, so that sums and ties do not depend on order.

A log-probability is rounded to the grid of 1 / 65536 once. A search keeps its slots' scores relative to the
utterance's best score, which is kept beside them as an int32: a difference of up to 255 on the grid is exact
in a float32, so adding and comparing floats is adding and comparing integers, in the same kernels that floats
use. Larger differences saturate at -255.
"""

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

ONE = 1 << 16
LEAST = -255.0  # natural logarithm; on_grid in simd.h has it too
_MOST = 2**31 - 1


def on_grid(values: mx.array) -> mx.array:
    """float32 of any shape, rounded to the grid (halves up) and clipped to ±255; infinities and NaN stay."""
    rounded = mx.floor(values * ONE + 0.5) / ONE
    held = mx.clip(rounded, LEAST, -LEAST)
    return mx.where(mx.isfinite(values), held, values)


def number_on_grid(value: float) -> float:
    """`on_grid` of one number."""
    return float(np.array(on_grid(mx.array(value, mx.float32))))


def rebase(scores: mx.array, base: mx.array) -> tuple[mx.array, mx.array]:
    """Scores [B, K] relative to the new best, which is 0, and the saturating int32 base [B] of that best.

    scores: float32 on the grid, -inf = dead; an utterance with only dead slots keeps its base.
    """
    top = mx.max(scores, axis=-1, keepdims=True)
    top = mx.where(mx.isfinite(top), top, 0.0)
    moved = base.astype(mx.int64) + mx.round(top[:, 0] * ONE).astype(mx.int64)
    less = mx.maximum(scores - top, LEAST)
    return mx.where(scores > -mx.inf, less, scores), mx.clip(moved, -_MOST, _MOST).astype(mx.int32)


def totals(scores: mx.array, base: mx.array) -> NDArray[np.float64]:
    """The absolute scores [B, K] in natural logarithms, exact."""
    differences = np.array(scores, np.float64)
    units = differences * ONE + np.array(base, np.int64)[:, None]
    return np.where(np.isfinite(differences), np.clip(units, -_MOST, _MOST) / ONE, differences)


def grid_sum(log_probs: NDArray[np.float32]) -> float:
    """The saturating sum of numbers that are rounded to the grid first; exact in any order."""
    held = np.clip(np.floor(log_probs.astype(np.float32) * np.float32(ONE) + np.float32(0.5)), LEAST * ONE, 0)
    return float(np.clip(held.astype(np.int64).sum(), -_MOST, _MOST)) / ONE
