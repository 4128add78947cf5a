"""From logits to the best allowed tokens of each row: masks, log-softmax and top-k in one.

Semantics: `SuppressTokens`, `SuppressBlank` and `ApplyTimestampRules` of openai-whisper (decoding.py). Which
tokens a row may take follows from its history, which the caller knows and puts into five numbers a row. Owns
the contract, the plain-MLX reference and the choice; knows no search.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from kernels.runtime.device import launch
from kernels.runtime.source import read_kernel
from kernels.search.topk import top_k

RULES_TOPK = read_kernel(
    "attention/rules_topk", "logits rules forbidden", "o_tokens o_scores", header="allowed.h"
)
SIMDGROUPS = 8
MOST_TOKENS = 9  # a beam of 8 asks for 9; the candidates' memory grows with it


class Rule(IntEnum):
    """Columns of `rules`."""

    FORBIDDEN = 0  # which row of `forbidden` holds
    TEXT_FROM = 1  # text below this id is forbidden; the first time's id or more: all of it
    TIME_FROM = 2  # times below this id are forbidden
    TIME_TO = 3  # and those from this id on
    OUTWEIGH = 4  # 1: all times together above the best single text token forbid text


class BestTokens(NamedTuple):
    """tokens: int32 [R, N], best first, -1 where there are no more. scores: float32 [R, N], -inf there."""

    tokens: mx.array
    scores: mx.array


def forbidden_bits(sets: Iterable[Iterable[int]], vocabulary: int) -> mx.array:
    """Token ids as rows of bits, uint32 [S, ceil(V / 32)]: token i is bit i % 32 of word i // 32.

    Raises ValueError for an id outside the vocabulary.
    """
    rows = []
    for ids in sets:
        chosen = np.fromiter(ids, np.int64)
        if chosen.size and (chosen.min() < 0 or chosen.max() >= vocabulary):
            raise ValueError(
                f"forbidden tokens must be within 0 to {vocabulary - 1}, not {sorted(chosen.tolist())}"
            )
        flags = np.zeros(-(-vocabulary // 32) * 32, np.uint8)
        flags[chosen] = 1
        rows.append(np.packbits(flags, bitorder="little").view("<u4"))
    return mx.array(np.stack(rows).astype(np.uint32))


def rules_topk(
    logits: mx.array,
    rules: mx.array,
    forbidden: mx.array,
    *,
    first_time: int,
    count: int,
    gains: mx.array | None = None,
) -> BestTokens:
    """The `count` best tokens of each row with their log-probabilities among what the row's rules allow.

    logits: [R, V], float32, float16 or bfloat16. rules: int32 [R, 5], columns as in `Rule`. forbidden:
    uint32 [S, ceil(V / 32)] of `forbidden_bits`. first_time: ids from here on are times, those below are
    text; V where the vocabulary has no times. count: 1 to 9 for the kernel, more takes the reference.
    gains: float32 [R, V], added to the log-probabilities before the best are chosen: two launches.

    A token is allowed where its bit is not set and it is text from TEXT_FROM or a time in [TIME_FROM,
    TIME_TO). With OUTWEIGH, where the log-sum of the allowed times is above the largest allowed text, text
    is forbidden too. The log-softmax is over what is then left. Equal logits stand in the order of their
    ids. A row without an allowed token, or with NaN or plus infinity in an allowed one, has no best token.
    The log-softmax is not written out. Within 1e-5 absolute of the exact numbers and 1e-4 of the reference
    at 50,000 tokens, which MLX adds one after the other; a row whose log-sum of times is as near to its best
    text may be decided otherwise. A row's bits depend on nothing else in the batch.
    Raises ValueError where shapes do not fit.
    """
    _check(logits, rules, forbidden, first_time, count)
    if gains is not None:
        return _with_gains(logits, rules, forbidden, first_time, count, gains)
    rows, width = logits.shape
    outputs = None
    if rows and count <= MOST_TOKENS:
        outputs = launch(
            RULES_TOPK,
            [logits, rules.astype(mx.int32), forbidden],
            [((rows, count), mx.int32), ((rows, count), mx.float32)],
            groups=rows,
            simdgroups=SIMDGROUPS,
            template=(("V", width), ("TIMES", first_time), ("N", count)),
        )
    if outputs is None:
        return rules_topk_reference(logits, rules, forbidden, first_time=first_time, count=count)
    return BestTokens(*outputs)


def _with_gains(
    logits: mx.array, rules: mx.array, forbidden: mx.array, first_time: int, count: int, gains: mx.array
) -> BestTokens:
    """The best by logits and gains, with their scores among what the logits alone allow."""
    if gains.shape != logits.shape:
        raise ValueError(f"rules: gains must be {logits.shape} as the logits, not {gains.shape}")
    top, scores = rules_topk(logits, rules, forbidden, first_time=first_time, count=1)
    wide = logits.astype(mx.float32)
    norm = mx.take_along_axis(wide, mx.maximum(top, 0), axis=1) - scores
    # All times together are above the best text, and forbid it, exactly where the best token is a time.
    rules = mx.array(rules)
    outweighed = (rules[:, Rule.OUTWEIGH] != 0) & (top[:, 0] >= first_time)
    rules[:, Rule.TEXT_FROM] = mx.where(outweighed, first_time, rules[:, Rule.TEXT_FROM])
    rules[:, Rule.OUTWEIGH] = 0
    fused = wide + gains
    tokens, _ = rules_topk(fused, rules, forbidden, first_time=first_time, count=count)
    is_candidate = (tokens >= 0) & (top >= 0)
    chosen = mx.take_along_axis(fused, mx.maximum(tokens, 0), axis=1) - norm
    return BestTokens(mx.where(is_candidate, tokens, -1), mx.where(is_candidate, chosen, -mx.inf))


def rules_topk_reference(
    logits: mx.array, rules: mx.array, forbidden: mx.array, *, first_time: int, count: int
) -> BestTokens:
    """The same in plain MLX."""
    _check(logits, rules, forbidden, first_time, count)
    width = logits.shape[-1]
    if len(logits) == 0:
        return BestTokens(mx.zeros((0, count), mx.int32), mx.zeros((0, count)))
    ids = mx.arange(width)
    words = forbidden[rules[:, Rule.FORBIDDEN]][:, ids // 32]
    open_ids = ((words >> (ids % 32).astype(mx.uint32)) & 1) == 0
    column = [rules[:, i : i + 1] for i in range(len(Rule))]
    text = open_ids & (ids < first_time) & (ids >= column[Rule.TEXT_FROM])
    times = open_ids & (ids >= first_time) & (ids >= column[Rule.TIME_FROM]) & (ids < column[Rule.TIME_TO])
    wide = logits.astype(mx.float32)
    all_times = mx.logsumexp(mx.where(times, wide, -mx.inf), axis=-1, keepdims=True)
    best_text = mx.max(mx.where(text, wide, -mx.inf), axis=-1, keepdims=True)
    outweighed = (column[Rule.OUTWEIGH] != 0) & (all_times > best_text)
    left = mx.where(times | (text & ~outweighed), wide, -mx.inf)
    norm = mx.logsumexp(left, axis=-1, keepdims=True)
    best, tokens = top_k(mx.where(mx.isfinite(norm), left, -mx.inf), count)
    return BestTokens(tokens, mx.where(tokens < 0, -mx.inf, best - norm))


def _check(logits: mx.array, rules: mx.array, forbidden: mx.array, first_time: int, count: int) -> None:
    if logits.ndim != 2 or logits.shape[1] < 1:
        raise ValueError(f"rules: logits must be [rows, tokens], not {logits.shape}")
    if rules.shape != (len(logits), len(Rule)):
        raise ValueError(
            f"rules: {len(logits)} rows need rules [{len(logits)}, {len(Rule)}], not {rules.shape}"
        )
    words = -(-logits.shape[1] // 32)
    if (
        forbidden.dtype != mx.uint32
        or forbidden.ndim != 2
        or forbidden.shape[1] != words
        or not len(forbidden)
    ):
        raise ValueError(
            f"rules: forbidden must be uint32 [sets, {words}] for {logits.shape[1]} tokens, "
            f"not {forbidden.dtype} {forbidden.shape}"
        )
    if not 0 <= first_time <= logits.shape[1]:
        raise ValueError(f"rules: the first time must be within 0 to {logits.shape[1]}, not {first_time}")
    if count < 1:
        raise ValueError(f"rules: count must be at least 1, not {count}")
