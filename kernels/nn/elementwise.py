"""Element by element and row by row: SiLU, layer norm (behind a residual too), LSTM cell, relative softmax.

Each operation: its contract, its plain-MLX reference (`*_reference`, the yardstick that stays), its kernel
and the choice between them. All take float32, float16 or bfloat16, compute in float32 and return the input's
dtype.

Rows are computed one by one in a fixed order: a row's result depends on nothing else in the batch, neither on
the padding beside it, bit for bit on one machine. NaN in a row stays in that row.
"""

import mlx.core as mx

from kernels.runtime.device import dtype_name, launch_rows
from kernels.runtime.source import read_kernel

LAYER_NORM_EPSILON = 1e-5
_SPAN = 4096

SILU = read_kernel("nn/silu", "x", "y")
LAYER_NORM = read_kernel("nn/layer_norm", "x weight bias", "y")
RESIDUAL_NORM = read_kernel("nn/residual_norm", "x change weight bias", "total y")
LSTM_CELL = read_kernel("nn/lstm_cell", "entering recurrent cell", "hidden carried")
RELATIVE_SOFTMAX = read_kernel("nn/relative_softmax", "content position lengths window", "y")


def silu_reference(x: mx.array) -> mx.array:
    """x · sigmoid(x) in plain MLX."""
    v = x.astype(mx.float32)
    return (v * mx.sigmoid(v)).astype(x.dtype)


def silu(x: mx.array) -> mx.array:
    """x · sigmoid(x), any shape. Within 4e-6 relative of the reference (another exp); NaN of -∞ as there."""
    flat = x.reshape(-1)
    outputs = launch_rows(
        SILU,
        [flat],
        [(flat.shape, x.dtype)],
        rows=(x.size + _SPAN - 1) // _SPAN,
        template=(("T", dtype_name(x.dtype)), ("SPAN", _SPAN)),
    )
    return silu_reference(x) if outputs is None else outputs[0].reshape(x.shape)


def layer_norm_reference(x: mx.array, weight: mx.array, bias: mx.array) -> mx.array:
    """Layer norm in plain MLX, epsilon 1e-5, in float32."""
    v = x.astype(mx.float32)
    centred = v - mx.mean(v, axis=-1, keepdims=True)
    variance = mx.mean(centred * centred, axis=-1, keepdims=True)
    scaled = centred * mx.rsqrt(variance + LAYER_NORM_EPSILON)
    return (scaled * weight.astype(mx.float32) + bias.astype(mx.float32)).astype(x.dtype)


def layer_norm(x: mx.array, weight: mx.array, bias: mx.array) -> mx.array:
    """Normalise the last axis of `x` [..., N] by its mean and biased variance + 1e-5; weight, bias [N].

    Within 2e-6 absolute of the reference at unit scale: the sums run in another order.
    """
    rows = x.reshape(-1, x.shape[-1])
    outputs = launch_rows(
        LAYER_NORM,
        [rows, weight, bias],
        [(rows.shape, x.dtype)],
        rows=rows.shape[0],
        template=(("T", dtype_name(x.dtype)),),
    )
    return layer_norm_reference(x, weight, bias) if outputs is None else outputs[0].reshape(x.shape)


def residual_norm_reference(
    x: mx.array, change: mx.array, weight: mx.array, bias: mx.array, *, half: bool
) -> tuple[mx.array, mx.array]:
    """As `residual_norm`, in plain MLX."""
    share = 0.5 if half else 1.0
    total = (x.astype(mx.float32) + share * change.astype(mx.float32)).astype(x.dtype)
    return total, layer_norm_reference(total, weight, bias)


def residual_norm(
    x: mx.array, change: mx.array, weight: mx.array, bias: mx.array, *, half: bool
) -> tuple[mx.array, mx.array]:
    """`x` + `change` (half of it), [..., N] each, and the layer norm of that; weight, bias [N].

    The sum is rounded once and is the reference's to the last bit; the norm is `layer_norm` of it, bit for
    bit where that is the kernel.
    """
    rows = x.reshape(-1, x.shape[-1])
    outputs = launch_rows(
        RESIDUAL_NORM,
        [rows, change.reshape(rows.shape), weight, bias],
        [(rows.shape, x.dtype)] * 2,
        rows=rows.shape[0],
        template=(("T", dtype_name(x.dtype)), ("HALF", half)),
    )
    if outputs is None:
        return residual_norm_reference(x, change, weight, bias, half=half)
    return outputs[0].reshape(x.shape), outputs[1].reshape(x.shape)


