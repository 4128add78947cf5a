"""Products with packed weights against the same in double precision, and a row alone against in company."""

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.nn import RowProducts
from kernels.nn.row_products import can_run
from kernels.runtime import compiler, device

pytestmark = pytest.mark.skipif(
    compiler() is None or not can_run(), reason="needs a C++ compiler and an x86-64 CPU with AVX2 and F16C"
)

Floats = NDArray[np.float32]


def numbers(*shape: int, seed: int = 3) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def in_16_bits(weight: Floats) -> Floats:
    return weight.astype(np.float16).astype(np.float32)


def packed(weight: Floats, bias: Floats | None = None) -> RowProducts:
    return RowProducts.pack(mx.array(weight), None if bias is None else mx.array(bias))


def outputs_of(product: RowProducts, x: Floats) -> Floats:
    return np.array(product(mx.array(x)))


@pytest.mark.parametrize("exact", [True, False], ids=["16 bits", "32 bits"])
@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"),
    [(1, 7, 5), (3, 64, 32), (12, 384, 100), (41, 33, 257), (13, 256, 64), (100, 700, 72)],
)
def test_outputs_are_the_reference_s(exact: bool, rows: int, inputs: int, outputs: int) -> None:
    weight, bias, x = numbers(outputs, inputs), numbers(outputs, seed=4), numbers(rows, inputs, seed=5)
    if exact:
        weight = in_16_bits(weight)
    product = packed(weight, bias)
    assert (product.arrays[0].dtype == mx.float16) == exact
    expected = x.astype(np.float64) @ weight.T.astype(np.float64)
    # What rounding every product and every sum in one order may cost.
    most = (inputs + 1) * 2.0**-24 * (np.abs(x).astype(np.float64) @ np.abs(weight.T) + np.abs(bias))
    assert (np.abs(outputs_of(packed(weight), x) - expected) <= most).all()
    assert (np.abs(outputs_of(product, x) - (expected + bias)) <= most).all()


def test_a_row_has_its_own_bits_in_any_company_and_with_any_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    product, x = packed(in_16_bits(numbers(5000, 96))), numbers(40, 96, seed=5)
    together = outputs_of(product, x)
    for rows in (1, 5, 8, 13, 26):
        np.testing.assert_array_equal(outputs_of(product, x[:rows]), together[:rows])
    np.testing.assert_array_equal(outputs_of(product, np.flip(x, 0).copy()), together[::-1])
    monkeypatch.setenv("SPOOL_KERNEL_THREADS", "3")
    device._threads.cache_clear()
    try:
        assert device.threads_for(product.arrays[0].nbytes) == 3
        np.testing.assert_array_equal(outputs_of(product, x), together)
    finally:
        device._threads.cache_clear()


@pytest.mark.parametrize("exact", [True, False], ids=["16 bits", "32 bits"])
def test_a_row_has_its_own_bits_where_many_rows_share_pieces_of_a_panel(exact: bool) -> None:
    """One block of rows takes a panel whole, several take it in pieces."""
    weight = numbers(70, 600)
    product, x = packed(in_16_bits(weight) if exact else weight), numbers(150, 600, seed=5)
    together = outputs_of(product, x)
    for rows in (slice(0, 1), slice(20, 24), slice(3, 30), slice(140, 150)):
        np.testing.assert_array_equal(outputs_of(product, x[rows]), together[rows])


def test_16_bits_are_kept_where_they_hold_the_weights_and_give_the_same_bits() -> None:
    """Also where a power of two makes weights of 16 bits smaller than 16 bits go."""
    powers = np.exp2(-np.arange(-3, 67, dtype=np.float32))
    weight = in_16_bits(numbers(70, 48) * powers[:, None])
    weight[7], weight[9, 3] = 0.0, 65504.0
    halves, x = packed(weight), numbers(9, 48, seed=5)
    assert halves.arrays[0].dtype == mx.float16
    beyond = weight.copy()
    beyond[69, 0] = np.float32(1) + np.float32(2) ** -20
    floats = packed(beyond)
    assert floats.arrays[0].dtype == mx.float32
    np.testing.assert_array_equal(outputs_of(halves, x)[:, :69], outputs_of(floats, x)[:, :69])


def test_leading_axes_stay_and_none_are_needed() -> None:
    product, x = packed(numbers(40, 16)), numbers(2, 3, 16, seed=5)
    assert product(mx.array(x)).shape == (2, 3, 40)
    np.testing.assert_array_equal(outputs_of(product, x)[1, 2], outputs_of(product, x[1, 2]))
    turned = mx.array(x).swapaxes(0, 1)
    np.testing.assert_array_equal(np.array(product(turned)), outputs_of(product, x).swapaxes(0, 1))


def test_what_is_no_number_stays_in_its_row() -> None:
    product, x = packed(numbers(40, 16)), numbers(5, 16, seed=5)
    x[2, 3] = np.nan
    outputs = outputs_of(product, x)
    assert np.isnan(outputs[2]).all()
    assert np.isfinite(np.delete(outputs, 2, axis=0)).all()


@pytest.mark.parametrize("exact", [True, False], ids=["16 bits", "32 bits"])
def test_the_weights_of_outputs_come_back(exact: bool) -> None:
    weight = in_16_bits(numbers(100, 24) / np.float32(8)) if exact else numbers(100, 24)
    outputs = np.array([0, 99, 31, 32, 33, 99], np.int32)
    np.testing.assert_array_equal(np.array(packed(weight).of_outputs(mx.array(outputs))), weight[outputs])
