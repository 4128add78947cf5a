"""Dynamic time warping of whole batches: where each row of an alignment matrix begins.

Semantics: `dtw_cpu` of openai-whisper (timing.py) on the negated matrix, down to its rule for ties: a step
that is not strictly cheaper than both others loses to the step along the columns. Owns the contract, the
numpy reference and the choice; knows nothing of attention, tokens or seconds.
"""

import mlx.core as mx
import numpy as np

from kernels.runtime.device import launch
from kernels.runtime.source import read_kernel

DTW = read_kernel("attention/dtw", "gains rows columns", "o_starts o_ways")
WIDEST = 512  # rows a threadgroup's memory holds
SIMDGROUPS = 8


def dtw(gains: mx.array, rows: mx.array, columns: mx.array) -> mx.array:
    """First column of each row on the best monotone path from the first cell to the last.

    gains: [B, N, M], what a path gains by a cell (for costs: their negative); converted to float32, in which
    paths are summed. rows, columns: int32 [B], what of it belongs to each utterance; nothing behind is read.
    A path steps by (1, 1), (1, 0) or (0, 1).

    Returns int32 [B, N], columns ascending, -1 behind an utterance's rows and where it has no columns. Equal
    to the reference in every entry: both only add and compare. Where gains are not finite the path means
    nothing, but the entries stay within the columns, and other utterances are not touched. More than 512
    rows take the reference. Raises ValueError where shapes do not fit.
    """
    _check(gains, rows, columns)
    batch, height, width = gains.shape
    if batch == 0 or height == 0 or width == 0 or height > WIDEST:
        return dtw_reference(gains, rows, columns)
    outputs = launch(
        DTW,
        [gains.astype(mx.float32), rows.astype(mx.int32), columns.astype(mx.int32)],
        [((batch, height), mx.int32), ((batch, height + width - 1, height), mx.uint8)],
        groups=batch,
        simdgroups=SIMDGROUPS,
        template=(("WIDEST", WIDEST),),
    )
    return dtw_reference(gains, rows, columns) if outputs is None else outputs[0]


def dtw_reference(gains: mx.array, rows: mx.array, columns: mx.array) -> mx.array:
    """The same in numpy: one sweep over the diagonals of all utterances together, then back, all together."""
    _check(gains, rows, columns)
    x = np.array(gains.astype(mx.float32))
    batch, height, width = x.shape
    n, m = (np.minimum(np.array(each), most) for each, most in ((rows, height), (columns, width)))
    some = (n > 0) & (m > 0)
    starts = np.full((batch, height), -1, np.int32)
    if not some.any():
        return mx.array(starts)
    ways = np.zeros((batch, height + width - 1, height), np.uint8)
    out = np.full((batch, height + 1), -np.inf, np.float32)  # entry i + 1 is row i
    before, corner = out.copy(), out.copy()
    corner[:, 0] = 0.0
    for d in range(height + width - 1):
        lo, hi = max(0, d - width + 1), min(d, height - 1) + 1
        both, down, along = corner[:, lo:hi], before[:, lo:hi], before[:, lo + 1 : hi + 1]
        is_both = (both > down) & (both > along)
        is_down = (down > both) & (down > along)
        row = np.arange(lo, hi)
        now = out.copy()
        with np.errstate(invalid="ignore", over="ignore"):
            now[:, lo + 1 : hi + 1] = (
                np.where(is_both, both, np.where(is_down, down, along)) + x[:, row, d - row]
            )
        ways[:, d, lo:hi] = np.where(is_both, 0, np.where(is_down, 1, 2))
        before, corner = now, before
    utterance, i, j = np.arange(batch)[some], n[some] - 1, m[some] - 1
    while utterance.size:
        starts[utterance, i] = np.where(i == 0, 0, j)
        way = np.where(j == 0, 1, ways[utterance, i + j, i])
        i, j = i - (way != 2), j - (way != 1)
        going = i >= 0
        utterance, i, j = utterance[going], i[going], j[going]
    return mx.array(starts)


def _check(gains: mx.array, rows: mx.array, columns: mx.array) -> None:
    if gains.ndim != 3 or rows.shape != (len(gains),) or columns.shape != (len(gains),):
        raise ValueError(
            f"dtw takes gains [utterances, rows, columns] and as many entries in rows and columns as "
            f"utterances, not {gains.shape}, {rows.shape} and {columns.shape}"
        )