def lstm_cell_reference(entering: mx.array, recurrent: mx.array, cell: mx.array) -> tuple[mx.array, mx.array]:
    """As `lstm_cell`, in plain MLX."""
    gates = entering.astype(mx.float32) + recurrent.astype(mx.float32)
    entry, forget, candidate, output = mx.split(gates, 4, axis=-1)
    carried = mx.sigmoid(forget) * cell.astype(mx.float32) + mx.sigmoid(entry) * mx.tanh(candidate)
    return (mx.sigmoid(output) * mx.tanh(carried)).astype(cell.dtype), carried.astype(cell.dtype)


def lstm_cell(entering: mx.array, recurrent: mx.array, cell: mx.array) -> tuple[mx.array, mx.array]:
    """One step of an LSTM behind its matrix products: the next hidden and cell state, [N, H] each.

    `entering` and `recurrent` [N, 4H] are the products with the input (bias included) and the hidden state;
    their sum holds the gates in the order of PyTorch: input, forget, candidate, output. `cell` [N, H].
    Within 1e-6 absolute of the reference: tanh is made of exp, which costs digits next to zero.
    """
    outputs = launch_rows(
        LSTM_CELL,
        [entering, recurrent, cell],
        [(cell.shape, cell.dtype)] * 2,
        rows=cell.shape[0],
        template=(("T", dtype_name(cell.dtype)),),
    )
    return lstm_cell_reference(entering, recurrent, cell) if outputs is None else (outputs[0], outputs[1])


def relative_softmax_reference(
    content: mx.array, position: mx.array, lengths: mx.array, key_width: int, window: tuple[int, int]
) -> mx.array:
    """As `relative_softmax`, in plain MLX: shift by padding and reshaping, mask, softmax, mask again."""
    batch, heads, frames, _ = content.shape
    # A column of zeros in front, read with rows one shorter, moves row i to the left by T - 1 - i.
    padded = mx.pad(position.astype(mx.float32), [(0, 0), (0, 0), (0, 0), (1, 0)])
    shifted = padded.reshape(batch, heads, -1, frames)[:, :, 1:].reshape(batch, heads, frames, -1)
    scores = (content.astype(mx.float32) + shifted[..., :frames]) * (1.0 / key_width**0.5)
    index = mx.arange(frames)
    delta = index[None, :] - index[:, None]
    valid = index[None, :] < lengths[:, None]
    mask = valid[:, None, :, None] & valid[:, None, None, :]
    left, right = window
    if left >= 0:
        mask = mask & (delta >= -left)
    if right >= 0:
        mask = mask & (delta <= right)
    weights = mx.softmax(mx.where(mask, scores, -10000.0), axis=-1)
    return mx.where(mask, weights, 0.0).astype(content.dtype)


def relative_softmax(
    content: mx.array,
    position: mx.array,
    lengths: mx.array,
    key_width: int,
    window: tuple[int, int] = (-1, -1),
) -> mx.array:
    """Attention weights of a Transformer-XL head (Dai et al. 2019, 3.3) from its two products.

    `content` [B, H, T, T] is (q + u)·k; `position` [B, H, T, 2T-1] is (q + v)·p with p from T-1 down to
    -(T-1); `lengths` int32 [B]; scores are divided by √key_width. A query or key at or past its utterance's
    length, or a key outside `window` (frames to the left and right, -1: all), weighs exactly 0 and is never
    read. Within 2e-6 absolute of the reference for scores above -10⁴ + 100 (the reference's mask).
    """
    bounds = mx.array(window, mx.int32)
    outputs = launch_rows(
        RELATIVE_SOFTMAX,
        [content, position, lengths.astype(mx.int32), bounds],
        [(content.shape, content.dtype)],
        rows=content.size // max(content.shape[-1], 1),
        template=(("T", dtype_name(content.dtype)), ("DK", key_width), ("KEEP", content.dtype == mx.float32)),
    )
    if outputs is None:
        return relative_softmax_reference(content, position, lengths, key_width, window)
    return outputs[0]
