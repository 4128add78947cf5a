"""The end of a front end: power to bands of it, and log-mel normalised over each utterance of a batch.

As in `kernels.nn.elementwise`: contract, plain-MLX reference, kernel, and the choice between them. A frame's
bands depend on its power alone, an utterance's deviation on its frames alone, bit for bit on one machine,
whatever batch or padding is around them.
"""

from typing import NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.runtime.device import Backend, backend, dtype_name, launch, launch_rows
from kernels.runtime.source import read_kernel

DEVIATION_FLOOR = 1e-5  # NeMo's
_ROWS = 4
_SIMDGROUPS = 8

MEL_BANDS = read_kernel("nn/mel_bands", "power filters ranges", "y")
NORMALISE_FRAMES = read_kernel("nn/normalise_frames", "x lengths", "y")


class Filters(NamedTuple):
    """matrix: float32 [N, M], the weight of each bin in each band. padded: the same with bands of zeros up to
    a multiple of 32. ranges: int32 [., 2], of each 32 bands the first bin with a weight and the one behind
    the last."""

    matrix: mx.array
    padded: mx.array
    ranges: mx.array


def filters_of(matrix: NDArray[np.float32]) -> Filters:
    """Weights [N, M] as `mel_bands` takes them."""
    padded = np.pad(matrix, [(0, 0), (0, -matrix.shape[1] % 32)])
    ranges = []
    for first in range(0, padded.shape[1], 32):
        used = np.flatnonzero(padded[:, first : first + 32].any(axis=1))
        ranges.append((used[0], used[-1] + 1) if len(used) else (0, 0))
    return Filters(mx.array(matrix), mx.array(padded), mx.array(np.array(ranges, np.int32)))


def mel_bands_reference(power: mx.array, filters: Filters) -> mx.array:
    """As `mel_bands`, in plain MLX: a product for each row, for one of all may round a row by its place."""
    return (power.astype(mx.float32)[..., None, :] @ filters.matrix)[..., 0, :].astype(power.dtype)


def mel_bands(power: mx.array, filters: Filters) -> mx.array:
    """[..., N] -> [..., M]: the power of each band, sums in float32 in the order of the bins.

    Within 2e-6 relative of the reference. Not a number or infinite, a bin reaches no band 32 bands of which
    have no weight for it.
    """
    rows = power.reshape(-1, power.shape[-1])
    bands = filters.matrix.shape[1]
    outputs = launch_rows(
        MEL_BANDS,
        [rows, filters.padded, filters.ranges],
        [((rows.shape[0], bands), power.dtype)],
        rows=-(-rows.shape[0] // _ROWS),
        template=(("T", dtype_name(power.dtype)), ("M", bands), ("ROWS", _ROWS)),
    )
    if outputs is None:
        return mel_bands_reference(power, filters)
    return outputs[0].reshape(*power.shape[:-1], bands)


def normalise_frames_reference(x: mx.array, lengths: mx.array) -> mx.array:
    """As `normalise_frames`, in plain MLX."""
    valid = mx.arange(x.shape[1])[None, :, None] < lengths[:, None, None]
    count = lengths[:, None, None].astype(mx.float32)
    v = x.astype(mx.float32)
    shifted = mx.where(valid, v - v[:, :1], 0.0)
    centred = shifted - mx.sum(shifted, axis=1, keepdims=True) / mx.maximum(count, 1)
    centred = mx.where(valid, centred, 0.0)
    variance = mx.sum(centred * centred, axis=1, keepdims=True) / mx.maximum(count - 1, 1)
    return (centred / (mx.sqrt(variance) + DEVIATION_FLOOR)).astype(x.dtype)


def normalise_frames(x: mx.array, lengths: mx.array) -> mx.array:
    """Each band of [B, T, M] less its mean over its utterance's frames, by their unbiased deviation + 1e-5.

    `lengths` int32 [B]; frames at or past them are not read and come out as zeros. The first frame is taken
    off beforehand, which changes neither deviation nor result but makes digital silence exactly zero: the
    rounding of a mean of equal numbers, divided by the floor, would otherwise be a signal. Within 1e-5
    absolute of the reference: the sums run in another order.
    """
    batch, _, bands = x.shape
    outputs = launch(
        NORMALISE_FRAMES,
        [x, lengths.astype(mx.int32)],
        [(x.shape, x.dtype)],
        groups=batch * -(-bands // 32),
        simdgroups=1 if backend() is Backend.CPU else _SIMDGROUPS,
        template=(("T", dtype_name(x.dtype)),),
    )
    return normalise_frames_reference(x, lengths) if outputs is None else outputs[0]
