"""Self-attention with relative positions ("Transformer-XL", Dai et al., 2019), over all frames or near ones.

score(i, j) = ((q_i + u) . k_j + (q_i + v) . p_{i-j}) / sqrt(head width). Full attention may be restricted by
a mask; local attention [l, r] computes only frames within l to the left and r to the right, block by block,
and equals full attention under the same band. Knows nothing of layers around it.
"""

import math
from typing import NamedTuple

import mlx.core as mx
import numpy as np
from mlx import nn

from kernels.nn.elementwise import relative_softmax
from kernels.runtime.device import compiles_for_cpu, fuse
from worker.models.conformer.linear import Linear
from worker.models.nemo.config import EncoderConfig

MASKED = -1e4  # as NeMo: exp() of it is zero, yet a row with nothing to see stays finite


def position_table(first: int, last: int, width: int, dtype: mx.Dtype) -> mx.array:
    """Sinusoids for the relative positions first, first - 1 ... last, [first - last + 1, width]; sine and
    cosine interleaved."""
    positions = np.arange(first, last - 1, -1, dtype=np.float32)[:, None]
    rates = np.exp(np.arange(0, width, 2, dtype=np.float32) * np.float32(-math.log(10_000.0) / width))
    angles = positions * rates
    table = np.empty((len(positions), width), np.float32)
    table[:, 0::2], table[:, 1::2] = np.sin(angles), np.cos(angles)
    return mx.array(table).astype(dtype)


class AttentionContext(NamedTuple):
    """What each frame sees. `mask` as the attention wants it, `lengths` [B] int32. `window`: frames to the
    left and right (negative: all), where that and the lengths say all the mask says; else None."""

    mask: mx.array
    lengths: mx.array
    window: tuple[int, int] | None


class Positions(NamedTuple):
    """Relative positions for one or more lengths. `table` [R, d] as `position_table` makes it; `room`: the
    frames it was made for, any fewer use its middle. `kept`: it is the same array every time, so what is made
    of it may be kept as well."""

    table: mx.array
    room: int
    kept: bool


class KeysValues(NamedTuple):
    """Keys and values of past frames, [B, heads, P, d / heads] each, the newest last."""

    keys: mx.array
    values: mx.array


class _Keys(NamedTuple):
    """Projected positions, [1, heads, R, d / heads], and what they were made of."""

    table: mx.array
    weight: mx.array
    keys: mx.array


class _Together(NamedTuple):
    """Weights [3 d, d] and bias [3 d] or None of queries, keys and values; both biases of positions, [2, 1,
    heads, 1, d / heads]."""

    weight: mx.array
    bias: mx.array | None
    biases: mx.array


@fuse
def _mask_scores(mask: mx.array, scores: mx.array, scale: float) -> mx.array:
    """What is added to scores: those by position, and `MASKED` where nothing is seen."""
    return mx.where(mask, scores * scale, mx.array(MASKED, dtype=scores.dtype))


