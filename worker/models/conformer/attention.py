"""Self-attention with relative positions ("Transformer-XL", Dai et al., 2019), over all frames or near ones,
within blocks, as WeNet has it without a shift, and without positions.

score(i, j) = ((q_i + u) . k_j + (q_i + v) . p_{i-j}) / sqrt(head width). Full attention may be restricted by
a mask; local attention [l, r] computes only frames within l to the left and r to the right, block by block,
and equals full attention under the same band. Without the shift what the position of key j adds depends on j
alone: the keys are k + p, and u . k + v . p is a bias of theirs. Knows nothing of layers around it.
"""

import math
from typing import NamedTuple

import mlx.core as mx
import numpy as np
from mlx import nn

from kernels.nn.activations import row_exp
from kernels.nn.elementwise import relative_softmax
from kernels.runtime.device import compiles_for_cpu, fuse
from worker.models.attention.layers import join_heads, split_heads
from worker.models.conformer.config import EncoderConfig
from worker.models.conformer.linear import Linear
from worker.models.grouped import share_rows

QUERIES_IN_CACHE = 128
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


def sinusoids(positions: mx.array, width: int) -> mx.array:
    """Sine and cosine in turns of positions / 10000^(2i / width) (Vaswani et al. 2017, 3.5), float32
    [..., width]."""
    rates = mx.exp(mx.arange(0, width, 2) * (-9.210340371976184 / width))
    angles = positions[..., None].astype(mx.float32) * rates
    return mx.stack([mx.sin(angles), mx.cos(angles)], axis=-1).reshape(*positions.shape, width)


class AttentionContext(NamedTuple):
    """What each frame sees. `mask` as the attention wants it, `lengths` [B] int32. `window`: frames to the
    left and right (negative: all), where that and the lengths say all the mask says; else None."""

    mask: mx.array | None
    lengths: mx.array
    window: tuple[int, int] | None


class Positions(NamedTuple):
    """Relative positions for one or more lengths. `table` [R, d] as `position_table` makes it; `room`: the
    frames it was made for, any fewer use its middle. `kept`: it is the same array every time, so what is made
    of it may be kept as well. Without a shift: the positions of the frames themselves, [..., frames, d]."""

    table: mx.array
    room: int
    kept: bool


Past = tuple[mx.array, ...]
"""Of the P frames before a chunk, the newest last: keys and values [B, heads, P, d / heads], and without a
shift what each key adds of its own, float32 [B, heads, 1, P]."""


class _Keys(NamedTuple):
    """Projected positions, [1, heads, R, d / heads], and what they were made of."""

    table: mx.array
    weight: mx.array
    keys: mx.array


@fuse
def _mask_scores(mask: mx.array, scores: mx.array, scale: float) -> mx.array:
    """What is added to scores: those by position, and `MASKED` where nothing is seen."""
    return mx.where(mask, scores * scale, mx.array(MASKED, dtype=scores.dtype))


class PlainAttention(nn.Module):
    """Multi-head attention over the whole utterance, whose frames hold their positions."""

    def __init__(self, config: EncoderConfig, *, biased: bool | None = None) -> None:
        super().__init__()
        width, self._heads, inner = config.d_model, config.n_heads, config.n_heads * config.head_width
        biased = config.use_bias if biased is None else biased
        self.linear_q = Linear(width, inner, bias=biased)
        self.linear_k = Linear(width, inner, bias=biased)
        self.linear_v = Linear(width, inner, bias=biased)
        self.linear_out = Linear(inner, width, bias=biased)
        self._fused = Linear(width, 3 * inner, bias=biased)

    def fold(self) -> None:
        """Makes queries, keys and values by one product from now on. The weights are those of the three."""
        share_rows([self.linear_q, self.linear_k, self.linear_v], self._fused)

    def __call__(self, x: mx.array, positions: Positions, sight: AttentionContext) -> mx.array:  # noqa: ARG002
        """x [B, T, d]; the mask float32, -inf at keys that are not seen, or None."""
        return self._finish(_attend(*self._products(x), sight.mask))

    def _products(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array]:
        """Queries, keys and values, [B, heads, T, D] each, by one product."""
        queries, keys, values = (
            split_heads(part, self._heads) for part in mx.split(self._fused(x), 3, axis=-1)
        )
        return queries, keys, values

    def _finish(self, attended: mx.array) -> mx.array:
        """[B, heads, T, D] -> [B, T, d]."""
        out: mx.array = self.linear_out(join_heads(attended))
        return out


