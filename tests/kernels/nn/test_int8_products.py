"""Products in 8-bit integers against numpy's, and a row alone against in company."""

from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.nn import Int8Products, int8_products
from kernels.nn.int8_products import can_run
from kernels.runtime import build_cpu, compiler, device
from kernels.runtime.build_cpu import cpu_model

pytestmark = pytest.mark.skipif(
    compiler() is None or not can_run(), reason="needs a C++ compiler and an x86-64 CPU with VNNI"
)

Floats = NDArray[np.float32]


def numbers(*shape: int, seed: int = 3) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def packed(weight: Floats, bias: Floats | None = None) -> Int8Products:
    return Int8Products.pack(mx.array(weight), None if bias is None else mx.array(bias))


def outputs_of(product: Int8Products, x: Floats) -> Floats:
    return np.array(product(mx.array(x)))


def quantise(rows: Floats) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Integers of -127 to 127 and each row's scale."""
    scale = np.abs(rows).max(axis=1, keepdims=True).astype(np.float64) / 127
    return np.rint(rows / np.where(scale > 0, scale, 1)).astype(np.int64), scale


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"),
    [(1, 7, 5), (3, 64, 32), (8, 384, 100), (41, 33, 257), (13, 256, 64), (100, 700, 72), (1100, 1000, 40)],
)
def test_outputs_are_those_of_exact_integers(rows: int, inputs: int, outputs: int) -> None:
    weight, bias, x = numbers(outputs, inputs), numbers(outputs, seed=4), numbers(rows, inputs, seed=5)
    (left, left_scale), (right, right_scale) = quantise(x), quantise(weight)
    expected = (left @ right.T) * left_scale * right_scale.T
    got = outputs_of(packed(weight), x)
    # A number in the middle between two integers may be rounded to either, by the last bits of the scale.
    most = 1e-5 * np.abs(expected).max() + (left_scale * np.abs(weight).max(axis=1))
    assert (np.abs(got - expected) <= most).all()
    assert np.mean(np.abs(got - expected) > 1e-5 * np.abs(expected).max()) < 0.01
    np.testing.assert_allclose(outputs_of(packed(weight, bias), x), got + bias, rtol=1e-5, atol=1e-5)


def test_they_are_near_the_products_of_real_numbers() -> None:
    weight, x = numbers(200, 384), numbers(50, 384, seed=5)
    expected = x.astype(np.float64) @ weight.T.astype(np.float64)
    errors = outputs_of(packed(weight), x) - expected
    # Both sides are rounded to 1/127 of the largest of 384 normal numbers, which is some 3.
    assert np.sqrt(np.mean(errors**2) / np.mean(expected**2)) < 0.02


def test_a_row_has_its_own_bits_in_any_company_and_with_any_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    product, x = packed(numbers(5000, 96)), numbers(40, 96, seed=5)
    together = outputs_of(product, x)
    for rows in (1, 5, 8, 13, 26):
        np.testing.assert_array_equal(outputs_of(product, x[:rows]), together[:rows])
    np.testing.assert_array_equal(outputs_of(product, np.flip(x, 0).copy()), together[::-1])
    monkeypatch.setenv("SPOOL_KERNEL_THREADS", "3")
    device._threads.cache_clear()
    try:
        np.testing.assert_array_equal(outputs_of(product, x), together)
    finally:
        monkeypatch.undo()
        device._threads.cache_clear()


@contextmanager
def built_with(*flags: str) -> Iterator[None]:
    """The kernel as other CPUs get it."""
    int8_products._library.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8_products, "FAST_FLAGS", (*build_cpu.FAST_FLAGS, *flags))
        yield
    int8_products._library.cache_clear()


@pytest.mark.parametrize(
    ("feature", "flags", "shape"),
    [
        # Columns of a panel: two registers of eight. The depth: fours, or whole rows of a tile.
        ("avx_vnni", ("-mno-avx512f", "-mavxvnni", "-mno-amx-int8"), (9, 16)),
        ("avx512_vnni", ("-mno-amx-int8",), (9, 32)),
        ("amx_int8", (), (16, 32)),
    ],
)
@pytest.mark.parametrize(("rows", "outputs"), [(1, 5), (3, 32), (41, 257), (17, 40), (33, 64)])
def test_every_instruction_gives_the_same_bits(
    feature: str, flags: tuple[str, ...], shape: tuple[int, int], rows: int, outputs: int
) -> None:
    if feature not in cpu_model().split():
        pytest.skip(f"needs a CPU with {feature}")
    weight, bias, x = numbers(outputs, 33), numbers(outputs, seed=4), numbers(rows, 33, seed=5)
    with built_with(*flags):
        product = packed(weight, bias)
        assert product.arrays[0].shape[1:3] == shape
        got = outputs_of(product, x)
    np.testing.assert_array_equal(got, outputs_of(packed(weight, bias), x))


def test_a_kernel_that_does_not_compile_is_left_out_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(int8_products, "FAST_FLAGS", ("-fno-such-flag",))
    monkeypatch.setattr(int8_products, "read_backend", lambda: None)
    int8_products._library.cache_clear()
    try:
        assert not can_run()
        assert "models compute in float32, not in 8-bit integers" in caplog.text
    finally:
        int8_products._library.cache_clear()


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_gives_nan_and_no_other_row_does(broken: float) -> None:
    product, x = packed(numbers(40, 96)), numbers(12, 96, seed=5)
    whole = outputs_of(product, x)
    x[5, 17] = broken
    got = outputs_of(product, x)
    assert np.isnan(got[5]).all()
    np.testing.assert_array_equal(np.delete(got, 5, 0), np.delete(whole, 5, 0))


def test_zeros_give_the_bias() -> None:
    weight, bias = numbers(40, 96), numbers(40, seed=4)
    weight[3] = 0
    x = numbers(4, 96, seed=5)
    x[1] = 0
    got = outputs_of(packed(weight, bias), x)
    np.testing.assert_array_equal(got[1], bias)
    np.testing.assert_array_equal(got[:, 3], np.full(4, bias[3]))
