"""The blocks that Whisper's encoder and decoder are made of: linear, norm, attention, feed-forward.

Weights are plain arrays, fused where one product does for several. The scale 1/√64 of attention stands in the
query's weights: a power of two, so nothing is rounded. Attention is behind three small functions, one a shape
of problem.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mlx.core as mx

from kernels.attention.cross_attention import plain_keys
from kernels.nn.activations import gelu, row_exp
from kernels.nn.elementwise import layer_norm
from worker.models.whisper.config import HEAD_WIDTH

QUERY_SCALE = HEAD_WIDTH**-0.5


@dataclass(frozen=True, slots=True)
class Linear:
    """x · weightᵀ + bias; weight [out, in]."""

    weight: mx.array
    bias: mx.array

    def __call__(self, x: mx.array) -> mx.array:
        """x [..., in] -> [..., out]."""
        return mx.addmm(self.bias, x, self.weight.T)


@dataclass(frozen=True, slots=True)
class Norm:
    """Layer norm over the last axis, epsilon 1e-5, computed in float32."""

    weight: mx.array
    bias: mx.array

    def __call__(self, x: mx.array) -> mx.array:
        """Any shape [..., d]."""
        return layer_norm(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Mlp:
    """Norm, widening by four, GELU, narrowing."""

    norm: Norm
    widen: mx.array
    widen_bias: mx.array
    narrow: Linear

    def __call__(self, x: mx.array) -> mx.array:
        """x [..., d] -> what is to be added to it."""
        return self.narrow(gelu(self.norm(x) @ self.widen.T, self.widen_bias))


@dataclass(frozen=True, slots=True)
class SelfAttention:
    """`fused` gives queries (scaled), keys and values side by side."""

    norm: Norm
    fused: Linear
    out: Linear


@dataclass(frozen=True, slots=True)
class CrossAttention:
    """`query` is scaled; `memory` gives keys and values of encoder frames side by side."""

    norm: Norm
    query: Linear
    memory: Linear
    out: Linear


class Tensors:
    """Hands out a model's tensors by OpenAI's names, in the dtype that it computes in."""

    def __init__(self, tensors: Mapping[str, mx.array], dtype: mx.Dtype) -> None:
        self._tensors, self._dtype = tensors, dtype

    def array(self, name: str) -> mx.array:
        """One tensor."""
        return self._tensors[name].astype(self._dtype)

    def linear(self, name: str) -> Linear:
        """`name`.weight and `name`.bias."""
        return Linear(self.array(f"{name}.weight"), self.array(f"{name}.bias"))

    def norm(self, name: str) -> Norm:
        """A layer norm."""
        return Norm(self.array(f"{name}.weight"), self.array(f"{name}.bias"))

    def mlp(self, block: str) -> Mlp:
        """A block's feed-forward part."""
        widen = self.linear(f"{block}.mlp.0")
        return Mlp(self.norm(f"{block}.mlp_ln"), widen.weight, widen.bias, self.linear(f"{block}.mlp.2"))

    def query(self, name: str) -> Linear:
        """A projection to queries, with attention's scale."""
        plain = self.linear(f"{name}.query")
        return Linear(plain.weight * QUERY_SCALE, plain.bias * QUERY_SCALE)

    def memory(self, name: str) -> Linear:
        """Keys (which have no bias) and values in one."""
        key, value = self.array(f"{name}.key.weight"), self.linear(f"{name}.value")
        return Linear(
            mx.concatenate([key, value.weight]), mx.concatenate([mx.zeros_like(value.bias), value.bias])
        )

    def self_attention(self, block: str) -> SelfAttention:
        """A block's attention to its own sequence."""
        query, memory = self.query(f"{block}.attn"), self.memory(f"{block}.attn")
        fused = Linear(
            mx.concatenate([query.weight, memory.weight]), mx.concatenate([query.bias, memory.bias])
        )
        return SelfAttention(self.norm(f"{block}.attn_ln"), fused, self.linear(f"{block}.attn.out"))

    def cross_attention(self, block: str) -> CrossAttention:
        """A block's attention to the encoder."""
        name = f"{block}.cross_attn"
        return CrossAttention(
            self.norm(f"{name}_ln"), self.query(name), self.memory(name), self.linear(f"{name}.out")
        )


