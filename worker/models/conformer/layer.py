"""One Conformer layer ("Conformer: Convolution-augmented Transformer for Speech Recognition", Gulati et al.,
2020): half a feed-forward, attention, convolution, half a feed-forward, each on a residual, and a norm.

Names follow the checkpoint. Knows one layer; positions, masks and the stack are the encoder's.
"""

from typing import NamedTuple

import mlx.core as mx
from mlx import nn

from kernels.nn.convolution import fold_batch_norm, glu_conv, taps_of
from kernels.nn.elementwise import layer_norm, residual_norm, silu
from kernels.runtime.device import compiles_for_cpu, on_gpu
from worker.models.conformer.attention import (
    AttentionContext,
    BlockAttention,
    Past,
    PlainAttention,
    Positions,
    RelPositionAttention,
    RelPositionLocalAttention,
    UnshiftedAttention,
)
from worker.models.conformer.config import EncoderConfig
from worker.models.conformer.linear import Linear

NORM_EPSILON = 1e-5


class LayerPast(NamedTuple):
    """What one layer keeps of the frames before a chunk. attention: of the P newest. convolution: the input
    of the depthwise convolution, [B, kernel - 1, d], or of its gate, [B, kernel - 1, 2 d], the newest
    last."""

    attention: Past
    convolution: mx.array


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
    """Linear, SiLU (or ReLU), linear."""

    def __init__(self, config: EncoderConfig, *, relu: bool = False) -> None:
        super().__init__()
        inner = config.feed_forward_size
        self.linear1 = Linear(config.d_model, inner, bias=config.use_bias)
        self.linear2 = Linear(inner, config.d_model, bias=config.use_bias)
        self._relu = relu

    def __call__(self, x: mx.array) -> mx.array:
        """[B, T, d] -> [B, T, d]."""
        wide = self.linear1(x)
        out: mx.array = self.linear2(mx.maximum(wide, 0) if self._relu else silu(wide))
        return out


class DepthwiseConvolution(nn.Module):
    """One filter a channel over time, zeros beyond the ends."""

    def __init__(self, config: EncoderConfig, *, biased: bool) -> None:
        super().__init__()
        self.weight = mx.zeros((config.conv_width, config.conv_kernel_size, 1))
        if biased:
            self.bias = mx.zeros((config.conv_width,))


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


class FoldedNorm(BatchNorm):
    """A batch norm that the checkpoint's depthwise convolution holds already."""

    def __init__(self, width: int) -> None:
        nn.Module.__init__(self)
        self._width = width

    def scale_and_shift(self) -> tuple[mx.array, mx.array]:
        return mx.ones((self._width,)), mx.zeros((self._width,))


NORMS: dict[str, type[BatchNorm] | type[RowNorm]] = {
    "batch_norm": BatchNorm,
    "folded": FoldedNorm,
    "layer_norm": RowNorm,
}


class Convolution(nn.Module):
    """Pointwise and gate, depthwise, norm, SiLU, pointwise. Pointwise convolutions are matrices here. `fold`
    must be called once the weights are in."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.conv_width
        pointwise, depthwise = config.conv_biases or (config.use_bias, config.use_bias)
        self.pointwise_conv1 = Linear(config.d_model, 2 * width, bias=pointwise)
        self.depthwise_conv = DepthwiseConvolution(config, biased=depthwise)
        self.batch_norm = NORMS[config.conv_norm_type](width)
        self.pointwise_conv2 = Linear(width, config.d_model, bias=pointwise)
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

    def begin(self, dtype: mx.Dtype) -> mx.array:
        """What stands before a stream's first frame."""
        return mx.zeros((1, self._kernel.shape[1] - 1, self._kernel.shape[0]), dtype)

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


class InputPaddedConvolution(Convolution):
    """The same, whose zeros stand before the first pointwise convolution, so that its bias fills them."""

    def fold(self, dtype: mx.Dtype) -> None:
        kernel, offset, norm = self.depthwise_conv.weight, self.depthwise_conv.bias, self.batch_norm
        taps = taps_of(kernel)
        if isinstance(norm, BatchNorm):
            moments = norm.running_mean, norm.running_var, norm.weight, norm.bias
            taps, offset = fold_batch_norm(taps, offset, *moments)
        else:
            norm.weight, norm.bias = norm.weight.astype(dtype), norm.bias.astype(dtype)
        self._taps, self._offset = taps.astype(dtype), offset.astype(dtype)
        mx.eval(self._taps, self._offset, norm.parameters())

    def begin(self, dtype: mx.Dtype) -> mx.array:  # noqa: ARG002 - that of the weights
        bias = self.pointwise_conv1.bias
        return mx.broadcast_to(bias, (1, max(self._padding[0] - self._padding[1], 0), bias.shape[0]))

    def __call__(self, x: mx.array, valid: mx.array, lengths: mx.array) -> mx.array:  # noqa: ARG002
        x, before = self.pointwise_conv1(x), self.begin(x.dtype)
        if before.shape[1]:
            x = mx.concatenate([mx.broadcast_to(before, (x.shape[0], *before.shape[1:])), x], axis=1)
        return self._close(x, lengths + before.shape[1], before.shape[1])

    def step(self, x: mx.array, opened: mx.array) -> tuple[mx.array, mx.array]:
        """As `Convolution.step`, behind the newest outputs of the first pointwise convolution."""
        before = opened.shape[1]
        opened = mx.concatenate([opened, self.pointwise_conv1(x)], axis=1)
        lengths = mx.full((x.shape[0],), opened.shape[1], dtype=mx.int32)
        return self._close(opened, lengths, before), opened[:, x.shape[1] :]

    def _close(self, opened: mx.array, lengths: mx.array, before: int) -> mx.array:
        """Gate, depthwise convolution and what follows of [B, before + T, 2 d] -> [B, T, d]."""
        folded = isinstance(self.batch_norm, BatchNorm)
        lead = self._padding[0]
        x = glu_conv(opened, self._taps, self._offset, lengths, lead, activates=folded)[:, before:]
        out: mx.array = self.pointwise_conv2(x if folded else silu(self.batch_norm(x)))
        return out


