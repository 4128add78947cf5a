"""A checkpoint's tensors as blocks of `worker.models.attention.layers`, by a table of a family's names."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import mlx.core as mx

from worker.models.attention.decoder import Block
from worker.models.attention.layers import (
    CrossAttention,
    Grouped,
    Linear,
    Mlp,
    Norm,
    Product,
    SelfAttention,
    pack_for_frames,
    pack_parts,
)
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
    """Takes a model's tensors out of a dict by name, in the dtype that it computes in. tensors: as
    `worker.models.weights.install` returns them."""

    def __init__(self, tensors: dict[str, mx.array], dtype: mx.Dtype) -> None:
        self._tensors, self._dtype = tensors, dtype

    def array(self, name: str) -> mx.array:
        """Once each: a model would be in memory twice if what its blocks were made of stayed."""
        return self._tensors.pop(name).astype(self._dtype)

    def linear(self, *names: str) -> Linear:
        """The layers of these names side by side; one that has no bias gets one of zeros. Quantised ones are
        expanded."""
        weights = [self.array(f"{name}.weight") for name in names]
        biases = [self._bias(name, weight.shape[0]) for name, weight in zip(names, weights, strict=True)]
        return _side_by_side([Linear(*each) for each in zip(weights, biases, strict=True)])

    def product(self, *names: str) -> Product | Grouped:
        """The layers of these names side by side, which have no biases; packed as in `affine`."""
        if self._stay_packed(names):
            return replace(self._group(names, 0), bias=None)
        weights = [self.array(f"{name}.weight") for name in names]
        return Product(weights[0] if len(names) == 1 else mx.concatenate(weights))

    def affine(self, *names: str, query_heads: int = 0) -> Linear | Grouped:
        """As `linear`, packed where all of them stay so, in the same bits. query_heads: the first projects to
        queries of so many heads, with attention's scale: one over the root of a head's width."""
        if self._stay_packed(names):
            return self._group(names, query_heads)
        first, *others = (self.linear(name) for name in names)
        if query_heads:
            scale = _attention_scale(first.bias.shape[0], query_heads)
            first = Linear(first.weight * scale, first.bias * scale)
        return _side_by_side([first, *others])

    def _group(self, names: Sequence[str], query_heads: int) -> Grouped:
        packed = [self._tensors.pop(f"{name}.packed") for name in names]
        scales, biases = ([self.array(f"{name}.{kind}") for name in names] for kind in ("scales", "biases"))
        bias = [self._bias(name, each.shape[0]) for name, each in zip(names, packed, strict=True)]
        if query_heads:
            scale = _attention_scale(bias[0].shape[0], query_heads)
            scales[0], biases[0], bias[0] = scales[0] * scale, biases[0] * scale, bias[0] * scale
        return Grouped(*(mx.concatenate(parts) for parts in (packed, scales, biases, bias)))

    def _stay_packed(self, names: Sequence[str]) -> bool:
        """Whether all of them have packed weights and scales, as wide as each other's."""
        if any(f"{name}.packed" not in self._tensors for name in names):
            return False
        kinds = ("packed", "scales")
        return len({tuple(self._tensors[f"{name}.{kind}"].shape[1] for kind in kinds) for name in names}) == 1

    def _bias(self, name: str, outputs: int) -> mx.array:
        if f"{name}.bias" in self._tensors:
            return self.array(f"{name}.bias")
        return mx.zeros(outputs, self._dtype)

    def norm(self, name: str) -> Norm:
        return Norm(self.array(f"{name}.weight"), self.array(f"{name}.bias"))

    def self_attention(self, block: str, names: AttentionNames, heads: int) -> SelfAttention:
        """A block's attention to its own sequence."""
        layers = (f"{block}.{name}" for name in (names.query, names.key, names.value))
        return SelfAttention(
            self.norm(f"{block}.{names.norm}"),
            self.affine(*layers, query_heads=heads),
            self.affine(f"{block}.{names.out}"),
        )

    def cross_attention(self, block: str, names: AttentionNames, heads: int) -> CrossAttention:
        """A block's attention to the encoder."""
        return CrossAttention(
            self.norm(f"{block}.{names.norm}"),
            self.affine(f"{block}.{names.query}", query_heads=heads),
            self.affine(f"{block}.{names.key}", f"{block}.{names.value}"),
            self.affine(f"{block}.{names.out}"),
        )

    def mlp(self, block: str, names: MlpNames) -> Mlp:
        """A block's feed-forward part."""
        widen = self.affine(f"{block}.{names.widen}")
        assert widen.bias is not None
        return Mlp(
            self.norm(f"{block}.{names.norm}"),
            replace(widen, bias=None) if isinstance(widen, Grouped) else Product(widen.weight),
            widen.bias,
            self.affine(f"{block}.{names.narrow}"),
            names.activation,
        )

    def encoder_block(
        self, name: str, own: AttentionNames, mlp: MlpNames, heads: int
    ) -> tuple[SelfAttention, Mlp]:
        """An encoder's block, its products packed for whole windows of frames."""
        attention = pack_parts(self.self_attention(name, own, heads), pack_for_frames)
        return attention, pack_parts(self.mlp(name, mlp), pack_for_frames)

    def block(self, name: str, names: BlockNames, heads: int) -> Block:
        """A decoder's block, its products packed."""
        block = Block(
            self.self_attention(name, names.own, heads),
            self.cross_attention(name, names.source, heads),
            self.mlp(name, names.mlp),
        )
        return block.pack()


def _side_by_side(layers: Sequence[Linear]) -> Linear:
    if len(layers) == 1:
        return layers[0]
    return Linear(
        mx.concatenate([layer.weight for layer in layers]), mx.concatenate([layer.bias for layer in layers])
    )


def _attention_scale(outputs: int, heads: int) -> float:
    return float((outputs // heads) ** -0.5)
