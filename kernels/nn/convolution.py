"""Convolutions of the encoder with what surrounds them, each a single pass over memory.

Each operation: its contract, its plain-MLX reference, its kernel and the choice between them, as in fused.py.
Frames at or past an utterance's length are never read, and come out as exact zeros: an utterance's result is
the same bits in any batch and under any padding on one machine. All compute in float32 and return `x.dtype`.
"""

import mlx.core as mx

from kernels.runtime.device import dtype_name, launch
from kernels.runtime.source import Template, read_kernel

BATCH_NORM_EPSILON = 1e-5
_TILE = 16
# Simdgroups of a threadgroup on a GPU: 32 channels each at a time.
_SIMDGROUPS = 4

GLU_CONV = read_kernel("nn/glu_conv", "x weight shift lengths", "y")
DEPTHWISE = read_kernel("nn/depthwise_stride2", "x weight bias lengths", "y")
SUBSAMPLE_FIRST = read_kernel("nn/subsample_first", "x weight bias depthwise shift lengths", "y")


def taps_of(weight: mx.array) -> mx.array:
    """MLX's weight of a one-input-channel convolution, [C, taps..., 1], as the kernels take it: [taps, C]."""
    return mx.contiguous(weight.reshape(weight.shape[0], -1).T)


def fold_batch_norm(
    weight: mx.array,
    bias: mx.array | None,
    mean: mx.array,
    variance: mx.array,
    scale: mx.array,
    offset: mx.array,
) -> tuple[mx.array, mx.array]:
    """A depthwise convolution's taps [taps, C] and bias with the batch norm after it: (taps, shift)."""
    factor = scale.astype(mx.float32) * mx.rsqrt(variance.astype(mx.float32) + BATCH_NORM_EPSILON)
    centre = mean.astype(mx.float32) - (0.0 if bias is None else bias.astype(mx.float32))
    return weight.astype(mx.float32) * factor, offset.astype(mx.float32) - centre * factor


def halve(length: int, lead: int) -> int:
    """Frames (or bins) that a 3-tap convolution of stride 2 makes of `length`; none of none."""
    return (length + lead) // 2 if length > 0 else 0


