"""Self attention through a table of places: equal to a cache that was really reordered."""

import mlx.core as mx
import numpy as np
import pytest

from kernels.attention import places_of_parents, self_attention_reference
from kernels.attention.self_attention import self_attention
from kernels.contracts import same_bits
from kernels.contracts.case import distance, normal
from kernels.runtime import use_backend
from ops.testbed.kernel_cases import TESTED

HEADS, WIDTH, COLUMNS = 2, 64, 70


def attended(queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[H, D] over [H, n, D] in float64."""
    scores = np.einsum("hd,hnd->hn", queries.astype(np.float64), keys) / np.sqrt(WIDTH)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hn,hnd->hd", weights / weights.sum(-1, keepdims=True), values)


def test_a_beam_that_reorders_its_table_answers_as_one_that_reorders_its_cache() -> None:
    rows, steps = 5, 66
    rng = np.random.default_rng(3)
    pool = np.zeros((2, rows, HEADS, COLUMNS, WIDTH), np.float32)
    parents = np.zeros((rows, COLUMNS), np.int32)
    cache = np.zeros((2, rows, HEADS, 0, WIDTH), np.float32)
    for step in range(steps):
        order = rng.integers(0, rows, rows)
        parents, cache = parents[order], cache[:, order]
        fresh = rng.normal(size=(2, rows, HEADS, WIDTH)).astype(np.float32)
        pool[:, :, :, step] = fresh
        parents[:, step] = np.arange(rows)
        cache = np.concatenate([cache, fresh[:, :, :, None]], axis=3)
        if step not in (0, 1, 30, 31, 32, 65):
            continue
        queries = rng.normal(size=(rows, HEADS, WIDTH)).astype(np.float32)
        places = places_of_parents(mx.array(parents), COLUMNS)
        lengths = mx.full((rows,), step + 1, mx.int32)
        arguments = (mx.array(queries), mx.array(pool[0]), mx.array(pool[1]), places, lengths)
        with use_backend(TESTED):
            made = np.array(self_attention(*arguments))
        expected = np.stack([attended(queries[r], cache[0, r], cache[1, r]) for r in range(rows)])
        np.testing.assert_allclose(made, expected, atol=5e-6)
        np.testing.assert_allclose(np.array(self_attention_reference(*arguments)), expected, atol=5e-6)


def test_columns_of_a_beam_may_lie_side_by_side_in_one_row_of_the_pool() -> None:
    count, beam, steps = 3, 4, 9
    keys, values = (
        normal(count, HEADS, steps * beam, WIDTH, seed=1),
        normal(count, HEADS, steps * beam, WIDTH),
    )
    owners = np.random.default_rng(0).integers(0, beam, (count, beam, steps))
    column = np.arange(steps) * beam + owners
    places = column + np.arange(count)[:, None, None] * steps * beam
    queries = normal(count * beam, HEADS, WIDTH, seed=2)
    with use_backend(TESTED):
        made = np.array(
            self_attention(
                queries,
                keys,
                values,
                mx.array(places.reshape(-1, steps).astype(np.int32)),
                mx.full((count * beam,), steps, mx.int32),
            )
        )
    for row in range(count * beam):
        utterance, chosen = row // beam, column[row // beam, row % beam]
        own = [np.array(pool)[utterance][:, chosen] for pool in (keys, values)]
        np.testing.assert_allclose(made[row], attended(np.array(queries)[row], *own), atol=5e-6)


def test_what_is_behind_a_length_is_not_read() -> None:
    pool = [np.array(normal(4, HEADS, COLUMNS, WIDTH, seed=seed)) for seed in (1, 2)]
    lengths = mx.array([0, 1, 32, 40], mx.int32)
    parents = mx.broadcast_to(mx.arange(4, dtype=mx.int32)[:, None], (4, 40))
    queries = normal(4, HEADS, WIDTH)
    dirty = [each.copy() for each in pool]
    for row, length in enumerate(np.array(lengths).tolist()):
        for each in dirty:
            each[row, :, length:] = np.nan
    places = places_of_parents(parents, COLUMNS)
    wild = mx.where(mx.arange(40) < lengths[:, None], places, 2**30)
    keys, values = map(mx.array, pool)
    other_keys, other_values = map(mx.array, dirty)
    with use_backend(TESTED):
        clean = self_attention(queries, keys, values, places, lengths)
        assert same_bits(clean, self_attention(queries, other_keys, other_values, wild, lengths))
    assert not np.array(clean[0]).any()
    np.testing.assert_array_equal(np.array(clean[1]), pool[1][1, :, 0])


def test_minus_infinity_weighs_nothing_and_nothing_else_is_no_number() -> None:
    keys = np.array(normal(2, HEADS, COLUMNS, WIDTH, seed=1))
    keys[0, :, :32, 0] = -np.inf
    keys[1, :, :, 0] = -np.inf
    values, queries = normal(2, HEADS, COLUMNS, WIDTH, seed=2), mx.abs(normal(2, HEADS, WIDTH)) + 1.0
    places = places_of_parents(mx.array([[0] * 40, [1] * 40], mx.int32), COLUMNS)
    arguments = (queries, mx.array(keys), values, places, mx.array([40, 40], mx.int32))
    with use_backend(TESTED):
        made = np.array(self_attention(*arguments))
    expected = np.array(self_attention_reference(*arguments))
    np.testing.assert_allclose(made[0], expected[0], atol=5e-6)
    assert np.isfinite(made[0]).all()
    assert np.isnan(made[1]).all()
    assert np.isnan(expected[1]).all()


def test_no_row_and_no_position_are_no_error() -> None:
    keys, values = (normal(2, HEADS, COLUMNS, WIDTH, seed=seed) for seed in (1, 2))
    none = mx.zeros((0,), mx.int32)
    with use_backend(TESTED):
        empty = self_attention(mx.zeros((0, HEADS, WIDTH)), keys, values, mx.zeros((0, 4), mx.int32), none)
        assert empty.size == 0
        made = self_attention(
            normal(2, HEADS, WIDTH), keys, values, mx.zeros((2, 0), mx.int32), mx.array([0, 3], mx.int32)
        )
        assert not np.array(made).any()


def test_shapes_that_do_not_fit_are_refused() -> None:
    keys, queries = normal(2, HEADS, COLUMNS, WIDTH), normal(3, HEADS, WIDTH)
    with pytest.raises(ValueError, match="does not fit queries"):
        self_attention(queries[:, :1], keys, keys, mx.zeros((3, 4), mx.int32), mx.zeros((3,), mx.int32))
    with pytest.raises(ValueError, match="need places"):
        self_attention(queries, keys, keys, mx.zeros((2, 4), mx.int32), mx.zeros((3,), mx.int32))


def test_queries_may_come_scaled() -> None:
    queries, keys, values = (normal(3, HEADS, *rest) for rest in ((WIDTH,), (9, WIDTH), (9, WIDTH)))
    rest = keys, values, places_of_parents(mx.zeros((3, 9), mx.int32), 9), mx.array([9, 4, 1], mx.int32)
    with use_backend(TESTED):
        made = self_attention(queries / 8.0, *rest, scaled=True)
        assert same_bits(made, self_attention(queries, *rest))
    assert distance(made, self_attention_reference(queries / 8.0, *rest, scaled=True)) < 5e-6
