"""top_k against numpy, with the values that sorts get wrong."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.search import top_k

VALUES = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, 1e-40, -1e-40, 3e38, -np.inf, np.inf, np.nan])


def expected(row: np.ndarray, k: int) -> tuple[list[float], list[int]]:
    places = [i for i in range(len(row)) if row[i] > -np.inf]
    places.sort(key=lambda i: (-row[i], i))
    places = places[:k]
    missing = k - len(places)
    return [float(row[i]) for i in places] + [-np.inf] * missing, places + [-1] * missing


@settings(deadline=None, max_examples=200)
@given(st.lists(VALUES, min_size=1, max_size=40), st.integers(1, 45))
def test_ties_infinities_and_nan_follow_the_contract(row: list[float], k: int) -> None:
    values = np.array(row, np.float32)

    found, index = top_k(mx.array(values), k)

    assert (np.array(found).tolist(), np.array(index).tolist()) == expected(values, k)


@pytest.mark.parametrize("shape", [(3, 1), (4, 33), (2, 5, 257), (1, 2, 3, 8)])
@pytest.mark.parametrize("k", [1, 4, 8, 300])
def test_rows_of_any_rank(shape: tuple[int, ...], k: int) -> None:
    values = np.random.default_rng(0).integers(-4, 4, shape).astype(np.float32)

    found, index = top_k(mx.array(values), k)

    assert found.shape == index.shape == (*shape[:-1], k)
    for row, kept, at in zip(
        values.reshape(-1, shape[-1]),
        np.array(found).reshape(-1, k),
        np.array(index).reshape(-1, k),
        strict=True,
    ):
        assert (kept.tolist(), at.tolist()) == expected(row, k)


def test_half_precision_rows_are_ranked_as_float32() -> None:
    values = np.random.default_rng(1).normal(size=(2, 50)).astype(np.float32)
    half = mx.array(values).astype(mx.bfloat16)

    found, index = top_k(half, 5)

    assert found.dtype == mx.float32
    exact = np.array(half.astype(mx.float32))
    assert np.array(index).tolist() == [expected(row, 5)[1] for row in exact]