def _halve_lengths(lengths: mx.array, lead: int) -> mx.array:
    return mx.where(lengths > 0, (lengths + lead) // 2, 0)


def _mask_frames(x: mx.array, lengths: mx.array) -> mx.array:
    """`x` [B, T, ...] with zeros from each length on; where() and not a product: NaN · 0 is NaN."""
    inside = mx.arange(x.shape[1])[None, :] < lengths[:, None]
    return mx.where(inside.reshape(inside.shape + (1,) * (x.ndim - 2)), x, 0.0)


def glu_conv_reference(
    x: mx.array, weight: mx.array, shift: mx.array, lengths: mx.array, lead: int, *, activates: bool = True
) -> mx.array:
    """As `glu_conv`, in plain MLX: one shifted product a tap."""
    frames, taps = x.shape[1], weight.shape[0]
    value, gate = mx.split(x.astype(mx.float32), 2, axis=-1)
    gated = mx.pad(_mask_frames(value * mx.sigmoid(gate), lengths), [(0, 0), (lead, taps - 1 - lead), (0, 0)])
    total = mx.broadcast_to(shift.astype(mx.float32), value.shape)
    for tap in range(taps):
        total = total + gated[:, tap : tap + frames] * weight[tap].astype(mx.float32)
    return _mask_frames(total * mx.sigmoid(total) if activates else total, lengths).astype(x.dtype)


def glu_conv(
    x: mx.array,
    weight: mx.array,
    shift: mx.array,
    lengths: mx.array,
    lead: int | None = None,
    *,
    activates: bool = True,
) -> mx.array:
    """GLU, mask, depthwise convolution, SiLU: from a Conformer's module (Gulati et al. 2020, fig. 2).

    `x` [B, T, 2C] is values and gates of the first pointwise convolution, `weight` [taps, C] and `shift`
    [C] the depthwise convolution with batch norm folded in (`fold_batch_norm`), `lengths` int32 [B], `lead`
    the zeros before the first frame: (taps - 1)/2 by default, taps - 1 if causal. `activates` False leaves
    SiLU out, for a module that normalises between. Returns [B, T, C]. Within
    1e-5 absolute of the reference at unit scale: products are fused and exp differs.
    """
    batch, frames, _ = x.shape
    taps, channels = weight.shape
    lead = (taps - 1) // 2 if lead is None else lead
    template: Template = (
        ("T", dtype_name(x.dtype)),
        ("TILE", _TILE),
        ("TAPS", taps),
        ("LEAD", lead),
        ("ACTIVATES", activates),
    )
    outputs = launch(
        GLU_CONV,
        [x, weight, shift, lengths.astype(mx.int32)],
        [((batch, frames, channels), x.dtype)],
        groups=batch * ((frames + _TILE - 1) // _TILE),
        simdgroups=_SIMDGROUPS,
        template=template,
    )
    if outputs is None:
        return glu_conv_reference(x, weight, shift, lengths, lead, activates=activates)
    return outputs[0]


def _convolve(x: mx.array, weight: mx.array, bias: mx.array, lead: int) -> mx.array:
    """MLX's convolution with filters given as taps [9, C]; `x` has C channels, or one for all filters."""
    filters = weight.astype(mx.float32).T.reshape(-1, 3, 3, 1)
    ends = ([lead, lead], [1, 1])
    convolved = mx.conv_general(x, filters, stride=2, padding=ends, groups=x.shape[-1])
    return convolved + bias.astype(mx.float32)


def depthwise_stride2_reference(
    x: mx.array, weight: mx.array, bias: mx.array, lengths: mx.array, *, relu: bool, lead: int
) -> mx.array:
    """As `depthwise_stride2`, in plain MLX."""
    value = _mask_frames(x.astype(mx.float32), lengths)
    convolved = _convolve(mx.maximum(value, 0.0) if relu else value, weight, bias, lead)
    return _mask_frames(convolved, _halve_lengths(lengths, lead)).astype(x.dtype)


def depthwise_stride2(
    x: mx.array, weight: mx.array, bias: mx.array, lengths: mx.array, *, relu: bool, lead: int = 1
) -> mx.array:
    """Depthwise 3 x 3 convolution of stride 2 in the subsampling, after an optional ReLU of its input.

    `x` [B, T, F, C], `weight` [9, C] (frame-major taps), `bias` [C], `lengths` int32 [B] in input frames,
    `lead` zeros before both axes (1; 2 if causal). Returns [B, (T+lead)//2, (F+lead)//2, C], zero from the
    halved length on. Within 1e-5 absolute of the reference at unit scale.
    """
    batch, frames, bins, channels = x.shape
    shape = (batch, halve(frames, lead), halve(bins, lead), channels)
    template: Template = (("T", dtype_name(x.dtype)), ("LEAD", lead), ("RELU", relu))
    outputs = launch(
        DEPTHWISE,
        [x, weight, bias, lengths.astype(mx.int32)],
        [(shape, x.dtype)],
        groups=shape[0] * shape[1],
        simdgroups=_SIMDGROUPS,
        template=template,
    )
    if outputs is not None:
        return outputs[0]
    return depthwise_stride2_reference(x, weight, bias, lengths, relu=relu, lead=lead)


def subsample_first_reference(
    x: mx.array,
    first: tuple[mx.array, mx.array],
    depthwise: tuple[mx.array, mx.array],
    lengths: mx.array,
    lead: int,
) -> mx.array:
    """As `subsample_first`, in plain MLX: the same two convolutions, the first one's output in memory."""
    value = _mask_frames(x.astype(mx.float32), lengths)[..., None]
    convolved = mx.maximum(_convolve(value, *first, lead), 0.0)
    halves = _halve_lengths(lengths, lead)
    convolved = _convolve(_mask_frames(convolved, halves), *depthwise, lead)
    return _mask_frames(convolved, _halve_lengths(halves, lead)).astype(x.dtype)


def subsample_first(
    x: mx.array,
    first: tuple[mx.array, mx.array],
    depthwise: tuple[mx.array, mx.array],
    lengths: mx.array,
    lead: int = 1,
) -> mx.array:
    """The first two convolutions of the subsampling without the large tensor between them.

    `x` log-mel features [B, T, F]; `first` is (weight [9, C], bias [C]) of the convolution from one channel
    to C, followed by ReLU; `depthwise` the same of the one after it; both 3 x 3, stride 2, `lead` zeros
    before both axes; `lengths` int32 [B] in feature frames. Returns [B, T2, F2, C], zero from the
    twice-halved length on. Within 1e-5 absolute of the reference at unit scale.
    """
    batch, frames, bins = x.shape
    channels = first[0].shape[1]
    frames2, bins2 = halve(halve(frames, lead), lead), halve(halve(bins, lead), lead)
    template: Template = (("T", dtype_name(x.dtype)), ("LEAD", lead))
    outputs = launch(
        SUBSAMPLE_FIRST,
        [x, *first, *depthwise, lengths.astype(mx.int32)],
        [((batch, frames2, bins2, channels), x.dtype)],
        groups=batch * frames2,
        simdgroups=_SIMDGROUPS,
        template=template,
    )
    return subsample_first_reference(x, first, depthwise, lengths, lead) if outputs is None else outputs[0]