class RelPositionAttention(nn.Module):
    """Multi-head attention over the whole utterance."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width, heads = config.d_model, config.n_heads
        self.linear_q = Linear(width, width, bias=config.use_bias)
        self.linear_k = Linear(width, width, bias=config.use_bias)
        self.linear_v = Linear(width, width, bias=config.use_bias)
        self.linear_out = Linear(width, width, bias=config.use_bias)
        self.linear_pos = Linear(width, width, bias=False)
        self.pos_bias_u = mx.zeros((heads, width // heads))
        self.pos_bias_v = mx.zeros((heads, width // heads))
        self._heads = heads
        self._scale = 1.0 / math.sqrt(width // heads)
        self._kept: _Keys | None = None
        self._together: _Together | None = None

    def fold(self) -> None:
        """Makes queries, keys and values by one product from now on. The weights are those of the three."""
        parts = [self.linear_q, self.linear_k, self.linear_v]
        weight = mx.concatenate([part.weight for part in parts])
        bias = mx.concatenate([part.bias for part in parts]) if "bias" in self.linear_q else None
        biases = mx.stack([self.pos_bias_u, self.pos_bias_v])[:, None, :, None]
        mx.eval(weight, biases, [] if bias is None else bias)
        for part, own in zip(parts, mx.split(weight, 3), strict=True):
            mx.eval(own)
            part.weight = own  # a view: no second copy of them stays
        self._together = _Together(weight, bias, biases)

    def __call__(self, x: mx.array, positions: Positions, sight: AttentionContext) -> mx.array:
        """x [B, T, d]; positions from `room` - 1 >= T - 1 down; the mask [B or 1, 1, T, T] bool, True where j
        is seen. Frames past the length come out as anything finite."""
        batch, frames, _ = x.shape
        query, positioned, keys, values = self._project(x)
        first = positions.room - frames
        position_keys = self._position_keys(positions)[:, :, first : first + 2 * frames - 1]
        scores = positioned @ position_keys.swapaxes(-1, -2)
        if compiles_for_cpu() and sight.window is not None:
            # On a GPU MLX's fused attention moves less memory than this; on a CPU it is not fused.
            content = query @ keys.swapaxes(-1, -2)
            seen = relative_softmax(content, scores, sight.lengths, query.shape[-1], sight.window) @ values
        else:
            bias = _mask_scores(sight.mask, shift(scores, frames), self._scale)
            seen = mx.fast.scaled_dot_product_attention(query, keys, values, scale=self._scale, mask=bias)
        out: mx.array = self.linear_out(seen.swapaxes(1, 2).reshape(batch, frames, -1))
        return out

    def step(
        self, x: mx.array, past: KeysValues, positions: Positions, mask: mx.array
    ) -> tuple[mx.array, KeysValues]:
        """Attention of one chunk to itself and to what came before it.

        x [B, C, d]; past: of the P frames before, the newest last; positions as for the whole, of `room` >= P
        + C; the mask [B, 1, 1, P + C] bool, True where a key is seen. Returns [B, C, d], and keys and values
        of the newest P frames.
        """
        batch, frames, _ = x.shape
        query = self._split(self.linear_q(x))
        keys = mx.concatenate([past.keys, self._split(self.linear_k(x))], axis=2)
        values = mx.concatenate([past.values, self._split(self.linear_v(x))], axis=2)
        seen = keys.shape[2]
        first = positions.room - seen
        position_keys = self._position_keys(positions)[:, :, first : first + seen + frames - 1]
        scores = self._add_bias(query, self.pos_bias_v) @ position_keys.swapaxes(-1, -2)
        bias = mx.where(mask, shift(scores, seen) * self._scale, mx.array(MASKED, dtype=x.dtype))
        attended = mx.fast.scaled_dot_product_attention(
            self._add_bias(query, self.pos_bias_u), keys, values, scale=self._scale, mask=bias
        )
        out: mx.array = self.linear_out(attended.swapaxes(1, 2).reshape(batch, frames, -1))
        return out, KeysValues(keys[:, :, frames:], values[:, :, frames:])

    def _position_keys(self, positions: Positions) -> mx.array:
        """The positions as keys, [1, heads, R, d / heads]; made again only of another table or weight."""
        weight, kept = self.linear_pos.weight, self._kept
        if kept is not None and kept.table is positions.table and kept.weight is weight:
            return kept.keys
        keys = mx.contiguous(self._split(self.linear_pos(positions.table)[None]))
        if positions.kept:
            mx.eval(keys)
            self._kept = _Keys(positions.table, weight, keys)
        return keys

    def _project(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array, mx.array]:
        """Queries with the bias for content and with that for positions, keys and values, [B, heads, T, d /
        heads] each."""
        if self._together is None:
            query = self._split(self.linear_q(x))
            content, positioned = (self._add_bias(query, each) for each in (self.pos_bias_u, self.pos_bias_v))
            return content, positioned, self._split(self.linear_k(x)), self._split(self.linear_v(x))
        weight, bias, biases = self._together
        product = x @ weight.T if bias is None else mx.addmm(bias, x, weight.T)
        parts = product.reshape(*x.shape[:2], 3, self._heads, -1)
        query, keys, values = (parts[:, :, part].swapaxes(1, 2) for part in range(3))
        biased = query + biases
        return biased[0, :], biased[1, :], keys, values  # slices, where an index alone is a gather

    def _split(self, x: mx.array) -> mx.array:
        """[B, T, d] -> [B, heads, T, d / heads]."""
        batch, frames, width = x.shape
        return x.reshape(batch, frames, self._heads, width // self._heads).swapaxes(1, 2)

    def _add_bias(self, query: mx.array, bias: mx.array) -> mx.array:
        return query + bias[:, None]


class RelPositionLocalAttention(RelPositionAttention):
    """The same over [l, r] neighbours alone: time and memory grow with T (l + r), not with T squared."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self._left, self._right = config.att_context_size

    def fold(self) -> None:
        """Does nothing: blocks are cut from queries, keys and values each in its own way."""

    def __call__(self, x: mx.array, positions: Positions, sight: AttentionContext) -> mx.array:
        """x [B, T, d]; positions from l down to -r; the mask [B, T] bool, True on frames of
        the utterance."""
        batch, frames, width = x.shape
        block = max(1, self._left, self._right)
        blocks = -(-frames // block)
        window = block + self._left + self._right
        query = self._blocks(self.linear_q(x), blocks, block)
        keys = self._windows(self.linear_k(x), blocks, block)
        values = self._windows(self.linear_v(x), blocks, block)
        scores = self._add_bias(query, self.pos_bias_v) @ self._position_keys(positions).swapaxes(-1, -2)
        scores = scores * self._scale
        near = self._windows(sight.mask[:, :, None], blocks, block).reshape(batch * blocks, 1, 1, window)
        bias = mx.where(near, band(scores, window), mx.array(MASKED, dtype=x.dtype))
        seen = mx.fast.scaled_dot_product_attention(
            self._add_bias(query, self.pos_bias_u), keys, values, scale=self._scale, mask=bias
        )
        seen = seen.swapaxes(1, 2).reshape(batch, blocks * block, width)[:, :frames]
        out: mx.array = self.linear_out(seen)
        return out

    def _blocks(self, x: mx.array, blocks: int, block: int) -> mx.array:
        """[B, T, d] -> [B * blocks, heads, block, d / heads], zeros after the end."""
        batch, frames, width = x.shape
        padded = mx.pad(x, [(0, 0), (0, blocks * block - frames), (0, 0)])
        return self._split(padded.reshape(batch * blocks, block, width))

    def _windows(self, x: mx.array, blocks: int, block: int) -> mx.array:
        """[B, T, d] -> what each block may see, [B * blocks, heads, l + block + r, d / heads] (a mask: one
        head)."""
        batch, frames, width = x.shape
        padded = mx.pad(x, [(0, 0), (self._left, blocks * block - frames + self._right), (0, 0)])
        window = block + self._left + self._right
        row = padded.shape[1] * width
        strided = mx.as_strided(padded, (batch, blocks, window, width), (row, block * width, width, 1))
        strided = strided.reshape(batch * blocks, window, width)
        return strided if x.dtype == mx.bool_ else self._split(strided)


def shift(scores: mx.array, keys: int) -> mx.array:
    """Scores by relative position [B, H, Q, keys + Q - 1] -> by key [B, H, Q, keys], the queries being the
    last of the keys: out[i, j] = scores[i, Q - 1 - i + j]."""
    batch, heads, queries, row = scores.shape
    strides = (heads * queries * row, queries * row, row - 1, 1)
    return mx.as_strided(scores, (batch, heads, queries, keys), strides, offset=queries - 1)


def band(scores: mx.array, window: int) -> mx.array:
    """Scores by relative position [N, H, C, R] -> by key of a window [N, H, C, window]: out[a, b] = scores[a,
    b - a], MASKED where b - a lies outside 0 ... R - 1. Needs window = C + R - 1."""
    count, heads, block, reach = scores.shape
    # A row one longer than the window, read with a stride of the window, moves each row right by its own
    # index.
    padded = mx.pad(
        scores, [(0, 0)] * 3 + [(0, window + 1 - reach)], constant_values=mx.array(MASKED, scores.dtype)
    )
    size = block * (window + 1)
    strides = (heads * size, size, window, 1)
    return mx.as_strided(padded, (count, heads, block, window), strides)
