"""Causal attention in pieces against MLX's own."""

import mlx.core as mx
import numpy as np
import pytest

from worker.models.attention.layers import QUERIES, attend_causal


def numbers(seed: int, *shape: int) -> mx.array:
    return mx.array(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize(
    ("count", "before"), [(1, 0), (1, 7), (40, 0), (QUERIES, 0), (2 * QUERIES + 5, 0), (QUERIES + 3, 50)]
)
@pytest.mark.parametrize(("heads", "groups"), [(6, 2), (4, 4), (3, 1)])
def test_it_is_the_attention_of_all_queries_at_once(count: int, before: int, heads: int, groups: int) -> None:
    queries = 0.2 * numbers(1, 2, heads, count, 32)
    keys, values = (numbers(seed, 2, groups, before + count, 32) for seed in (2, 3))
    expected = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=1.0, mask="causal")
    np.testing.assert_allclose(attend_causal(queries, keys, values), expected, atol=5e-6)
    # Queries that lie in memory in another order, as those of fused products do.
    turned = mx.contiguous(queries.swapaxes(1, 2)).swapaxes(1, 2)
    np.testing.assert_allclose(attend_causal(turned, keys, values), expected, atol=5e-6)
