"""One Conformer layer ("Conformer: Convolution-augmented Transformer for Speech Recognition", Gulati et al.,
2020): half a feed-forward, attention, convolution, half a feed-forward, each on a residual, and a norm.

Names follow the checkpoint. Knows one layer; positions, masks and the stack are the encoder's.
"""

from typing import NamedTuple

import mlx.core as mx
from mlx import nn

from kernels.nn.convolution import glu_conv, taps_of
from kernels.nn.elementwise import layer_norm, residual_norm, silu
from kernels.runtime.device import compiles_for_cpu, on_gpu
from worker.models.conformer.attention import (
    AttentionContext,
    KeysValues,
    Positions,
    RelPositionAttention,
    RelPositionLocalAttention,
)
from worker.models.conformer.linear import Linear
from worker.models.nemo.config import EncoderConfig

NORM_EPSILON = 1e-5


class LayerPast(NamedTuple):
    """What one layer keeps of the frames before a chunk. attention: of the P newest. gated: the input of the
    depthwise convolution, [B, kernel - 1, d], the newest last."""

    attention: KeysValues
    gated: mx.array


class RowNorm(nn.LayerNorm):
    """A layer norm. MLX's own is one pass on a GPU; on a CPU the kernel takes a third of its time."""

    def __call__(self, x: mx.array) -> mx.array:
        """[..., d] -> [..., d]."""
        if compiles_for_cpu():
            return layer_norm(x, self.weight, self.bias)
        normed: mx.array = super().__call__(x)
        return normed

    def behind(self, x: mx.array, change: mx.array, *, half: bool = False) -> tuple[mx.array, mx.array]:
        """x + change (half of it), [..., d], and the norm of that."""
        return residual_norm(x, change, self.weight, self.bias, half=half)


class FeedForward(nn.Module):
    """Linear, SiLU, linear."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        inner = config.d_model * config.ff_expansion_factor
        self.linear1 = Linear(config.d_model, inner, bias=config.use_bias)
        self.linear2 = Linear(inner, config.d_model, bias=config.use_bias)

    def __call__(self, x: mx.array) -> mx.array:
        """[B, T, d] -> [B, T, d]."""
        out: mx.array = self.linear2(silu(self.linear1(x)))
        return out


class DepthwiseConvolution(nn.Module):
    """One filter a channel over time, zeros beyond the ends."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.weight = mx.zeros((config.d_model, config.conv_kernel_size, 1))
        if config.use_bias:
            self.bias = mx.zeros((config.d_model,))


