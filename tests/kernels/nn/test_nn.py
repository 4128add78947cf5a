"""Every kernel: equal to its reference, the same bits in any batch, NaN kept where it came in."""

import mlx.core as mx
import numpy as np
import pytest

from kernels.contracts import DTYPES, TOLERANCE, Case, lengths_of, same_bits
from kernels.contracts.case import distance, normal
from kernels.nn import convolution, elementwise
from kernels.runtime import use_backend
from ops.testbed.kernel_cases import TESTED, every_case


@every_case
@pytest.mark.parametrize(
    "dtype", [name if name == "float32" else pytest.param(name, marks=pytest.mark.long) for name in DTYPES]
)
@pytest.mark.parametrize("batch", [1, 9])
def test_the_kernel_gives_what_its_reference_gives(case: Case, dtype: str, batch: int) -> None:
    inputs = case.make(batch, DTYPES[dtype])
    with use_backend(TESTED):
        made = case.run(*inputs)
    expected = case.reference(*inputs)
    assert made.dtype == expected.dtype
    assert made.shape == expected.shape
    assert distance(made, expected) <= max(TOLERANCE[dtype], case.slack)


@every_case
@pytest.mark.slow  # each kernel is compiled twice
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.long)])
def test_one_lane_and_32_fibers_agree_bit_for_bit(case: Case, dtype: str) -> None:
    inputs = case.make(4, DTYPES[dtype])
    # Not numbers and infinities go the same way too.
    hurt = np.array(inputs[0].astype(mx.float32))
    flat = hurt.reshape(-1)
    flat[3], flat[flat.size // 2], flat[-5], flat[7] = np.nan, np.inf, -np.inf, 0.0
    for first in (inputs[0], mx.array(hurt).astype(DTYPES[dtype])):
        made = {}
        for backend in ("cpu", "fibers"):
            with use_backend(backend):
                made[backend] = case.run(first, *inputs[1:])
        assert same_bits(made["cpu"], made["fibers"])


def test_without_a_kernel_the_reference_runs() -> None:
    x = normal(3, 50)
    with use_backend("reference"):
        assert same_bits(elementwise.silu(x), elementwise.silu_reference(x))


def test_silu_at_the_ends_of_float() -> None:
    x = mx.array([0.0, -0.0, 100.0, -100.0, 3e38, -3e38, float("inf"), 88.7, -88.7], mx.float32)
    with use_backend(TESTED):
        made = np.array(elementwise.silu(x))
    assert np.isfinite(made[:6]).all()
    assert made[6] == np.inf
    np.testing.assert_allclose(made[[2, 4, 7]], [100.0, 3e38, 88.7], rtol=1e-6)
    np.testing.assert_allclose(made[[0, 1, 3, 5, 8]], 0.0, atol=1e-30)


def test_softmax_rows_sum_to_one_and_ties_share() -> None:
    content, position = mx.zeros((1, 1, 33, 33)), mx.zeros((1, 1, 33, 65))
    with use_backend(TESTED):
        made = np.array(elementwise.relative_softmax(content, position, mx.array([20]), 4))
    assert (made[0, 0, :20, :20] == made[0, 0, 0, 0]).all()
    np.testing.assert_allclose(made[0, 0, :20].sum(-1), 1.0, atol=1e-6)
    assert not made[0, 0, 20:].any()
    assert not made[..., 20:].any()


def test_a_padded_frame_is_never_read() -> None:
    """Whatever stands in the padding, NaN included, valid frames are the same bits and the rest is zero."""
    batch, frames = 3, 21
    lengths = mx.array([21, 6, 0], mx.int32)
    weight, shift, x = normal(9, 40, scale=0.3), normal(40), normal(batch, frames, 80)
    inside = (mx.arange(frames)[None, :] < lengths[:, None])[..., None]
    with use_backend(TESTED):
        clean = convolution.glu_conv(x, weight, shift, lengths)
        dirty = convolution.glu_conv(mx.where(inside, x, float("nan")), weight, shift, lengths)
    assert same_bits(clean, dirty)
    assert not np.array(clean)[1, 6:].any()
    assert not np.array(clean)[2].any()


@every_case
def test_an_utterance_is_the_same_alone_and_in_a_batch(case: Case) -> None:
    """Law 7: no other utterance, no order of them and no number of them changes a bit."""
    inputs = case.make(8, mx.float32)
    batched = [each.shape[0] == 8 for each in inputs]
    order = mx.array([5, 2, 7, 0, 1, 6, 3, 4])
    with use_backend(TESTED):
        together = case.run(*inputs)
        shuffled = case.run(
            *(each[order] if own else each for each, own in zip(inputs, batched, strict=True))
        )
        for i in range(8):
            one = [each[i : i + 1] if own else each for each, own in zip(inputs, batched, strict=True)]
            assert same_bits(case.run(*one)[0], together[i])
    assert same_bits(shuffled, together[order])


def test_an_utterance_is_the_same_under_any_padding() -> None:
    with use_backend(TESTED):
        for frames in (12, 40, 77):
            content = mx.pad(normal(1, 2, 12, 12), [(0, 0), (0, 0), (0, frames - 12), (0, frames - 12)])
            both = frames - 12
            position = mx.pad(normal(1, 2, 12, 23), [(0, 0), (0, 0), (0, both), (both, both)])
            softmax = elementwise.relative_softmax(content, position, mx.array([12]), 8)[:, :, :12, :12]
            x = mx.pad(normal(1, 12, 80), [(0, 0), (0, both), (0, 0)])
            conv = convolution.glu_conv(x, normal(9, 40), normal(40), mx.array([12]))[:, :12]
            images = mx.pad(normal(1, 12, 7, 36), [(0, 0), (0, both), (0, 0), (0, 0)])
            depth = convolution.depthwise_stride2(
                images, normal(9, 36), normal(36), mx.array([12]), relu=True
            )
            features, pair = (
                mx.pad(normal(1, 12, 11), [(0, 0), (0, both), (0, 0)]),
                (normal(9, 36), normal(36)),
            )
            first = convolution.subsample_first(features, pair, pair, mx.array([12]))
            made = [softmax, conv, depth[:, :6], first[:, :3]]
            if frames == 12:
                expected = made
            for now, then in zip(made, expected, strict=True):
                assert same_bits(now, then)


@every_case
def test_nan_in_one_utterance_stays_there(case: Case) -> None:
    inputs = case.make(4, mx.float32)
    hurt = np.array(inputs[0])
    hurt[3, ..., 0] = np.nan
    with use_backend(TESTED):
        clean, made = case.run(*inputs), case.run(mx.array(hurt), *inputs[1:])
    assert same_bits(made[:3], clean[:3])
    assert np.isnan(np.array(made[3])).any() == bool(
        np.isnan(np.array(case.reference(mx.array(hurt), *inputs[1:])[3])).any()
    )


def test_nan_in_one_row_of_a_norm_stays_in_that_row() -> None:
    x = np.array(normal(6, 45))
    x[4, 17] = np.nan
    with use_backend(TESTED):
        made = np.array(elementwise.layer_norm(mx.array(x), mx.ones(45), mx.zeros(45)))
    assert np.isnan(made[4]).all()
    assert np.isfinite(np.delete(made, 4, axis=0)).all()


def test_no_utterance_and_no_frame_are_no_error() -> None:
    with use_backend(TESTED):
        assert elementwise.silu(mx.zeros((0, 4))).shape == (0, 4)
        assert elementwise.layer_norm(mx.zeros((0, 5)), mx.ones(5), mx.zeros(5)).shape == (0, 5)
        pair = (normal(9, 36), normal(36))
        assert convolution.subsample_first(mx.zeros((2, 0, 11)), pair, pair, mx.array([0, 0])).shape[:2] == (
            2,
            0,
        )


def test_a_transposed_input_is_read_in_its_own_order() -> None:
    x = normal(45, 7)
    with use_backend(TESTED):
        assert same_bits(
            elementwise.layer_norm(x.T[:, :45], mx.ones(45), mx.zeros(45)),
            elementwise.layer_norm(mx.contiguous(x.T), mx.ones(45), mx.zeros(45)),
        )


def test_batch_norm_folds_into_the_taps() -> None:
    weight, bias = normal(9, 20), normal(20)
    mean, variance, scale, offset = (
        normal(20, seed=1),
        mx.abs(normal(20, seed=2)) + 0.1,
        normal(20, seed=3),
        normal(20, seed=4),
    )
    x = normal(2, 15, 9, 20)
    taps, shift = convolution.fold_batch_norm(weight, bias, mean, variance, scale, offset)
    plain = convolution.depthwise_stride2_reference(x, weight, bias, lengths_of(1, 15), relu=False, lead=1)
    folded = convolution.depthwise_stride2_reference(x, taps, shift, lengths_of(1, 15), relu=False, lead=1)
    normed = (plain - mean) * mx.rsqrt(variance + convolution.BATCH_NORM_EPSILON) * scale + offset
    assert distance(folded, normed) < 2e-5


def test_taps_come_from_the_layout_of_mlx() -> None:
    """Against MLX's own convolutions, which take [C, taps..., 1]."""
    x, weight, bias = normal(2, 12, 10, 20), normal(20, 3, 3, 1), normal(20)
    expected = mx.conv2d(x, weight, stride=2, padding=1, groups=20) + bias
    full = mx.array([12, 12])
    with use_backend(TESTED):
        made = convolution.depthwise_stride2(x, convolution.taps_of(weight), bias, full, relu=False)
    assert distance(made, expected) < 1e-5
    features = normal(2, 12, 10)
    first = mx.conv2d(features[..., None], weight, stride=2, padding=1) + bias
    expected = mx.conv2d(mx.maximum(first, 0.0), weight, stride=2, padding=1, groups=20) + bias
    pair = (convolution.taps_of(weight), bias)
    with use_backend(TESTED):
        made = convolution.subsample_first(features, pair, pair, full)
    assert distance(made, expected) < 1e-5
