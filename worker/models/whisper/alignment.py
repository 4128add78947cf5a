"""When each token was spoken, from the cross attention of the alignment heads.

Softmax over an utterance's own frames, standardised over its own rows, a median filter, the mean of the
heads, dynamic time warping. Nothing of a neighbour enters; only the warping runs over all utterances
together, by diagonals. (openai-whisper, timing.find_alignment; Sakoe and Chiba 1978.)
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from worker.models.base_attention import TokenTimes
from worker.models.whisper.config import FRAME_SECONDS

Float32 = NDArray[np.float32]
MEDIAN_WIDTH = 7
FRAMES_MIN = 2

DIAGONAL, DOWN, ALONG = 0, 1, 2


def time_tokens(
    products: Sequence[Float32], first_rows: Sequence[int], probabilities: Sequence[Float32]
) -> list[TokenTimes | None]:
    """products: each utterance's scaled q·k [heads, rows, frames of its own sound]; first_rows: the row that
    predicts its first token, the end's own row being its last; each has two frames and one token at least.
    None where numbers are not finite."""
    usable = [index for index, each in enumerate(products) if np.isfinite(each).all()]
    matrices = [attention_matrix(products[index])[first_rows[index] : -1] for index in usable]
    paths = warp([-matrix for matrix in matrices])
    times: list[TokenTimes | None] = [None] * len(products)
    for index, (rows, columns) in zip(usable, paths, strict=True):
        starts = np.pad(np.diff(rows), (1, 0), constant_values=1).astype(bool)
        seconds = (columns[starts] * FRAME_SECONDS).astype(np.float32)
        times[index] = TokenTimes(seconds, np.asarray(probabilities[index], np.float32))
    return times


def attention_matrix(products: Float32) -> Float32:
    """[heads, rows, frames] -> [rows, frames]: how much each row hears each frame, in deviations."""
    raised = np.exp(products - products.max(axis=-1, keepdims=True))
    weights = raised / raised.sum(axis=-1, keepdims=True)
    deviation = weights.std(axis=-2, keepdims=True)
    centred = weights - weights.mean(axis=-2, keepdims=True)
    # A frame that every row hears alike says nothing.
    standard = np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 0)
    matrix: Float32 = _median(standard).mean(axis=0)
    return matrix


def _median(x: Float32) -> Float32:
    """Median over the last axis, edges mirrored; what is not wider than half the filter stays."""
    half = MEDIAN_WIDTH // 2
    if x.shape[-1] <= half:
        return x
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(half, half)], mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, MEDIAN_WIDTH, axis=-1)
    median: Float32 = np.partition(windows, half, axis=-1)[..., half]
    return median


def warp(costs: Sequence[Float32]) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """The cheapest monotone path through each [rows, frames] matrix, as the row and the frame of each step.

    A step goes down and along, down, or along; it goes along unless another is strictly cheaper than both
    others. All utterances advance together, a diagonal at a time, in float32 as OpenAI's does.
    """
    if not costs:
        return []
    height = max(cost.shape[0] for cost in costs)
    width = max(cost.shape[1] for cost in costs)
    count = len(costs)
    padded = np.zeros((count, height, width), np.float64)
    for index, cost in enumerate(costs):
        padded[index, : cost.shape[0], : cost.shape[1]] = cost
    trace = np.full((height + width + 1, count, height + 1), ALONG, np.int8)
    infinite = np.float32(np.inf)
    before_last = np.full((count, height + 1), infinite, np.float32)
    last = np.full((count, height + 1), infinite, np.float32)
    before_last[:, 0] = 0.0  # the corner; diagonal 1 is outside but for it
    for diagonal in range(2, height + width + 1):
        low, high = max(1, diagonal - width), min(height, diagonal - 1)
        rows = np.arange(low, high + 1)
        across, down, along = before_last[:, low - 1 : high], last[:, low - 1 : high], last[:, low : high + 1]
        is_across = (across < down) & (across < along)
        is_down = (down < across) & (down < along)
        best = np.where(is_across, across, np.where(is_down, down, along))
        current = np.full((count, height + 1), infinite, np.float32)
        current[:, low : high + 1] = padded[:, rows - 1, diagonal - rows - 1] + best
        trace[diagonal, :, low : high + 1] = np.where(is_across, DIAGONAL, np.where(is_down, DOWN, ALONG))
        before_last, last = last, current
    return [_walk(trace[:, index], *cost.shape) for index, cost in enumerate(costs)]


def _walk(trace: NDArray[np.int8], height: int, width: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Back from the last corner; trace [diagonal, row]."""
    row, column, path = height, width, []
    while row > 0 or column > 0:
        path.append((row - 1, column - 1))
        step = ALONG if row == 0 else DOWN if column == 0 else trace[row + column, row]
        row, column = row - (step != ALONG), column - (step != DOWN)
    rows, columns = np.array(path[::-1], np.intp).T
    return rows, columns
