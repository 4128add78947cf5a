"""Contracts of the attention decoder's kernels, as cases for any machine."""

from collections.abc import Callable, Iterator
from functools import partial

import mlx.core as mx
import numpy as np

from kernels.attention.cross_attention import cross_attention, cross_attention_reference
from kernels.attention.dtw import dtw, dtw_reference
from kernels.attention.full_attention import full_attention, full_attention_reference
from kernels.attention.rules import BestTokens, forbidden_bits, rules_topk, rules_topk_reference
from kernels.attention.self_attention import places_of_parents, self_attention, self_attention_reference
from kernels.contracts.case import Case, lengths_of, normal

BEAM, HEADS, WIDTH, FRAMES, STEPS = 3, 2, 64, 75, 37


def _make_cross(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    return [
        normal(batch, BEAM, HEADS, WIDTH, dtype=dtype),
        normal(batch, HEADS, WIDTH, FRAMES, seed=1, dtype=dtype),
        normal(batch, HEADS, FRAMES, WIDTH, seed=2, dtype=dtype),
        lengths_of(batch, FRAMES),
    ]


def _cross(call: Callable[..., mx.array]) -> Callable[..., mx.array]:
    def run(queries: mx.array, keys: mx.array, values: mx.array, lengths: mx.array) -> mx.array:
        utterances = mx.repeat(mx.arange(len(queries), dtype=mx.int32), BEAM)
        attended = call(queries.reshape(-1, HEADS, WIDTH), keys, values, utterances, lengths, beam=BEAM)
        return attended.reshape(queries.shape)

    return run


def _make_self(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    """An utterance's rows have their columns in one another's rows of the pool."""
    pool = [normal(batch, BEAM, HEADS, STEPS + 3, WIDTH, seed=seed, dtype=dtype) for seed in (1, 2)]
    parents = np.random.default_rng(batch).integers(0, BEAM, (batch, BEAM, STEPS))
    lengths = lengths_of(batch * BEAM, STEPS).reshape(batch, BEAM)
    return [
        normal(batch, BEAM, HEADS, WIDTH, dtype=dtype),
        *pool,
        mx.array(parents.astype(np.int32)),
        lengths,
    ]


def _self(call: Callable[..., mx.array]) -> Callable[..., mx.array]:
    def run(
        queries: mx.array, keys: mx.array, values: mx.array, own: mx.array, lengths: mx.array
    ) -> mx.array:
        parents = own + BEAM * mx.arange(len(queries), dtype=mx.int32)[:, None, None]
        pool = [each.reshape(-1, *each.shape[2:]) for each in (queries, keys, values)]
        places = places_of_parents(parents.reshape(-1, STEPS), keys.shape[3])
        return call(*pool, places, lengths.reshape(-1)).reshape(queries.shape)

    return run


def _make_full(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    return [normal(batch, FRAMES, 3 * HEADS * 16, dtype=dtype)]


def _make_rules(batch: int, dtype: mx.Dtype, *, tokens: int, times: int) -> list[mx.array]:
    """Rows of every kind: free, without times, times alone, text behind an id, nothing allowed."""
    first = tokens - times
    kinds = [
        (0, 0, first, tokens, 1),
        (1, 0, first + times // 3, tokens, 1),
        (0, first, first, first + times // 2, 1),
        (1, first - 9, tokens, tokens, 1),
        (0, first, tokens, tokens, 1),
        (1, 0, first, tokens, 0),
    ]
    rules = mx.array([kinds[i % len(kinds)] for i in range(batch)], mx.int32)
    sets = forbidden_bits([[0, first - 1], range(2, first, 3)], tokens)
    return [normal(batch, tokens, dtype=dtype, scale=3), rules, sets]


def _rules(call: Callable[..., BestTokens], first: int) -> Callable[..., mx.array]:
    def run(logits: mx.array, rules: mx.array, forbidden: mx.array) -> mx.array:
        best = call(logits, rules, forbidden, first_time=first, count=4)
        return mx.concatenate([best.tokens.astype(mx.float32), mx.maximum(best.scores, -1e9)], axis=1)

    return run


def _make_dtw(batch: int, dtype: mx.Dtype) -> list[mx.array]:
    columns = mx.array([[45, 30, 7, 0, 1, 20][i % 6] for i in range(batch)], mx.int32)
    return [normal(batch, 40, 45, dtype=dtype), lengths_of(batch, 40), columns]


def _dtw(call: Callable[..., mx.array]) -> Callable[..., mx.array]:
    return lambda *inputs: call(*inputs).astype(mx.float32)


def attention_cases() -> Iterator[Case]:
    """The cases of an attention decoder's kernels."""
    yield Case("cross-attention", _make_cross, _cross(cross_attention), _cross(cross_attention_reference))
    yield Case(
        "full-attention",
        _make_full,
        partial(full_attention, heads=HEADS),
        partial(full_attention_reference, heads=HEADS),
    )
    yield Case("self-attention", _make_self, _self(self_attention), _self(self_attention_reference))
    for name, tokens, times in (("many", 1700, 201), ("few", 70, 20), ("text", 70, 0)):
        yield Case(
            f"rules-{name}",
            partial(_make_rules, tokens=tokens, times=times),
            _rules(rules_topk, tokens - times),
            _rules(rules_topk_reference, tokens - times),
        )
    yield Case("dtw", _make_dtw, _dtw(dtw), _dtw(dtw_reference))
