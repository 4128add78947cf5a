"""The encoder of U2 and U2++: features to frames (Zhang et al. 2020; Wu et al. 2021).

Relative attention without a shift is plain attention: what the position of key j adds depends on j alone, so
the keys are k + p, and a bias of the keys u·k + v·p. A causal convolution module sees zeros before its first
pointwise convolution, whose bias fills them. Frames behind an utterance's end reach none before it.
"""

from typing import NamedTuple

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.nn.convolution import fold_batch_norm, glu_conv
from kernels.nn.elementwise import silu
from kernels.runtime.device import on_gpu
from worker.models.attention.layers import Linear, Norm, join_heads, split_heads
from worker.models.turns import give_way
from worker.models.wenet.config import FEATURES, EncoderSizes
from worker.models.wenet.layers import Reader, attend, sinusoids
from worker.models.wenet.weights import subsampling_linear

_LEAST = -1e30  # of a bias: a padded frame may see no key at all, and its softmax must be a number
BUCKET = 16  # encoder frames: a GPU's allocator keeps one buffer of every size


class Subsampling:
    """Convolutions without padding, ReLU behind each, and a linear layer over channels and bands."""

    def __init__(self, sizes: EncoderSizes, reader: Reader) -> None:
        self._sizes = sizes
        self._filters = []
        for index, _ in enumerate(sizes.convolutions):
            # [out, in, time, band] as [out, time, band, in].
            weight = reader.raw(f"encoder.embed.conv.{2 * index}.weight").transpose(0, 2, 3, 1)
            bias = reader.array(f"encoder.embed.conv.{2 * index}.bias")
            self._filters.append((reader.kept(mx.contiguous(weight)), bias))
        plain = reader.linear(subsampling_linear(sizes))
        bands = sizes.frames_of(FEATURES)
        # Channels come first in the checkpoint's columns, last in these arrays.
        weight = plain.weight.reshape(sizes.width, -1, bands).swapaxes(1, 2).reshape(plain.weight.shape)
        self._linear = Linear(mx.contiguous(weight), plain.bias)

    def __call__(self, features: mx.array) -> mx.array:
        """[B, T, 80] -> [B, frames_of(T), d], scaled by √d."""
        x = features[..., None]
        for (weight, bias), (kernel, stride) in zip(self._filters, self._sizes.convolutions, strict=True):
            convolved = mx.conv2d(x, weight, stride) if on_gpu() else _convolve(x, weight, kernel, stride)
            x = mx.maximum(convolved + bias, 0)
        flat = self._linear(x.reshape(*x.shape[:2], -1))
        return flat * float(self._sizes.width**0.5)


def _convolve(x: mx.array, weight: mx.array, kernel: int, stride: int) -> mx.array:
    """The convolution as one product of the patches laid out side by side, faster on a CPU."""
    batch, frames, bands, channels = x.shape
    x = mx.contiguous(x)
    rows, columns = (frames - kernel) // stride + 1, (bands - kernel) // stride + 1
    row, frame = bands * channels, frames * bands * channels
    patches = mx.as_strided(
        x,
        (batch, rows, columns, kernel, kernel * channels),
        (frame, stride * row, stride * channels, row, 1),
    )
    return patches.reshape(batch, rows, columns, -1) @ weight.reshape(weight.shape[0], -1).T


class PastKeys(NamedTuple):
    """What attention keeps of the P frames before a chunk, the newest last. keys, values: [B, heads, P, D],
    keys with their positions. own: float32 [B, heads, 1, P], what each key adds of its own."""

    keys: mx.array
    values: mx.array
    own: mx.array


class LayerPast(NamedTuple):
    """What a layer keeps: `opened` [B, kernel - 1, 2d] are the last outputs of the first pointwise
    convolution."""

    attention: PastKeys
    opened: mx.array


