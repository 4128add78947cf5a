"""Attention of every position of a sequence to all of them, without a mask.

Owns the contract, the plain-MLX reference and the choice between it and the kernel, which is for a CPU: on a
GPU MLX's own fused attention is the faster one, and who has one calls that.
"""

import mlx.core as mx

from kernels.runtime.device import dtype_name, launch
from kernels.runtime.source import read_kernel

FULL_ATTENTION = read_kernel("attention/full_attention", "x", "y", "full_attention.h")
_COLUMNS = 8  # of a value that the body takes at once


def full_attention(x: mx.array, heads: int) -> mx.array:
    """softmax(q·k)·v of each position and head.

    x: [B, N, 3 * H * D] float32, float16 or bfloat16, queries (already divided by √D), keys and values of
    all heads side by side. Returns [B, N, H * D] in its dtype; products, softmax and sums are float32. Within
    5e-6 absolute of the reference in float32 where scores and values are of unit scale. A sequence's bits do
    not depend on the others. D other than a multiple of 8 takes the reference. Raises ValueError where H does
    not divide a row.
    """
    batch, length, _ = x.shape
    width = _head_width(x, heads)
    if width % _COLUMNS or x.size == 0:
        return full_attention_reference(x, heads)
    outputs = launch(
        FULL_ATTENTION,
        [x],
        [((batch, length, heads * width), x.dtype)],
        groups=batch * heads * -(-length // 32),
        template=(("T", dtype_name(x.dtype)), ("H", heads), ("D", width)),
    )
    return full_attention_reference(x, heads) if outputs is None else outputs[0]


def full_attention_reference(x: mx.array, heads: int) -> mx.array:
    """As `full_attention`, in plain MLX."""
    batch, length, _ = x.shape
    width = _head_width(x, heads)
    parts = x.astype(mx.float32).reshape(batch, length, 3, heads, width).transpose(2, 0, 3, 1, 4)
    weights = mx.softmax(parts[0] @ parts[1].swapaxes(2, 3), axis=-1)
    return (weights @ parts[2]).swapaxes(1, 2).reshape(batch, length, heads * width).astype(x.dtype)


def _head_width(x: mx.array, heads: int) -> int:
    if x.ndim != 3 or heads < 1 or x.shape[2] % (3 * heads):
        raise ValueError(f"full attention of {heads} heads takes [B, N, 3 * heads * width], not {x.shape}")
    return int(x.shape[2]) // (3 * heads)
