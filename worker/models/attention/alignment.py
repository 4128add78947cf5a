"""When each token was spoken, from the cross attention of the alignment heads.

Softmax over an utterance's own frames, standardised over its own rows, a median filter, the mean of the
heads, dynamic time warping. Nothing of a neighbour enters; only the warping runs over all utterances
together, by diagonals. (openai-whisper, timing.find_alignment; Sakoe and Chiba 1978.)
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.attention.dtw import dtw
from worker.models.attention.decoder import AttentionDecoder
from worker.models.attention.layers import log_sum_exp
from worker.models.attention.state import EncodedWindow, Memory
from worker.models.base_attention import TokenTimes, Trail

Float32 = NDArray[np.float32]
MEDIAN_WIDTH = 7
MEDIAN_ROWS = 8
MEDIAN_PAIRS = (
    (0, 5), (0, 3), (1, 6), (2, 4), (0, 1), (3, 5), (2, 6), (2, 3), (3, 6), (4, 5), (1, 4), (1, 3), (3, 4),
)  # fmt: skip
FRAMES_MIN = 2


def align_tokens(
    decoder: AttentionDecoder,
    encoded: Sequence[EncodedWindow],
    prompts: Sequence[Sequence[int]],
    tokens: Sequence[Sequence[int]],
    frame_seconds: float,
    trails: Sequence[Trail | None] = (),
) -> list[TokenTimes | None]:
    """When each text token of each utterance was spoken behind its prompt, by the decoder's alignment heads;
    None where nothing can be told. trails: what a search of that prompt left of these tokens; others are
    read once more."""
    usable = [index for index, text in enumerate(tokens) if text and encoded[index].length >= FRAMES_MIN]
    # Window by window: what stands in the matrix must not know the batch.
    heard = []
    for index in usable:
        trail = trails[index] if trails else None
        if trail is None:
            heard.append(_hear(decoder, encoded[index], prompts[index], tokens[index]))
        else:
            heard.append((_products(decoder, encoded[index], trail.heard), np.exp(trail.log_probs)))
    answers = time_tokens(
        [products for products, _ in heard],
        [len(prompts[index]) - 1 for index in usable],
        [shares for _, shares in heard],
        frame_seconds,
    )
    times: list[TokenTimes | None] = [None] * len(encoded)
    for index, answer in zip(usable, answers, strict=True):
        times[index] = answer
    return times


def _products(decoder: AttentionDecoder, window: EncodedWindow, queries: mx.array) -> Float32:
    """Products of the alignment heads' queries [heads, rows, D] over the window's own frames, [heads, rows,
    frames]."""
    products = []
    for (layer, head), query in zip(decoder.alignment_heads, queries, strict=True):
        tiles = window.batch.cross[layer][0][window.index, head]
        products.append((query.astype(mx.float32) @ tiles.astype(mx.float32)).swapaxes(0, 1))
    joined = mx.stack(products)
    return np.array(joined.reshape(*joined.shape[:2], -1)[:, :, : window.length])


def _hear(
    decoder: AttentionDecoder,
    window: EncodedWindow,
    prompt: Sequence[int],
    text: Sequence[int],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Products of the alignment heads over the window's own frames, [heads, rows, frames], and each text
    token's probability among text tokens."""
    rows, heads = np.array([[*prompt, *text, decoder.eos]], np.int32), decoder.alignment_heads
    forced = decoder.force(Memory.of([window]), rows, keep=[layer for layer, _ in heads])
    products = [
        forced.products[layer][0, mx.array(own)]
        for layer in range(len(decoder.blocks))
        if (own := [head for at, head in heads if at == layer])
    ]
    logits = decoder.logits(forced.hidden[0, len(prompt) - 1 : -2])[:, : decoder.eos]
    chosen = mx.take_along_axis(logits, mx.array(list(text), mx.int32)[:, None], axis=-1)
    shares = mx.exp(chosen - log_sum_exp(logits))
    heard = mx.concatenate(products).astype(mx.float32)[:, :, : window.length]
    return np.array(heard), np.array(shares[:, 0])


def time_tokens(
    products: Sequence[Float32],
    first_rows: Sequence[int],
    probabilities: Sequence[Float32],
    frame_seconds: float,
) -> list[TokenTimes | None]:
    """products: each utterance's scaled q·k [heads, rows, frames of its own sound]; first_rows: the row that
    predicts its first token, the end's own row being its last; each has two frames and one token at least.
    None where numbers are not finite."""
    usable = [index for index, each in enumerate(products) if np.isfinite(each).all()]
    matrices = [attention_matrix(products[index])[first_rows[index] : -1] for index in usable]
    times: list[TokenTimes | None] = [None] * len(products)
    if not usable:
        return times
    shapes = np.array([matrix.shape for matrix in matrices], np.int32)
    gains = np.zeros((len(matrices), *shapes.max(axis=0)), np.float32)
    for gain, matrix in zip(gains, matrices, strict=True):
        gain[: matrix.shape[0], : matrix.shape[1]] = matrix
    starts = np.array(dtw(mx.array(gains), mx.array(shapes[:, 0]), mx.array(shapes[:, 1])))
    for index, matrix, own in zip(usable, matrices, starts, strict=True):
        seconds = (own[: matrix.shape[0]] * frame_seconds).astype(np.float32)
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
    """Median over the last axis of [heads, rows, frames], edges mirrored; what is not wider than half the
    filter stays."""
    half = MEDIAN_WIDTH // 2
    if x.shape[-1] <= half:
        return x
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(half, half)], mode="reflect")
    medians = np.empty_like(x)
    for head, median in zip(padded, medians, strict=True):
        # So many rows at a time that what is compared stays in the cache.
        for first in range(0, len(head), MEDIAN_ROWS):
            rows = head[first : first + MEDIAN_ROWS]
            median[first : first + MEDIAN_ROWS] = _middle(
                [rows[:, at : at + x.shape[-1]] for at in range(MEDIAN_WIDTH)]
            )
    return medians


def _middle(seven: list[Float32]) -> Float32:
    """The median of seven arrays, element by element: each pair of `MEDIAN_PAIRS` is put in order. (Devillard
    1998, Fast median search, opt_med7.)"""
    for low, high in MEDIAN_PAIRS:
        seven[low], seven[high] = np.minimum(seven[low], seven[high]), np.maximum(seven[low], seven[high])
    return seven[3]
