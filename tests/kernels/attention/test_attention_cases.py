"""Every kernel of an attention decoder: equal to its reference, one lane as 32 fibers, the same in any
batch."""

import mlx.core as mx
import numpy as np
import pytest

from kernels.contract import TOLERANCE, distance
from kernels.device import use_backend
from tests.kernels.attention.attention_cases import every_case
from tests.kernels.cases import DTYPES, TESTED, Case, same_bits


@every_case
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [1, 9])
def test_an_attention_kernel_gives_what_its_reference_gives(case: Case, dtype: str, batch: int) -> None:
    inputs = case.make(batch, DTYPES[dtype])
    with use_backend(TESTED):
        made = case.run(*inputs)
    expected = case.reference(*inputs)
    assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
    assert distance(made, expected) <= TOLERANCE[dtype]


@every_case
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_one_lane_and_32_fibers_of_an_attention_kernel_agree(case: Case, dtype: str) -> None:
    inputs = case.make(6, DTYPES[dtype])
    hurt = np.array(inputs[0].astype(mx.float32))
    flat = hurt.reshape(-1)
    flat[3], flat[flat.size // 2], flat[-5], flat[7] = np.nan, np.inf, -np.inf, 0.0
    for first in (inputs[0], mx.array(hurt).astype(DTYPES[dtype])):
        made = {}
        for backend in ("cpu", "fibers"):
            with use_backend(backend):
                made[backend] = case.run(first, *inputs[1:])
        assert same_bits(made["cpu"], made["fibers"])


@every_case
def test_an_utterance_of_an_attention_decoder_is_the_same_alone_and_in_a_batch(case: Case) -> None:
    inputs = case.make(8, mx.float32)
    own = [len(each) == 8 for each in inputs]
    order = mx.array([5, 2, 7, 0, 1, 6, 3, 4])
    with use_backend(TESTED):
        together = case.run(*inputs)
        shuffled = case.run(
            *(each[order] if sliced else each for each, sliced in zip(inputs, own, strict=True))
        )
        for i in range(8):
            alone = case.run(
                *(each[i : i + 1] if sliced else each for each, sliced in zip(inputs, own, strict=True))
            )
            assert same_bits(alone[0], together[i])
    assert same_bits(shuffled, together[order])


@every_case
def test_nan_in_one_utterance_of_an_attention_decoder_stays_there(case: Case) -> None:
    inputs = case.make(4, mx.float32)
    hurt = np.array(inputs[0])
    hurt[3, ..., 0] = np.nan
    with use_backend(TESTED):
        clean, made = case.run(*inputs), case.run(mx.array(hurt), *inputs[1:])
    assert same_bits(made[:3], clean[:3])
    expected = case.reference(mx.array(hurt), *inputs[1:])
    assert np.array_equal(np.isnan(np.array(made[3])), np.isnan(np.array(expected[3])))