class BatchNorm(nn.Module):
    """Gains and statistics of a batch norm. In inference it scales and shifts each channel by constants, so
    it is never applied as such: the convolution before it takes it in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = mx.ones((width,))
        self.bias = mx.zeros((width,))
        self.running_mean = mx.zeros((width,))
        self.running_var = mx.ones((width,))

    def scale_and_shift(self) -> tuple[mx.array, mx.array]:
        """The norm as x * scale + shift, [d] each, float32."""
        scale = self.weight.astype(mx.float32) * mx.rsqrt(self.running_var.astype(mx.float32) + NORM_EPSILON)
        return scale, self.bias.astype(mx.float32) - self.running_mean.astype(mx.float32) * scale


class Convolution(nn.Module):
    """Pointwise and gate, depthwise, norm, SiLU, pointwise. Pointwise convolutions are matrices here. `fold`
    must be called once the weights are in."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.d_model
        self.pointwise_conv1 = Linear(width, 2 * width, bias=config.use_bias)
        self.depthwise_conv = DepthwiseConvolution(config)
        self.batch_norm = BatchNorm(width) if config.conv_norm_type == "batch_norm" else RowNorm(width)
        self.pointwise_conv2 = Linear(width, width, bias=config.use_bias)
        self._padding = config.convolution_padding
        self._kernel = self.depthwise_conv.weight
        self._taps = taps_of(self._kernel)
        self._offset = mx.zeros((width,))

    def fold(self, dtype: mx.Dtype) -> None:
        """Fixes the filters of inference in `dtype`, a batch norm folded into them in float32."""
        kernel = self.depthwise_conv.weight.astype(mx.float32)
        offset = self.depthwise_conv.bias if "bias" in self.depthwise_conv else mx.zeros((kernel.shape[0],))
        offset = offset.astype(mx.float32)
        if isinstance(self.batch_norm, BatchNorm):
            scale, moved = self.batch_norm.scale_and_shift()
            kernel, offset = kernel * scale[:, None, None], offset * scale + moved
        self._kernel, self._offset = kernel.astype(dtype), offset.astype(dtype)
        self._taps = taps_of(self._kernel)
        mx.eval(self._kernel, self._offset, self._taps)

    def __call__(self, x: mx.array, valid: mx.array, lengths: mx.array) -> mx.array:
        """x [B, T, d], valid [B, T, 1] bool, lengths [B] int32 -> [B, T, d]. Padding enters the convolution
        as zeros."""
        x = self.pointwise_conv1(x)
        if isinstance(self.batch_norm, BatchNorm):
            x = glu_conv(x, self._taps, self._offset, lengths, lead=self._padding[0])
        else:
            x = silu(self.batch_norm(self._convolve(x, valid)))
        out: mx.array = self.pointwise_conv2(x)
        return out

    def step(self, x: mx.array, gated: mx.array) -> tuple[mx.array, mx.array]:
        """One chunk [B, C, d] behind `gated`, as `LayerPast` has it: [B, C, d], and the newest of what is
        gated. For a convolution that sees nothing of the future."""
        values, gate = mx.split(self.pointwise_conv1(x), 2, axis=-1)
        gated = mx.concatenate([gated, values * mx.sigmoid(gate)], axis=1)
        x = mx.conv1d(gated, self._kernel, groups=gated.shape[-1]) + self._offset
        out: mx.array = self.pointwise_conv2(
            silu(x if isinstance(self.batch_norm, BatchNorm) else self.batch_norm(x))
        )
        return out, gated[:, x.shape[1] :]

    def _convolve(self, x: mx.array, valid: mx.array) -> mx.array:
        """Gate, mask and depthwise convolution, in MLX's own operations."""
        values, gate = mx.split(x, 2, axis=-1)
        x = mx.where(valid, values * mx.sigmoid(gate), mx.zeros((), dtype=x.dtype))
        x = mx.pad(x, [(0, 0), self._padding, (0, 0)])
        return mx.conv1d(x, self._kernel, groups=x.shape[-1]) + self._offset


class ConformerLayer(nn.Module):
    """One layer of the encoder."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.d_model
        self.norm_feed_forward1 = RowNorm(width)
        self.feed_forward1 = FeedForward(config)
        self.norm_self_att = RowNorm(width)
        self.self_attn = (
            RelPositionLocalAttention(config) if config.is_local else RelPositionAttention(config)
        )
        self.norm_conv = RowNorm(width)
        self.conv = Convolution(config)
        self.norm_feed_forward2 = RowNorm(width)
        self.feed_forward2 = FeedForward(config)
        self.norm_out = RowNorm(width)

    def __call__(
        self, x: mx.array, positions: Positions, sight: AttentionContext, valid: mx.array
    ) -> mx.array:
        """x [B, T, d], valid [B, T, 1] bool; positions and sight as the attention wants them. [B, T, d]."""
        change = self.feed_forward1(self.norm_feed_forward1(x))
        x, normed = self.norm_self_att.behind(x, change, half=True)
        x, normed = self.norm_conv.behind(x, self.self_attn(normed, positions, sight))
        x, normed = self.norm_feed_forward2.behind(x, self.conv(normed, valid, sight.lengths))
        return self.norm_out.behind(x, self.feed_forward2(normed), half=True)[1]

    def fold(self, dtype: mx.Dtype) -> None:
        """Fixes what inference makes of the weights; called once they are in."""
        self.conv.fold(dtype)
        if on_gpu():
            self.self_attn.fold()

    def step(
        self, x: mx.array, past: LayerPast, positions: Positions, mask: mx.array
    ) -> tuple[mx.array, LayerPast]:
        """One chunk [B, C, d] behind its past; positions and mask as `RelPositionAttention.step` has them.
        [B, C, d], and the past of the next chunk."""
        x = x + 0.5 * self.feed_forward1(self.norm_feed_forward1(x))
        attended, attention = self.self_attn.step(self.norm_self_att(x), past.attention, positions, mask)
        x = x + attended
        convolved, gated = self.conv.step(self.norm_conv(x), past.gated)
        x = x + convolved
        x = x + 0.5 * self.feed_forward2(self.norm_feed_forward2(x))
        out: mx.array = self.norm_out(x)
        return out, LayerPast(attention, gated)
