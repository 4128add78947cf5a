"""Convolutional subsampling by depthwise-separable convolutions of stride two ("Fast Conformer with Linearly
Scalable Attention", Rekesh et al., 2023), NeMo's `dw_striding`, causal too; and by plain convolutions without
padding, WeNet's `conv2d`, `conv2d6` and `conv2d8`; and by one convolution over time, hama's `conv1d`.

Knows how many frames come out, and how a stream is cut into windows. Every convolution with padding sees
zeros beyond an utterance's end, and those without see nothing beyond a frame's own features, so padding
cannot leak in.
"""

import math
from typing import NamedTuple

import mlx.core as mx
from mlx import nn

from kernels.nn.activations import gelu
from kernels.nn.convolution import depthwise_stride2, subsample_first, taps_of
from kernels.runtime.device import on_gpu
from worker.models.conformer.config import CONVOLUTIONS, EncoderConfig
from worker.models.conformer.linear import Linear

KERNEL = 3
STRIDE = 2
GELU_SCALE = math.sqrt(2.0) / 1.4140625  # hama divides by the root of two as float16 has it


class Windows(NamedTuple):
    """How a stream's features are cut. first: what the first frame needs. past: how many of a step's last
    features the next one reads again. least: new features of a later step that give a frame."""

    first: int
    past: int
    least: int


