"""GELU behind a bias, and the exponentials of a softmax.

Each operation: its contract, its plain-MLX reference (`*_reference`) and its kernel. Both take float32,
float16 or bfloat16, compute in float32 and return the input's dtype. Rows are computed one by one in a fixed
order, so a row's result depends on nothing else in the batch. NaN in a row stays in that row.
"""

import math

import mlx.core as mx

from kernels.runtime.device import dtype_name, launch_rows
from kernels.runtime.source import read_kernel

GELU = read_kernel("nn/gelu", "x bias", "y")
ROW_EXP = read_kernel("nn/row_exp", "x", "y total")


def gelu_reference(x: mx.array, bias: mx.array) -> mx.array:
    """As `gelu`, in plain MLX."""
    v = x.astype(mx.float32) + bias.astype(mx.float32)
    return (v * 0.5 * (1.0 + mx.erf(v * math.sqrt(0.5)))).astype(x.dtype)


def gelu(x: mx.array, bias: mx.array) -> mx.array:
    """The exact GELU of x + bias: x [..., N], bias [N] (Hendrycks and Gimpel 2016, with erf).

    Within 2e-7 + 3e-7·|x| of the reference in float32: erf is a polynomial.
    """
    rows = x.reshape(-1, x.shape[-1])
    output = launch_rows(
        GELU,
        [rows, bias],
        [(rows.shape, x.dtype)],
        rows=rows.shape[0],
        template=(("T", dtype_name(x.dtype)),),
    )
    return gelu_reference(x, bias) if output is None else output[0].reshape(x.shape)


def row_exp_reference(x: mx.array) -> tuple[mx.array, mx.array]:
    """As `row_exp`, in plain MLX."""
    v = x.astype(mx.float32)
    raised = mx.exp(v - mx.max(v, axis=-1, keepdims=True))
    return raised.astype(x.dtype), mx.sum(raised, axis=-1, keepdims=True)


def row_exp(x: mx.array) -> tuple[mx.array, mx.array]:
    """A softmax that is not divided yet: exp(x - largest) over the last axis of x [..., N], in x's dtype, and
    the sums, float32 [..., 1]. What is multiplied by the first and divided by the second has been through
    less memory. Each row has at least one finite value.

    Within 1e-6 of the reference in float32; the sums relative to N.
    """
    rows = x.reshape(-1, x.shape[-1])
    output = launch_rows(
        ROW_EXP,
        [rows],
        [(rows.shape, x.dtype), ((rows.shape[0],), mx.float32)],
        rows=rows.shape[0],
        template=(("T", dtype_name(x.dtype)),),
    )
    if output is None:
        return row_exp_reference(x)
    return output[0].reshape(x.shape), output[1].reshape(*x.shape[:-1], 1)