class SelfAttention:
    """Attention over an utterance's frames."""

    def __init__(self, name: str, sizes: EncoderSizes, reader: Reader) -> None:
        self._heads, self._relative = sizes.heads, sizes.relative
        self._fused = reader.linear(*(f"{name}.linear_{part}" for part in "qkv"))
        self._out = reader.linear(f"{name}.linear_out")
        if sizes.relative:
            self._positions = reader.kept(reader.raw(f"{name}.linear_pos.weight").T)
            self._of_keys = reader.array(f"{name}.pos_bias_u")
            self._of_positions = reader.array(f"{name}.pos_bias_v")

    def __call__(self, x: mx.array, positions: mx.array, hidden: mx.array | None) -> mx.array:
        """x [B, T, d]; positions [T, d]; hidden float32 [B, 1, 1, T], -inf at keys that are none."""
        queries, keys, values = (
            split_heads(part, self._heads) for part in mx.split(self._fused(x), 3, axis=-1)
        )
        bias = hidden
        if self._relative:
            table = split_heads((positions @ self._positions)[None], self._heads)
            own = keys @ self._of_keys[None, :, :, None] + table @ self._of_positions[None, :, :, None]
            own = own.swapaxes(2, 3).astype(mx.float32) * float(queries.shape[-1] ** -0.5)
            bias = own if hidden is None else own + hidden
            keys = keys + table
        return self._out(join_heads(attend(queries, keys, values, bias)))

    def step(
        self, x: mx.array, past: PastKeys, positions: mx.array, hidden: mx.array
    ) -> tuple[mx.array, PastKeys]:
        """One chunk x [B, C, d] behind its past; positions [B, C, d] are the chunk's own, hidden [B, 1, 1,
        P + C]. [B, C, d], and the past of the next chunk. For relative attention."""
        queries, keys, values = (
            split_heads(part, self._heads) for part in mx.split(self._fused(x), 3, axis=-1)
        )
        table = split_heads(positions @ self._positions, self._heads)
        own = keys @ self._of_keys[None, :, :, None] + table @ self._of_positions[None, :, :, None]
        own = own.swapaxes(2, 3).astype(mx.float32) * float(queries.shape[-1] ** -0.5)
        keys = mx.concatenate([past.keys, keys + table], axis=2)
        values = mx.concatenate([past.values, values], axis=2)
        own = mx.concatenate([past.own, own], axis=3)
        out = self._out(join_heads(attend(queries, keys, values, own + hidden)))
        count = x.shape[1]
        return out, PastKeys(keys[:, :, count:], values[:, :, count:], own[..., count:])


class Convolution:
    """Pointwise convolution and gate, depthwise convolution, norm, SiLU, pointwise convolution."""

    def __init__(self, name: str, sizes: EncoderSizes, reader: Reader) -> None:
        self._first = reader.linear(f"{name}.pointwise_conv1")
        self._second = reader.linear(f"{name}.pointwise_conv2")
        taps = mx.contiguous(reader.raw(f"{name}.depthwise_conv.weight")[:, 0].T)
        shift = reader.raw(f"{name}.depthwise_conv.bias")
        self._norm: Norm | None = None
        if sizes.batch_norm:
            parts = ("running_mean", "running_var", "weight", "bias")
            taps, shift = fold_batch_norm(taps, shift, *(reader.raw(f"{name}.norm.{part}") for part in parts))
        else:
            self._norm = reader.norm(f"{name}.norm")
        self._taps, self._shift = reader.kept(taps), reader.kept(shift)
        self._before = sizes.kernel - 1 if sizes.causal else 0
        self._lead = sizes.kernel - 1 if sizes.causal else sizes.kernel // 2

    def begin(self) -> mx.array:
        """What stands before the first frame of a causal convolution, [1, kernel - 1, 2d]: what the first
        convolution makes of zeros, its bias."""
        return mx.broadcast_to(self._first.bias, (1, self._before, self._first.bias.shape[0]))

    def step(self, x: mx.array, opened: mx.array) -> tuple[mx.array, mx.array]:
        """One chunk [B, C, d] behind `opened`, as `LayerPast` has it: [B, C, d], and the newest of these."""
        opened = mx.concatenate([opened, self._first(x)], axis=1)
        lengths = mx.full((x.shape[0],), opened.shape[1], dtype=mx.int32)
        taps, shift, lead = self._taps, self._shift, self._lead
        mixed = glu_conv(opened, taps, shift, lengths, lead, activates=self._norm is None)[:, self._before :]
        out = self._second(mixed if self._norm is None else silu(self._norm(mixed)))
        return out, opened[:, x.shape[1] :]

    def __call__(self, x: mx.array, lengths: mx.array) -> mx.array:
        """x [B, T, d], lengths int32 [B]. Behind an utterance's end the depthwise convolution sees zeros."""
        x = self._first(x)
        if self._before:  # what the first convolution makes of zeros is its bias
            filled = mx.broadcast_to(self._first.bias, (x.shape[0], self._before, x.shape[2]))
            x, lengths = mx.concatenate([filled, x], axis=1), lengths + self._before
        x = glu_conv(x, self._taps, self._shift, lengths, self._lead, activates=self._norm is None)
        x = x[:, self._before :]
        return self._second(x if self._norm is None else silu(self._norm(x)))