class PositionedAttention(PlainAttention):
    """What attention with relative positions has beside."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        width, heads = config.d_model, config.n_heads
        self.linear_pos = Linear(width, width, bias=False, exact=True)
        self.pos_bias_u = mx.zeros((heads, width // heads))
        self.pos_bias_v = mx.zeros((heads, width // heads))

    def begin(self, reach: int, dtype: mx.Dtype) -> Past:
        """The past of a stream that sees `reach` frames of it, before its first chunk."""
        none = mx.zeros((1, self._heads, reach, self.pos_bias_u.shape[1]), dtype)
        return none, none


class RelPositionAttention(PositionedAttention):
    """Multi-head attention over the whole utterance."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self._scale = 1.0 / math.sqrt(config.d_model // config.n_heads)
        self._kept: _Keys | None = None
        self._biases: mx.array | None = None

    def fold(self) -> None:
        super().fold()
        # Both biases, [2, 1, heads, 1, d / heads].
        self._biases = mx.stack([self.pos_bias_u, self.pos_bias_v])[:, None, :, None]
        mx.eval(self._biases)

    def __call__(self, x: mx.array, positions: Positions, sight: AttentionContext) -> mx.array:
        """x [B, T, d]; positions from `room` - 1 >= T - 1 down; the mask [B or 1, 1, T, T] bool, True where j
        is seen. Frames past the length come out as anything finite."""
        frames = x.shape[1]
        query, positioned, keys, values = self._project(x)
        first = positions.room - frames
        position_keys = self._position_keys(positions)[:, :, first : first + 2 * frames - 1]
        scores = positioned @ position_keys.swapaxes(-1, -2)
        if compiles_for_cpu() and sight.window is not None:
            # On a GPU MLX's fused attention moves less memory than this; on a CPU it is not fused.
            content = query @ keys.swapaxes(-1, -2)
            seen = relative_softmax(content, scores, sight.lengths, query.shape[-1], sight.window) @ values
        else:
            assert sight.mask is not None
            bias = _mask_scores(sight.mask, shift(scores, frames), self._scale)
            seen = mx.fast.scaled_dot_product_attention(query, keys, values, scale=self._scale, mask=bias)
        return self._finish(seen)

    def step(self, x: mx.array, past: Past, positions: Positions, mask: mx.array) -> tuple[mx.array, Past]:
        """Attention of one chunk to itself and to what came before it.

        x [B, C, d]; positions as for the whole, of `room` >= P + C; the mask [B, 1, 1, P + C] bool, True
        where a key is seen. Returns [B, C, d], and the past of the next chunk.
        """
        frames = x.shape[1]
        query = self._split(self.linear_q(x))
        keys = mx.concatenate([past[0], self._split(self.linear_k(x))], axis=2)
        values = mx.concatenate([past[1], self._split(self.linear_v(x))], axis=2)
        seen = keys.shape[2]
        first = positions.room - seen
        position_keys = self._position_keys(positions)[:, :, first : first + seen + frames - 1]
        scores = (query + self.pos_bias_v[:, None]) @ position_keys.swapaxes(-1, -2)
        bias = mx.where(mask, shift(scores, seen) * self._scale, mx.array(MASKED, dtype=x.dtype))
        attended = mx.fast.scaled_dot_product_attention(
            query + self.pos_bias_u[:, None], keys, values, scale=self._scale, mask=bias
        )
        return self._finish(attended), (keys[:, :, frames:], values[:, :, frames:])

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
        if self._biases is None:
            query = self._split(self.linear_q(x))
            content, positioned = (query + bias[:, None] for bias in (self.pos_bias_u, self.pos_bias_v))
            return content, positioned, self._split(self.linear_k(x)), self._split(self.linear_v(x))
        parts = self._fused(x).reshape(*x.shape[:2], 3, self._heads, -1)
        query, keys, values = (parts[:, :, part].swapaxes(1, 2) for part in range(3))
        biased = query + self._biases
        return biased[0, :], biased[1, :], keys, values  # slices, where an index alone is a gather

    def _split(self, x: mx.array) -> mx.array:
        """[B, T, d] -> [B, heads, T, d / heads]."""
        return split_heads(x, self._heads)


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
        scores = (query + self.pos_bias_v[:, None]) @ self._position_keys(positions).swapaxes(-1, -2)
        scores = scores * self._scale
        assert sight.mask is not None
        near = self._windows(sight.mask[:, :, None], blocks, block).reshape(batch * blocks, 1, 1, window)
        bias = mx.where(near, band(scores, window), mx.array(MASKED, dtype=x.dtype))
        seen = mx.fast.scaled_dot_product_attention(
            query + self.pos_bias_u[:, None], keys, values, scale=self._scale, mask=bias
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


class UnshiftedAttention(PositionedAttention):
    """Relative attention without a shift."""

    def __call__(self, x: mx.array, positions: Positions, sight: AttentionContext) -> mx.array:
        queries, keys, values = self._products(x)
        keys, own = self._place(keys, positions.table[None])
        bias = own if sight.mask is None else own + sight.mask
        return self._finish(_attend(queries, keys, values, bias))

    def _place(self, keys: mx.array, positions: mx.array) -> tuple[mx.array, mx.array]:
        """Keys [B, heads, T, D] with their positions [B or 1, T, d], and what each adds of its own."""
        table = split_heads(self.linear_pos(positions), self._heads)
        own = keys @ self.pos_bias_u[None, :, :, None] + table @ self.pos_bias_v[None, :, :, None]
        return keys + table, own.swapaxes(2, 3).astype(mx.float32) * float(keys.shape[-1] ** -0.5)

    def begin(self, reach: int, dtype: mx.Dtype) -> Past:
        return *super().begin(reach, dtype), mx.zeros((1, self._heads, 1, reach))

    def step(self, x: mx.array, past: Past, positions: Positions, mask: mx.array) -> tuple[mx.array, Past]:
        """As `RelPositionAttention.step`; positions of the chunk's own frames, [B, C, d], the mask float32
        with -inf at keys that are not seen."""
        queries, keys, values = self._products(x)
        fresh = (*self._place(keys, positions.table), values)
        keys, own, values = (
            mx.concatenate([before, new], axis=axis)
            for before, new, axis in zip((past[0], past[2], past[1]), fresh, (2, 3, 2), strict=True)
        )
        count, out = x.shape[1], self._finish(_attend(queries, keys, values, own + mask))
        return out, (keys[:, :, count:], values[:, :, count:], own[..., count:])


class BlockAttention(PlainAttention):
    """Relative attention within blocks of frames, counted from an utterance's first; the last may be short.
    What a distance adds is learned as it stands, the same for every head ("Self-Attention with Relative
    Position Representations", Shaw et al., 2018): score(i, j) = q_i . (k_j + r_{i-j}) / sqrt(head width)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config, biased=False)
        self.linear_out = Linear(config.n_heads * config.head_width, config.d_model)
        # From the furthest behind to the furthest ahead.
        self.rel_pos_emb = nn.Embedding(2 * config.pos_emb_max_len + 1, config.head_width)
        self._block, self._zero = config.block, config.pos_emb_max_len
        self._scale = config.head_width**-0.5

    def __call__(self, x: mx.array, positions: Positions | None, sight: AttentionContext) -> mx.array:  # noqa: ARG002
        """x [B, T, d], the lengths those of the utterances. Frames past them come out as anything finite."""
        batch, frames, _ = x.shape
        block = min(self._block, frames)
        count = -(-frames // block)
        fused = mx.pad(self._fused(x), [(0, 0), (0, count * block - frames), (0, 0)])
        parts = fused.reshape(batch * count, block, 3, self._heads, -1)
        query, keys, values = (parts[:, :, part].swapaxes(1, 2) for part in range(3))
        lengths = mx.clip(sight.lengths[:, None] - mx.arange(count) * block, 0, block).reshape(-1)
        # Distances block - 1 … 1 - block, each once for all blocks and heads.
        near = self.rel_pos_emb.weight[self._zero - block + 1 : self._zero + block][::-1]
        scores = (mx.contiguous(query).reshape(-1, query.shape[-1]) @ near.T).reshape(*query.shape[:3], -1)
        if compiles_for_cpu():
            content = query @ keys.swapaxes(-1, -2)
            seen = relative_softmax(content, scores, lengths, query.shape[-1]) @ values
        else:
            mask = (mx.arange(block) < lengths[:, None])[:, None, None]
            bias = _mask_scores(mask, shift(scores, block), self._scale)
            seen = mx.fast.scaled_dot_product_attention(query, keys, values, scale=self._scale, mask=bias)
        out: mx.array = self.linear_out(join_heads(seen).reshape(batch, count * block, -1)[:, :frames])
        return out


def _attend(queries: mx.array, keys: mx.array, values: mx.array, bias: mx.array | None) -> mx.array:
    """softmax((q·k) / √D + bias)·v: queries [B, H, Q, D], keys and values [B, H, T, D]; bias broadcasts to
    [B, H, Q, T], -inf where a key is not seen, and leaves each query at least one -> [B, H, Q, D]."""
    scale = queries.shape[-1] ** -0.5
    if not compiles_for_cpu():
        mask = None if bias is None else bias.astype(queries.dtype)
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)
    queries, keys, values = mx.contiguous(queries * scale), mx.contiguous(keys), mx.contiguous(values)
    count = queries.shape[2]
    # Of a long utterance some queries at a time, whose scores stay in the cache.
    step = QUERIES_IN_CACHE if bias is None and count > 2 * QUERIES_IN_CACHE else count
    parts = []
    for first in range(0, count, max(step, 1)):
        products = (queries[:, :, first : first + step] @ keys.swapaxes(2, 3)).astype(mx.float32)
        weights, total = row_exp(products if bias is None else products + bias)
        parts.append((weights.astype(values.dtype) @ values) / total.astype(values.dtype))
    return mx.concatenate(parts, axis=2) if len(parts) != 1 else parts[0]


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
