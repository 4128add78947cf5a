"""Whisper's tensors as the blocks of `worker.models.attention`.

The scale 1/√64 of attention stands in the query's weights: a power of two, so nothing is rounded.
"""

from collections.abc import Mapping

import mlx.core as mx

from worker.models.attention.layers import CrossAttention, Linear, Mlp, Norm, Product, SelfAttention
from worker.models.whisper.config import HEAD_WIDTH

QUERY_SCALE = HEAD_WIDTH**-0.5


class Tensors:
    """Hands out a model's tensors by OpenAI's names, in the dtype that it computes in."""

    def __init__(self, tensors: Mapping[str, mx.array], dtype: mx.Dtype) -> None:
        self._tensors, self._dtype = tensors, dtype

    def array(self, name: str) -> mx.array:
        return self._tensors[name].astype(self._dtype)

    def linear(self, name: str) -> Linear:
        """`name`.weight and `name`.bias."""
        return Linear(self.array(f"{name}.weight"), self.array(f"{name}.bias"))

    def norm(self, name: str) -> Norm:
        return Norm(self.array(f"{name}.weight"), self.array(f"{name}.bias"))

    def mlp(self, block: str) -> Mlp:
        """A block's feed-forward part."""
        widen, bias = self.array(f"{block}.mlp.0.weight"), self.array(f"{block}.mlp.0.bias")
        return Mlp(self.norm(f"{block}.mlp_ln"), Product(widen), bias, self.linear(f"{block}.mlp.2"))

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