class FeedForward:
    """Norm, linear, SiLU (or ReLU in transformers), linear."""

    def __init__(self, name: str, norm: str, reader: Reader, *, relu: bool) -> None:
        self._norm, self._relu = reader.norm(norm), relu
        self._widen, self._narrow = reader.linear(f"{name}.w_1"), reader.linear(f"{name}.w_2")

    def __call__(self, x: mx.array) -> mx.array:
        """x [..., d] -> what is to be added to it."""
        wide = self._widen(self._norm(x))
        return self._narrow(mx.maximum(wide, 0) if self._relu else silu(wide))


class ConformerLayer:
    """Half a feed-forward, attention, convolution, half a feed-forward, a norm."""

    def __init__(self, name: str, sizes: EncoderSizes, reader: Reader) -> None:
        macaron = (f"{name}.feed_forward_macaron", f"{name}.norm_ff_macaron")
        self._feed_forward1 = FeedForward(*macaron, reader, relu=False)
        self._attention_norm = reader.norm(f"{name}.norm_mha")
        self._attention = SelfAttention(f"{name}.self_attn", sizes, reader)
        self._convolution_norm = reader.norm(f"{name}.norm_conv")
        self._convolution = Convolution(f"{name}.conv_module", sizes, reader)
        self._feed_forward2 = FeedForward(f"{name}.feed_forward", f"{name}.norm_ff", reader, relu=False)
        self._norm = reader.norm(f"{name}.norm_final")

    def __call__(
        self, x: mx.array, positions: mx.array, hidden: mx.array | None, lengths: mx.array
    ) -> mx.array:
        """As `SelfAttention` and `Convolution` have it."""
        x = x + 0.5 * self._feed_forward1(x)
        x = x + self._attention(self._attention_norm(x), positions, hidden)
        x = x + self._convolution(self._convolution_norm(x), lengths)
        return self._norm(x + 0.5 * self._feed_forward2(x))

    def begin(self) -> mx.array:
        return self._convolution.begin()

    def step(
        self, x: mx.array, past: LayerPast, positions: mx.array, hidden: mx.array
    ) -> tuple[mx.array, LayerPast]:
        """As `SelfAttention.step` and `Convolution.step` have it."""
        x = x + 0.5 * self._feed_forward1(x)
        attended, attention = self._attention.step(self._attention_norm(x), past.attention, positions, hidden)
        x = x + attended
        convolved, opened = self._convolution.step(self._convolution_norm(x), past.opened)
        x = x + convolved
        return self._norm(x + 0.5 * self._feed_forward2(x)), LayerPast(attention, opened)


class TransformerLayer:
    """Attention and a feed-forward, a norm before each."""

    def __init__(self, name: str, sizes: EncoderSizes, reader: Reader) -> None:
        self._norm = reader.norm(f"{name}.norm1")
        self._attention = SelfAttention(f"{name}.self_attn", sizes, reader)
        self._feed_forward = FeedForward(f"{name}.feed_forward", f"{name}.norm2", reader, relu=True)

    def __call__(
        self,
        x: mx.array,
        positions: mx.array,
        hidden: mx.array | None,
        lengths: mx.array,  # noqa: ARG002 - only a convolution asks
    ) -> mx.array:
        x = x + self._attention(self._norm(x), positions, hidden)
        return x + self._feed_forward(x)


