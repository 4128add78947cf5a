"""From logits to the best allowed tokens of each row: masks, one rule on times, log-softmax and top-k.

Plain MLX. What a row may take is five numbers and a set of bits; who decides on them is a family's business.
"""

from collections.abc import Iterable
from enum import IntEnum

import mlx.core as mx
import numpy as np

from kernels.topk import top_k

SUM_BLOCK = 256


class Rule(IntEnum):
    """Columns of `rules`."""

    FORBIDDEN = 0  # which row of `forbidden` holds
    TEXT_FROM = 1  # text below this id is forbidden; the first time's id or more: all of it
    TIME_FROM = 2  # times below this id are forbidden
    TIME_TO = 3  # and those from this id on
    OUTWEIGH = 4  # 1: all times together above the best single text token forbid text


def forbidden_bits(sets: Iterable[Iterable[int]], vocabulary: int) -> mx.array:
    """Token ids as rows of bits, uint32 [S, ceil(V / 32)]: token i is bit i % 32 of word i // 32."""
    rows = []
    for ids in sets:
        flags = np.zeros(-(-vocabulary // 32) * 32, np.uint8)
        flags[list(ids)] = 1
        rows.append(np.packbits(flags, bitorder="little").view("<u4"))
    return mx.array(np.stack(rows).astype(np.uint32))


def log_sum_exp(x: mx.array) -> mx.array:
    """log Σ exp over the last axis of [..., N], float32 [..., 1], in blocks: a CPU adds one after the other,
    and 50,000 summands would cost three digits."""
    width = x.shape[-1]
    padded = mx.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -width % SUM_BLOCK)], constant_values=-mx.inf)
    blocks = mx.logsumexp(padded.reshape(*x.shape[:-1], padded.shape[-1] // SUM_BLOCK, SUM_BLOCK), axis=-1)
    return mx.logsumexp(blocks, axis=-1, keepdims=True)


def best_tokens(
    logits: mx.array, rules: mx.array, forbidden: mx.array, *, first_time: int, count: int
) -> tuple[mx.array, mx.array]:
    """The `count` best tokens of each row and their log-probabilities among what the row's rules allow.

    logits: [R, V]. rules: int32 [R, 5], columns as in `Rule`. forbidden: uint32 [S, ceil(V / 32)].
    first_time: ids from here on are times. Returns tokens int32 [R, count], -1 where there are no more, and
    scores float32 [R, count], -inf there. Equal logits stand in the order of their ids. A row without an
    allowed token, or with NaN or plus infinity in an allowed one, has no best token.
    """
    ids = mx.arange(logits.shape[-1])
    words = forbidden[rules[:, Rule.FORBIDDEN]][:, ids // 32]
    open_ids = ((words >> (ids % 32).astype(mx.uint32)) & 1) == 0
    column = [rules[:, index : index + 1] for index in range(len(Rule))]
    text = open_ids & (ids < first_time) & (ids >= column[Rule.TEXT_FROM])
    times = open_ids & (ids >= first_time) & (ids >= column[Rule.TIME_FROM]) & (ids < column[Rule.TIME_TO])
    wide = logits.astype(mx.float32)
    all_times = log_sum_exp(mx.where(times, wide, -mx.inf))
    best_text = mx.max(mx.where(text, wide, -mx.inf), axis=-1, keepdims=True)
    outweighed = (column[Rule.OUTWEIGH] != 0) & (all_times > best_text)
    left = mx.where(times | (text & ~outweighed), wide, -mx.inf)
    norm = log_sum_exp(left)
    left = mx.where(mx.isfinite(norm), left, -mx.inf)
    if count == 1:
        tokens = mx.argmax(left, axis=-1, keepdims=True).astype(mx.int32)
        best = mx.take_along_axis(left, tokens, axis=-1)
        tokens = mx.where(best == -mx.inf, -1, tokens)
    else:
        best, tokens = top_k(left, count)
    return tokens, mx.where(tokens < 0, -mx.inf, best - norm)
