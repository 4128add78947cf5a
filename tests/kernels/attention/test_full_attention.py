"""Full attention: every position to all of its own sequence, in blocks of keys and of queries."""

import mlx.core as mx
import numpy as np
import pytest

from kernels.attention import full_attention_reference
from kernels.attention.full_attention import full_attention
from kernels.contracts import same_bits
from kernels.contracts.case import normal
from kernels.runtime import use_backend
from ops.testbed.kernel_cases import TESTED

HEADS, WIDTH = 2, 64


def in_numpy(x: np.ndarray, heads: int) -> np.ndarray:
    """The same in float64."""
    batch, length, _ = x.shape
    queries, keys, values = x.astype(np.float64).reshape(batch, length, 3, heads, -1).transpose(2, 0, 3, 1, 4)
    scores = queries @ keys.swapaxes(2, 3)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return (weights @ values).swapaxes(1, 2).reshape(batch, length, -1)


def scaled(x: mx.array, scale: float) -> mx.array:
    """Queries and keys so much larger."""
    third = x.shape[2] // 3
    return mx.concatenate([x[..., : 2 * third] * scale, x[..., 2 * third :]], axis=-1)


@pytest.mark.parametrize("scale", [0.35, 1.0, 4.0])
@pytest.mark.parametrize("length", [1, 31, 32, 60, 61, 73, 120, 400])
def test_every_position_attends_to_all(length: int, scale: float) -> None:
    x = scaled(normal(2, length, 3 * HEADS * WIDTH), scale)
    with use_backend(TESTED):
        made = np.array(full_attention(x, HEADS))
    expected = in_numpy(np.array(x), HEADS)
    # Scores of `scale` 0.35 are of unit scale; what larger ones are rounded by is the exponentials' error.
    tolerance = 5e-6 if scale < 1 else 2e-5 * scale**2
    np.testing.assert_allclose(made, expected, atol=tolerance)
    reference = np.array(full_attention_reference(x, HEADS))
    np.testing.assert_allclose(reference, expected, atol=tolerance)


@pytest.mark.slow  # each width is compiled
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("width", [8, 24, 64, 80, 96])
def test_heads_of_other_widths(heads: int, width: int) -> None:
    x = normal(1, 70, 3 * heads * width)
    with use_backend(TESTED):
        made = np.array(full_attention(x, heads))
    np.testing.assert_allclose(made, in_numpy(np.array(x), heads), atol=2e-5)


def test_a_sequence_has_the_bits_that_it_has_alone() -> None:
    x = normal(32, 75, 3 * HEADS * 16)
    with use_backend(TESTED):
        together = full_attention(x, HEADS)
        for one in range(len(x)):
            assert same_bits(full_attention(x[one : one + 1], HEADS), together[one : one + 1])
        assert same_bits(full_attention(x[::-1], HEADS), together[::-1])


def test_numbers_that_are_none_stay_in_their_sequence_and_head() -> None:
    clean = normal(3, 75, 3 * HEADS * WIDTH)
    hurt = np.array(clean)
    hurt[0, 3, 0] = np.nan  # a query of the first head
    hurt[1, 5, HEADS * WIDTH + WIDTH] = np.nan  # a key of the second
    with use_backend(TESTED):
        made, unhurt = (np.array(full_attention(mx.array(x), HEADS)) for x in (hurt, np.array(clean)))
    lost = np.isnan(made)
    assert lost[0, 3, :WIDTH].all()
    assert lost[1, :, WIDTH:].all()
    assert lost.sum() == WIDTH + 75 * WIDTH
    np.testing.assert_array_equal(made[~lost], unhurt[~lost])


def test_keys_at_minus_infinity_weigh_nothing() -> None:
    x = np.array(normal(1, 200, 3 * WIDTH))
    x[0, :, :WIDTH] = np.abs(x[0, :, :WIDTH]) + 1.0
    x[0, :130, WIDTH] = -np.inf  # the first blocks have no other keys
    with use_backend(TESTED):
        made = np.array(full_attention(mx.array(x), 1))
    behind = np.array(x)[:, 130:]
    products = x[0, :, :WIDTH].astype(np.float64) @ behind[0, :, WIDTH : 2 * WIDTH].T
    weights = np.exp(products - products.max(axis=-1, keepdims=True))
    expected = weights / weights.sum(axis=-1, keepdims=True) @ behind[0, :, 2 * WIDTH :]
    np.testing.assert_allclose(made[0], expected, atol=2e-5)


def test_no_sequence_is_no_error_and_shapes_that_do_not_fit_are_refused() -> None:
    with use_backend(TESTED):
        assert full_attention(mx.zeros((0, 4, 24)), 1).shape == (0, 4, 8)
        assert full_attention(mx.zeros((2, 0, 24)), 1).shape == (2, 0, 8)
    with pytest.raises(ValueError, match="takes"):
        full_attention(mx.zeros((1, 4, 32)), 3)