class WenetEncoder:
    """Normalisation, subsampling, layers, a norm.

    A GPU takes the batch as one padded array. A CPU takes each utterance by itself: no padding is computed,
    and the bits of a product depend on its number of rows there.
    """

    def __init__(self, sizes: EncoderSizes, reader: Reader) -> None:
        self.sizes = sizes
        self._cmvn = None
        if sizes.has_cmvn:
            self._cmvn = (reader.raw("encoder.global_cmvn.mean"), reader.raw("encoder.global_cmvn.istd"))
        self._subsampling = Subsampling(sizes, reader)
        kind = ConformerLayer if sizes.is_conformer else TransformerLayer
        self.layers = [kind(f"encoder.encoders.{layer}", sizes, reader) for layer in range(sizes.layers)]
        self._norm = reader.norm("encoder.after_norm")
        self._dtype = self._norm.weight.dtype

    def __call__(
        self, features: list[NDArray[np.float32]], context: tuple[int, int] | None = None
    ) -> tuple[mx.array, NDArray[np.int32]]:
        """Features [T, 80] of each utterance -> frames [B, T', d], zero past each utterance's length, and the
        lengths [B]. context: attention is kept to chunks, as `chunk_mask` has it."""
        counts = np.array([self.sizes.frames_of(len(row)) for row in features], np.int32)
        longest = int(counts.max(initial=0))
        if longest == 0:
            return mx.zeros((len(features), 0, self.sizes.width), self._dtype), counts
        if on_gpu():
            longest = -(-longest // BUCKET) * BUCKET
            room = (longest + 2) * self.sizes.rate  # no fewer feature frames than `longest` needs
            padded = np.zeros((len(features), room, FEATURES), np.float32)
            for row, each in enumerate(features):
                padded[row, : len(each)] = each
            frames = self._run(mx.array(padded), mx.array(counts), longest, context)
            inside = mx.arange(frames.shape[1]) < mx.array(counts)[:, None]
            return mx.where(inside[..., None], frames, mx.zeros((), frames.dtype)), counts
        rows = []
        for each, count in zip(features, counts.tolist(), strict=True):
            if count == 0:
                rows.append(mx.zeros((longest, self.sizes.width), self._dtype))
                continue
            frames = self._run(mx.array(each)[None], mx.array([count], mx.int32), None, context)[0]
            mx.eval(frames)
            rows.append(mx.pad(frames, [(0, longest - count), (0, 0)]))
        return mx.stack(rows), counts

    def subsample(self, features: mx.array) -> mx.array:
        """Features [B, T, 80] float32 -> what enters the first layer, [B, frames_of(T), d]."""
        if self._cmvn is not None:
            features = (features - self._cmvn[0]) * self._cmvn[1]
        return self._subsampling(features.astype(self._dtype))

    def finish(self, x: mx.array) -> mx.array:
        """What the last layer gave, normed."""
        return self._norm(x)

    def _run(
        self,
        features: mx.array,
        counts: mx.array,
        longest: int | None,
        context: tuple[int, int] | None,
    ) -> mx.array:
        """features [B, T, 80] float32; `longest` cuts the frames, and says that utterances are padded."""
        x = self.subsample(features)[:, :longest]
        count = x.shape[1]
        positions = sinusoids(mx.arange(count), self.sizes.width).astype(self._dtype)
        if not self.sizes.relative:
            x = x + positions
        hidden = None
        if longest is not None:
            # A row of no frames sees one key, so that its softmax is a number; nobody reads it.
            seen = mx.arange(count) < mx.maximum(counts, 1)[:, None]
            hidden = mx.where(seen, 0.0, -mx.inf)[:, None, None].astype(mx.float32)
        if context is not None:
            chunks = mx.where(chunk_mask(count, context), 0.0, -mx.inf)[None, None].astype(mx.float32)
            hidden = chunks if hidden is None else mx.maximum(hidden + chunks, _LEAST)
        for layer in self.layers:
            x = layer(x, positions, hidden, counts)
            give_way(x)
        return self._norm(x)


def chunk_mask(frames: int, context: tuple[int, int]) -> mx.array:
    """bool [T, T]: frame i sees its own chunk of right + 1 frames, and left // (right + 1) chunks before it;
    all of them where left is negative."""
    left, chunk = context[0], context[1] + 1
    behind = mx.arange(frames)[:, None] // chunk - mx.arange(frames)[None] // chunk
    seen = behind >= 0
    return seen & (behind <= left // chunk) if left >= 0 else seen
