"""Contract cases of kernels: an operation, its reference, and inputs that are ragged in each dimension.

Defines tolerances and how two results are compared; the other modules here list the cases.
"""

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from kernels.runtime.device import use_backend

DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}


def normal(*shape: int, seed: int = 0, dtype: mx.Dtype = mx.float32, scale: float = 1.0) -> mx.array:
    """Normally distributed numbers, the same every time."""
    values = np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)
    return mx.array(values * np.float32(scale)).astype(dtype)


def lengths_of(batch: int, longest: int) -> mx.array:
    """Full, empty, one frame, then various: the lengths that utterances can have."""
    known = [longest, 0, 1]
    return mx.array([known[i] if i < 3 else i * 7 % (longest + 1) for i in range(batch)], mx.int32)


@dataclass(frozen=True)
class Case:
    """`make(batch, dtype)` gives the operation's inputs; `run` and `reference` take them."""

    name: str
    make: Callable[[int, mx.Dtype], list[mx.array]]
    run: Callable[..., mx.array]
    reference: Callable[..., mx.array]
    slack: float = 0.0  # allowed difference beyond the dtype's tolerance


def same_bits(a: mx.array, b: mx.array) -> bool:
    """Equal to the last bit, any NaN equal to any other."""
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    word = mx.uint32 if a.dtype.size == 4 else mx.uint16
    return bool(mx.all((a.view(word) == b.view(word)) | (mx.isnan(a) & mx.isnan(b))))


# Against the reference at unit scale: float32 differs by exp, fused products and the order of sums; 16-bit
# results by one rounding of the output, at values of up to 16.
TOLERANCE = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 7e-2}


def distance(actual: mx.array, expected: mx.array) -> float:
    """The largest difference; NaN where either has one."""
    return float(mx.max(mx.abs(actual.astype(mx.float32) - expected.astype(mx.float32))))


def run_case(case: Case, dtype: str, backend: str, batch: int = 5) -> tuple[float, bool]:
    """The operation's distance from its reference on this backend, and whether the first utterance has the
    same bits as when it is computed alone. Raises what a kernel that cannot be built raises."""
    inputs = case.make(batch, DTYPES[dtype])
    with use_backend(backend):
        result = case.run(*inputs)
        mx.eval(result)
    with use_backend("reference"):
        expected = case.reference(*inputs)
        mx.eval(expected)
    one = [each[:1] if each.shape[:1] == (batch,) else each for each in inputs]
    with use_backend(backend):
        alone = case.run(*one)
        mx.eval(alone)
    return distance(result, expected), same_bits(result[:1], alone)