def split_heads(x: mx.array, heads: int) -> mx.array:
    """[B, T, heads * 64] -> [B, heads, T, 64]."""
    batch, length, _ = x.shape
    return x.reshape(batch, length, heads, HEAD_WIDTH).swapaxes(1, 2)


def join_heads(x: mx.array) -> mx.array:
    """[B, heads, T, 64] -> [B, T, heads * 64]."""
    batch, heads, length, width = x.shape
    return x.swapaxes(1, 2).reshape(batch, length, heads * width)


def is_cpu() -> bool:
    """Whether arrays are computed by a CPU, where a window is best taken by itself and a product is a
    call."""
    return mx.default_device() == mx.Device(mx.cpu)


def attend_full(queries: mx.array, keys: mx.array, values: mx.array) -> mx.array:
    """Attention without a mask over many queries, all [B, H, T, 64]; queries are scaled -> [B, H, T, 64]."""
    if not is_cpu():
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=1.0)
    batch, heads, _, _ = queries.shape
    # Heads that lie apart are multiplied a third slower.
    queries, keys, values = mx.contiguous(queries), mx.contiguous(keys), mx.contiguous(values)
    outputs = []
    for b in range(batch):
        for h in range(heads):
            # Head by head, each finished before the next: its scores are then in the cache, and one's alone.
            output = _attend(queries[b, h] @ keys[b, h].T, values[b, h])
            mx.eval(output)
            outputs.append(output)
    return mx.stack(outputs).reshape(queries.shape)


def _attend(products: mx.array, values: mx.array) -> mx.array:
    """softmax(products) · values; products float32."""
    weights, total = row_exp(products)
    return (weights.astype(values.dtype) @ values) / total.astype(values.dtype)


def attend_frames(
    queries: mx.array, memory: Sequence[tuple[mx.array, mx.array]]
) -> tuple[mx.array, mx.array]:
    """Cross attention of few queries: [B, H, Q, 64] scaled; memory: keys in tiles [U, H, N, 64, 64]
    (`tiled_keys`), values [U, H, T, 64] of neighbours that were encoded together, B utterances in all, shared
    by all queries of an utterance -> ([B, H, Q, 64], the products float32 [B, H, Q, T])."""
    products, first = [], 0
    for tiles, values in memory:
        keys = plain_keys(tiles, values.shape[2])
        own = queries[first : first + keys.shape[0]]
        products.append(own @ keys if is_cpu() else own.astype(mx.float32) @ keys.astype(mx.float32))
        first += keys.shape[0]
    # One softmax for all: on a CPU each waits for what it is given.
    joined = mx.concatenate(products) if len(products) > 1 else products[0]
    weights, total = row_exp(joined)
    outputs, first = [], 0
    for _, values in memory:
        outputs.append(weights[first : first + values.shape[0]].astype(values.dtype) @ values)
        first += values.shape[0]
    output = mx.concatenate(outputs) if len(outputs) > 1 else outputs[0]
    return output / total.astype(output.dtype), joined


def attend_table(queries: mx.array, keys: mx.array, values: mx.array, mask: mx.array) -> mx.array:
    """Self attention by parent table: queries [B, H, K, 64] scaled over all columns that an utterance's
    hypotheses wrote, keys and values [B, H, C, 64]; mask float32 [B, 1, K, C] is 0 where a column is the
    hypothesis's own history and -inf elsewhere -> [B, H, K, 64]. No key or value moves."""
    products = queries.astype(mx.float32) @ keys.astype(mx.float32).swapaxes(2, 3) + mask
    return _attend(products, values)


_SUM_BLOCK = 256


def log_sum_exp(x: mx.array) -> mx.array:
    """log Σ exp over the last axis of [..., N], float32 [..., 1], in blocks: a CPU adds one after the other,
    and 50,000 summands would cost three digits."""
    width = x.shape[-1]
    padded = mx.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -width % _SUM_BLOCK)], constant_values=-mx.inf)
    blocks = mx.logsumexp(padded.reshape(*x.shape[:-1], padded.shape[-1] // _SUM_BLOCK, _SUM_BLOCK), axis=-1)
    return mx.logsumexp(blocks, axis=-1, keepdims=True)
