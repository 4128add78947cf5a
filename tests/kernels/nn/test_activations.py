"""GELU and the exponentials of a softmax against their references, on one lane and on fibers."""

import mlx.core as mx
import pytest

from kernels.contracts import TOLERANCE, Case, run_case
from kernels.contracts.case import normal
from kernels.nn import gelu, gelu_reference, row_exp, row_exp_reference

CASES = [
    Case(
        "gelu",
        lambda batch, dtype: [normal(batch, 7, 45, dtype=dtype, scale=3), normal(45, seed=1, dtype=dtype)],
        gelu,
        gelu_reference,
    ),
    Case(
        "row_exp",
        lambda batch, dtype: [normal(batch, 3, 77, dtype=dtype, scale=5)],
        lambda x: row_exp(x)[0],
        lambda x: row_exp_reference(x)[0],
    ),
    Case(
        "row_exp sums",
        lambda batch, dtype: [normal(batch, 3, 77, dtype=dtype, scale=5)],
        lambda x: row_exp(x)[1],
        lambda x: row_exp_reference(x)[1],
        slack=5e-5,  # sums of 77 numbers in another order
    ),
]


@pytest.mark.parametrize("backend", ["cpu", "fibers"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_contract_is_kept(case: Case, dtype: str, backend: str) -> None:
    gap, alone = run_case(case, dtype, backend)
    assert gap <= TOLERANCE[dtype] + case.slack
    assert alone


@pytest.mark.parametrize("width", [1, 31, 32, 33, 1500])
def test_every_width(width: int) -> None:
    x = normal(4, width, scale=6)
    raised, total = row_exp(x)
    expected, sums = row_exp_reference(x)
    assert float(mx.max(mx.abs(raised - expected))) <= 1e-6
    assert float(mx.max(mx.abs(total / sums - 1))) <= 1e-5


def test_what_is_masked_weighs_nothing() -> None:
    raised, total = row_exp(mx.array([[-mx.inf, 2.0, -mx.inf, 2.0]]))
    assert raised.tolist() == [[0.0, 1.0, 0.0, 1.0]]
    assert total.tolist() == [[2.0]]


def test_gelu_far_out() -> None:
    x = mx.array([[-1e4, -20.0, 0.0, 20.0, 1e4]])
    assert gelu(x, mx.zeros(5)).tolist() == [[0.0, 0.0, 0.0, 20.0, 1e4]]
