"""Matrices that MLX quantised in affine groups, as they lie in memory, and products with them.

A matrix [out, in] is `packed`, uint32 [out, in · bits / 32], beside `scales` and `biases` [out, in / group]:
a weight is its integer times the scale of its group, plus the bias of its group. On a GPU they stay packed.
On a CPU they are expanded when a model is loaded, because MLX's product with packed ones takes 5 to 50 times
as long there (ops/bench/LOG.md).
"""

import mlx.core as mx
from mlx import nn

PARTS = (".packed", ".scales", ".biases")
"""What stands for a matrix behind its layer's name, where its weights stay packed."""


def stays_packed() -> bool:
    """Whether this device multiplies with packed weights."""
    return mx.default_device() != mx.Device(mx.cpu)


def expand_groups(
    packed: mx.array, scales: mx.array, biases: mx.array, group_size: int, bits: int
) -> mx.array:
    """The matrix [out, in], computed in float32; float16 where the scales are, so that a CPU that packs
    float16 reads half as much."""
    scale, bias = scales.astype(mx.float32), biases.astype(mx.float32)
    weight = mx.dequantize(packed, scale, bias, group_size=group_size, bits=bits)
    return weight.astype(mx.float16) if scales.dtype == mx.float16 else weight


def grouped_product(x: mx.array, packed: mx.array, scales: mx.array, biases: mx.array) -> mx.array:
    """x [..., in] · weightᵀ -> [..., out]; bits and group size follow from the shapes."""
    inputs = x.shape[-1]
    return mx.quantized_matmul(
        x,
        packed,
        scales,
        biases,
        transpose=True,
        group_size=inputs // scales.shape[-1],
        bits=32 * packed.shape[-1] // inputs,
    )


class GroupedLinear(nn.Linear):
    """A linear layer that takes packed weights too: `weight` is then `packed`, beside `scales` and
    `biases`, as MLX's own quantised layer has them."""

    @property
    def is_packed(self) -> bool:
        return "scales" in self

    @property
    def dtype(self) -> mx.Dtype:
        """That of its products."""
        dtype: mx.Dtype = self.scales.dtype if self.is_packed else self.weight.dtype
        return dtype

    def __call__(self, x: mx.array) -> mx.array:
        """[..., inputs] -> [..., outputs]."""
        if not self.is_packed:
            plain: mx.array = super().__call__(x)
            return plain
        out = grouped_product(x, self.weight, self.scales, self.biases)
        return out + self.bias if "bias" in self else out


def share_rows(parts: list[GroupedLinear], whole: GroupedLinear) -> None:
    """Makes `whole` the layers side by side, whose weights become views of its own: no second copy stays.
    All of them are packed, or none is."""
    for kind in ("weight", "scales", "biases") if parts[0].is_packed else ("weight",):
        whole[kind] = mx.concatenate([part[kind] for part in parts])
        mx.eval(whole[kind])
        for part, own in zip(parts, mx.split(whole[kind], len(parts)), strict=True):
            mx.eval(own)
            part[kind] = own
    if "bias" in whole:
        whole.bias = mx.concatenate([part.bias for part in parts])
        mx.eval(whole.bias)