class StridedConvolution(nn.Module):
    """A 3 x 3 convolution of stride two over time and mel, padded by `padding` zeros at both ends of both
    axes."""

    def __init__(self, inputs: int, outputs: int, groups: int, padding: tuple[int, int]) -> None:
        super().__init__()
        self.weight = mx.zeros((outputs, KERNEL, KERNEL, inputs // groups))
        self.bias = mx.zeros((outputs,))
        self._groups = groups
        self._padding = padding
        self._taps = taps_of(self.weight)

    def fold(self) -> None:
        """Lays the filters out as the kernels take them; called once the weights are in."""
        self._taps = taps_of(self.weight)
        mx.eval(self._taps)

    @property
    def filters(self) -> tuple[mx.array, mx.array]:
        """Taps [9, C] and bias [C], one input channel a filter."""
        return self._taps, self.bias

    def __call__(self, x: mx.array) -> mx.array:
        """[B, T, F, C] -> [B, T', F', C']."""
        left, right = self._padding
        convolved = mx.conv_general(
            x, self.weight, stride=STRIDE, padding=([left, left], [right, right]), groups=self._groups
        )
        return convolved + self.bias


class DwStridingSubsampling(nn.Module):
    """Log-mel [B, T, mels] to encoder frames [B, T', d_model]. `conv` counts its layers as NeMo does,
    activations included, so that a checkpoint's names fit."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        channels = (
            config.subsampling_conv_channels if config.subsampling_conv_channels > 0 else config.d_model
        )
        self._padding = (KERNEL - 1, STRIDE - 1) if config.causal_downsampling else (1, 1)
        stages = config.subsampling_factor.bit_length() - 1
        self.conv: list[nn.Module] = [StridedConvolution(1, channels, 1, self._padding), nn.ReLU()]
        for _ in range(stages - 1):
            self.conv += [
                StridedConvolution(channels, channels, channels, self._padding),
                Linear(channels, channels),
                nn.ReLU(),
            ]
        self._stages, self._factor = stages, config.subsampling_factor
        mels = config.feat_in
        for _ in range(stages):
            mels = self._halve(mels)
        self.out = Linear(channels * mels, config.d_model)

    def _halve(self, length: int) -> int:
        return max(0, (length + sum(self._padding) - KERNEL) // STRIDE + 1)

    def frames_of(self, features: int) -> int:
        """Encoder frames that come of that many feature frames; none of none."""
        for _ in range(self._stages):
            features = self._halve(features) if features > 0 else 0
        return features

    @property
    def windows(self) -> Windows:
        """How a stream is cut, if the convolutions are causal."""
        return Windows(1, self._factor + 1, 1)

    def features_for(self, frames: int) -> int:
        """Feature frames that give so many encoder frames at least."""
        return frames * self._factor

    def fold(self) -> None:
        """Lays the filters out for the kernels; called once the weights are in."""
        for layer in self.conv:
            if isinstance(layer, StridedConvolution):
                layer.fold()

    def _halves(self, lengths: mx.array) -> mx.array:
        """Lengths [B] after one stage. Half of nothing is nothing, whatever the padding adds."""
        halved = mx.maximum((lengths + sum(self._padding) - KERNEL) // STRIDE + 1, 0)
        return mx.where(lengths > 0, halved, 0)

    def __call__(self, features: mx.array, lengths: mx.array) -> mx.array:
        """[B, T, mels] with `lengths` [B] valid frames each -> [B, T', d_model]; T' = frames_of(T)."""
        strided = [layer for layer in self.conv if isinstance(layer, StridedConvolution)]
        pointwise = [layer for layer in self.conv if isinstance(layer, nn.Linear)]
        if len(strided) == 1:
            x, lengths = strided[0](_mask_frames(features[..., None], lengths)), self._halves(lengths)
        else:
            lead = self._padding[0]
            x = subsample_first(features, strided[0].filters, strided[1].filters, lengths, lead)
            lengths = self._halves(self._halves(lengths))
            for before, convolution in zip(pointwise, strided[2:], strict=False):
                # ReLU, and the mask that the bias before it calls for, belong to the kernel.
                x = depthwise_stride2(before(x), *convolution.filters, lengths, relu=True, lead=lead)
                lengths = self._halves(lengths)
            x = pointwise[-1](x)
        x = _mask_frames(mx.maximum(x, 0), lengths)
        batch, frames = x.shape[:2]
        # NeMo flattens channel-major: all mel positions of channel 0 first.
        out: mx.array = self.out(x.transpose(0, 1, 3, 2).reshape(batch, frames, -1))
        return out


def _mask_frames(x: mx.array, lengths: mx.array) -> mx.array:
    valid = mx.arange(x.shape[1])[None] < lengths[:, None]
    return mx.where(valid[:, :, None, None], x, mx.zeros((), dtype=x.dtype))


class PlainConvolution(nn.Module):
    """A square convolution over time and mel, without padding."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.weight, self.bias = mx.zeros((outputs, kernel, kernel, inputs)), mx.zeros((outputs,))
        self._stride = stride
        self._product = Linear(inputs, outputs, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        """[B, T, F, C] -> [B, T', F', C']."""
        if on_gpu():
            return mx.conv2d(x, self.weight, self._stride) + self.bias
        # One product of the patches laid out side by side is faster on a CPU.
        batch, frames, bands, channels = x.shape
        kernel, stride = self.weight.shape[1], self._stride
        rows, columns = (frames - kernel) // stride + 1, (bands - kernel) // stride + 1
        row, frame = bands * channels, frames * bands * channels
        patches = mx.as_strided(
            mx.contiguous(x),
            (batch, rows, columns, kernel, kernel * channels),
            (frame, stride * row, stride * channels, row, 1),
        )
        self._product.weight = self.weight.reshape(self.weight.shape[0], -1)
        convolved: mx.array = self._product(patches.reshape(batch, rows, columns, -1))
        return convolved + self.bias


class Conv2dSubsampling(nn.Module):
    """Features [B, T, mels] to encoder frames [B, T', d_model]; `conv` counts ReLUs as well."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self._convolutions, width = CONVOLUTIONS[config.subsampling], config.d_model
        self.conv: list[nn.Module] = []
        for number, (kernel, stride) in enumerate(self._convolutions):
            self.conv += [PlainConvolution(width if number else 1, width, kernel, stride), nn.ReLU()]
        self._bands, self._factor = self.frames_of(config.feat_in), config.subsampling_factor
        self.out = Linear(width * self._bands, width)

    def frames_of(self, features: int) -> int:
        """Encoder frames (or bands) that so many feature frames (or bands) give."""
        for kernel, stride in self._convolutions:
            features = (features - kernel) // stride + 1 if features >= kernel else 0
        return features

    @property
    def windows(self) -> Windows:
        """How a stream is cut."""
        needed = 1
        for kernel, stride in reversed(self._convolutions):
            needed = (needed - 1) * stride + kernel
        return Windows(needed, needed - self._factor, self._factor)

    def features_for(self, frames: int) -> int:
        """Feature frames that give so many encoder frames at least."""
        return (frames + 2) * self._factor

    def fold(self) -> None:
        """Takes channels last, where a checkpoint's columns have them first; called once the weights are
        in."""
        width, shape = self.conv[0].weight.shape[0], self.out.weight.shape
        weight = self.out.weight.reshape(width, -1, self._bands).swapaxes(1, 2)
        self.out.weight = mx.contiguous(weight.reshape(shape))

    def __call__(self, features: mx.array, lengths: mx.array) -> mx.array:  # noqa: ARG002 - no frame reads beyond
        """[B, T, mels] -> [B, T', d_model]; T' = frames_of(T)."""
        x = features[..., None]
        for layer in self.conv:
            x = layer(x)
        out: mx.array = self.out(x.reshape(*x.shape[:2], -1))
        return out


class Conv1dSubsampling(nn.Module):
    """Features [B, T, mels] to encoder frames [B, ceil(T / 2), d_model]: one convolution over time of width
    three and stride two, then GELU."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.out = Linear(KERNEL * config.feat_in, config.d_model)
        self._no_bias = mx.zeros((config.d_model,))

    def frames_of(self, features: int) -> int:
        """Encoder frames that come of that many feature frames."""
        return (features + 1) // STRIDE

    @property
    def windows(self) -> Windows:
        """How a stream is cut."""
        return Windows(STRIDE, 1, STRIDE)

    def features_for(self, frames: int) -> int:
        """Feature frames that give so many encoder frames."""
        return frames * STRIDE

    def fold(self) -> None:
        """Does nothing: the filters are a matrix as they are."""

    def __call__(self, features: mx.array, lengths: mx.array) -> mx.array:
        """[B, T, mels], zeros past `lengths` [B] frames -> [B, T', d_model]."""
        del lengths  # what is past an utterance's end is zero, as its padding is
        batch, frames, mels = features.shape
        count = self.frames_of(frames)
        padded = mx.pad(features, [(0, 0), (1, KERNEL), (0, 0)])
        patches = mx.as_strided(
            mx.contiguous(padded),
            (batch, count, KERNEL * mels),
            (padded.shape[1] * mels, STRIDE * mels, 1),
        )
        return gelu(self.out(patches) * GELU_SCALE, self._no_bias) / GELU_SCALE


class LinearInput(nn.Module):
    """Features [B, T, bands] to as many frames [B, T, d_model], by one linear map. frames_of: frames of the
    last layer, behind those that pool."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.out = Linear(config.feat_in, config.d_model)
        self._halvings = len(config.pooled_layers)

    def frames_of(self, features: int) -> int:
        """Encoder frames that come of that many feature frames."""
        return features >> self._halvings

    @property
    def windows(self) -> Windows:
        """How a stream is cut."""
        return Windows(1, 0, 1)

    def features_for(self, frames: int) -> int:
        """Feature frames that give so many encoder frames at least."""
        return frames << self._halvings

    def fold(self) -> None:
        """Does nothing: there is one matrix."""

    def __call__(self, features: mx.array, lengths: mx.array) -> mx.array:  # noqa: ARG002 - no frame reads beyond
        out: mx.array = self.out(features)
        return out


SUBSAMPLINGS: dict[str, type[DwStridingSubsampling] | type[Conv1dSubsampling] | type[LinearInput]] = {
    "dw_striding": DwStridingSubsampling,
    "conv1d": Conv1dSubsampling,
    "linear": LinearInput,
}