class PooledConvolution(Convolution):
    """The same at every other frame, an odd last one left out."""

    def __call__(self, x: mx.array, valid: mx.array, lengths: mx.array) -> mx.array:  # noqa: ARG002
        """[B, T, d] -> [B, T // 2, d]."""
        half = x.shape[1] // 2
        x = glu_conv(self.pointwise_conv1(x), self._taps, self._offset, lengths, lead=self._padding[0])
        out: mx.array = self.pointwise_conv2(x[:, : 2 * half : 2])
        return out


ATTENTIONS: dict[str, type[RelPositionAttention | PlainAttention]] = {
    "rel_pos": RelPositionAttention,
    "rel_pos_blocks": BlockAttention,
    "rel_pos_local_attn": RelPositionLocalAttention,
    "rel_pos_unshifted": UnshiftedAttention,
    "abs_pos": PlainAttention,
    "no_pos": PlainAttention,
}


class TransformerLayer(nn.Module):
    """Attention and a feed-forward with ReLU, a norm before each."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.norm1, self.norm2 = RowNorm(config.d_model), RowNorm(config.d_model)
        self.self_attn = ATTENTIONS[config.self_attention_model](config)
        self.feed_forward = FeedForward(config, relu=True)

    def __call__(
        self,
        x: mx.array,
        positions: Positions,
        sight: AttentionContext,
        valid: mx.array,  # noqa: ARG002 - only a convolution asks
    ) -> mx.array:
        x, normed = self.norm2.behind(x, self.self_attn(self.norm1(x), positions, sight))
        out: mx.array = x + self.feed_forward(normed)
        return out

    def fold(self, dtype: mx.Dtype) -> None:  # noqa: ARG002 - nothing is rounded
        self.self_attn.fold()


class ConformerLayer(nn.Module):
    """One layer of the encoder."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.d_model
        self.norm_feed_forward1 = RowNorm(width)
        self.feed_forward1 = FeedForward(config)
        self.norm_self_att = RowNorm(width)
        self.self_attn = ATTENTIONS[config.self_attention_model](config)
        self.norm_conv = RowNorm(width)
        self.conv = Convolution(config) if config.conv_pads == "gate" else InputPaddedConvolution(config)
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
        if on_gpu() or not isinstance(self.self_attn, RelPositionAttention):
            self.self_attn.fold()

    def begin(self, reach: int, dtype: mx.Dtype) -> LayerPast:
        """The past of a stream that sees `reach` frames of it, before its first chunk."""
        return LayerPast(self.self_attn.begin(reach, dtype), self.conv.begin(dtype))

    def step(
        self, x: mx.array, past: LayerPast, positions: Positions, mask: mx.array
    ) -> tuple[mx.array, LayerPast]:
        """One chunk [B, C, d] behind its past; positions and mask as `RelPositionAttention.step` has them.
        [B, C, d], and the past of the next chunk."""
        x = x + 0.5 * self.feed_forward1(self.norm_feed_forward1(x))
        attended, attention = self.self_attn.step(self.norm_self_att(x), past.attention, positions, mask)
        x = x + attended
        convolved, kept = self.conv.step(self.norm_conv(x), past.convolution)
        x = x + convolved
        x = x + 0.5 * self.feed_forward2(self.norm_feed_forward2(x))
        out: mx.array = self.norm_out(x)
        return out, LayerPast(attention, kept)


class PooledLayer(ConformerLayer):
    """A layer whose convolution halves the frames: what it adds to is the mean of two."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.conv = PooledConvolution(config)

    def __call__(
        self, x: mx.array, positions: Positions, sight: AttentionContext, valid: mx.array
    ) -> mx.array:
        """[B, T, d] -> [B, T // 2, d]."""
        change = self.feed_forward1(self.norm_feed_forward1(x))
        x, normed = self.norm_self_att.behind(x, change, half=True)
        x, normed = self.norm_conv.behind(x, self.self_attn(normed, positions, sight))
        pairs = x[:, : x.shape[1] // 2 * 2].reshape(x.shape[0], -1, 2, x.shape[2])
        change = self.conv(normed, valid, sight.lengths)
        x, normed = self.norm_feed_forward2.behind(mx.mean(pairs, axis=2), change)
        return self.norm_out.behind(x, self.feed_forward2(normed), half=True)[1]
