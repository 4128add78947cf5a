"""A checkpoint's tensors as blocks of `worker.models.attention.layers`, by a table of a family's names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import mlx.core as mx

from worker.models.attention.decoder import Block
from worker.models.attention.layers import CrossAttention, Linear, Mlp, Norm, Product, SelfAttention
from worker.models.weights import Shape, linear_shapes, norm_shapes


@dataclass(frozen=True, slots=True)
class AttentionNames:
    """An attention's norm and linear layers, as they are named behind the name of their block."""

    norm: str
    query: str
    key: str
    value: str
    out: str
    key_bias: bool = field(default=True, kw_only=True)
    bias: bool = field(default=True, kw_only=True)

    def shapes(self, block: str, width: int, inside: int = 0) -> dict[str, Shape]:
        """The tensors of a block's attention, whose heads together are `inside` wide, 0 for `width`."""
        inside = inside or width
        layers = (self.query, self.key, self.value)
        shapes: dict[str, Shape] = {f"{block}.{layer}.weight": (inside, width) for layer in layers}
        shapes[f"{block}.{self.out}.weight"] = (width, inside)
        if self.bias:
            biased = layers if self.key_bias else (self.query, self.value)
            shapes |= {f"{block}.{layer}.bias": (inside,) for layer in biased}
            shapes[f"{block}.{self.out}.bias"] = (width,)
        return shapes | norm_shapes(f"{block}.{self.norm}", width)


@dataclass(frozen=True, slots=True)
class MlpNames:
    """A feed-forward part's norm and linear layers, as they are named behind the name of their block."""

    norm: str
    widen: str
    narrow: str
    activation: Literal["gelu", "relu"] = "gelu"

    def shapes(self, block: str, width: int, inner: int) -> dict[str, Shape]:
        """The tensors of a block's feed-forward part."""
        return {
            **linear_shapes(f"{block}.{self.widen}", inner, width),
            **linear_shapes(f"{block}.{self.narrow}", width, inner),
            **norm_shapes(f"{block}.{self.norm}", width),
        }


@dataclass(frozen=True, slots=True)
class BlockNames:
    """A decoder block's parts."""

    own: AttentionNames
    source: AttentionNames
    mlp: MlpNames

    def shapes(self, block: str, width: int, inner: int, inside: int = 0) -> dict[str, Shape]:
        """The tensors of a block."""
        own, source = self.own.shapes(block, width, inside), self.source.shapes(block, width, inside)
        return own | source | self.mlp.shapes(block, width, inner)


class Tensors:
    """Hands out a model's tensors by name, in the dtype that it computes in."""

    def __init__(self, tensors: Mapping[str, mx.array], dtype: mx.Dtype) -> None:
        self._tensors, self._dtype = tensors, dtype

    def array(self, name: str) -> mx.array:
        return self._tensors[name].astype(self._dtype)

    def linear(self, *names: str) -> Linear:
        """The layers of these names side by side; one that has no bias gets one of zeros."""
        weights = [self.array(f"{name}.weight") for name in names]
        biases = [
            self.array(f"{name}.bias")
            if f"{name}.bias" in self._tensors
            else mx.zeros(weight.shape[0], self._dtype)
            for name, weight in zip(names, weights, strict=True)
        ]
        if len(names) == 1:
            return Linear(weights[0], biases[0])
        return Linear(mx.concatenate(weights), mx.concatenate(biases))

    def product(self, *names: str) -> Product:
        """The layers of these names side by side, which have no biases."""
        weights = [self.array(f"{name}.weight") for name in names]
        return Product(weights[0] if len(names) == 1 else mx.concatenate(weights))

    def query(self, name: str, heads: int) -> Linear:
        """A projection to queries, with attention's scale: one over the root of a head's width."""
        plain = self.linear(name)
        scale = float((plain.weight.shape[0] // heads) ** -0.5)
        return Linear(plain.weight * scale, plain.bias * scale)

    def norm(self, name: str) -> Norm:
        return Norm(self.array(f"{name}.weight"), self.array(f"{name}.bias"))

    def self_attention(self, block: str, names: AttentionNames, heads: int) -> SelfAttention:
        """A block's attention to its own sequence."""
        query = self.query(f"{block}.{names.query}", heads)
        memory = self.linear(f"{block}.{names.key}", f"{block}.{names.value}")
        fused = Linear(
            mx.concatenate([query.weight, memory.weight]), mx.concatenate([query.bias, memory.bias])
        )
        return SelfAttention(self.norm(f"{block}.{names.norm}"), fused, self.linear(f"{block}.{names.out}"))

    def cross_attention(self, block: str, names: AttentionNames, heads: int) -> CrossAttention:
        """A block's attention to the encoder."""
        return CrossAttention(
            self.norm(f"{block}.{names.norm}"),
            self.query(f"{block}.{names.query}", heads),
            self.linear(f"{block}.{names.key}", f"{block}.{names.value}"),
            self.linear(f"{block}.{names.out}"),
        )

    def mlp(self, block: str, names: MlpNames) -> Mlp:
        """A block's feed-forward part."""
        widen = self.linear(f"{block}.{names.widen}")
        return Mlp(
            self.norm(f"{block}.{names.norm}"),
            Product(widen.weight),
            widen.bias,
            self.linear(f"{block}.{names.narrow}"),
            names.activation,
        )

    def block(self, name: str, names: BlockNames, heads: int) -> Block:
        """A decoder's block."""
        return Block(
            self.self_attention(name, names.own, heads),
            self.cross_attention(name, names.source, heads),
            self.mlp(name, names.mlp),
        )
