"""Weights of which MLX quantised some matrices in groups: `X.weight` packed, `X.scales` and `X.biases` beside
it, as mlx-community publishes them. Knows no names of weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import mlx.core as mx

from spool.errors import WeightsMismatch
from worker.models.artifacts.tensors import Shape, Weights
from worker.models.grouped import expand_groups

GROUPED = (".scales", ".biases")
BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)


class Grouping(NamedTuple):
    """How a matrix is quantised."""

    group_size: int
    bits: int


@dataclass(frozen=True, slots=True)
class GroupedWeights:
    """Named tensors, quantised matrices under the names and shapes that they stand for. `groupings`: of each
    layer that is quantised."""

    stored: Weights
    shapes: Mapping[str, Shape]
    groupings: Mapping[str, Grouping]
    source: str

    @property
    def bits(self) -> int:
        """The fewest of any matrix."""
        return min(each.bits for each in self.groupings.values())

    def read(self, name: str) -> mx.array:
        """One of them; a quantised matrix expanded, as `expand_groups` does it."""
        layer = name.removesuffix(".weight")
        if layer == name or layer not in self.groupings:
            return self.stored.read(name)
        packed, scales, biases = self.parts(layer)
        return expand_groups(packed, scales, biases, *self.groupings[layer])

    def parts(self, layer: str) -> tuple[mx.array, mx.array, mx.array]:
        """Packed weights, scales and biases of a layer that is quantised. Raises WeightsMismatch."""
        packed, scales, biases = (
            self.stored.read(f"{layer}.{kind}") for kind in ("weight", "scales", "biases")
        )
        if packed.dtype != mx.uint32:
            dtype = str(packed.dtype).removeprefix("mlx.core.")
            raise WeightsMismatch(
                f"{self.source}: {layer}.weight has scales beside it, but holds {dtype}, not packed uint32"
            )
        return packed, scales, biases


def open_groups(stored: Weights, stated: object, source: str) -> Weights:
    """The weights with every quantised matrix under the shape that it stands for; as they are if none is.

    stated: the configuration's `quantization`, `group_size` and `bits`, and under a layer's name its own.
    Raises WeightsMismatch that names the first tensor which does not fit.
    """
    shapes = stored.shapes
    layers = sorted(name.removesuffix(".scales") for name in shapes if name.endswith(".scales"))
    lonely = [name for name in shapes if name.endswith(".biases") and f"{name[:-7]}.scales" not in shapes]
    if lonely:
        raise WeightsMismatch(f"{source}: {lonely[0]} has no scales beside it")
    if not layers:
        return stored
    if not isinstance(stated, Mapping) or not {"bits", "group_size"} <= stated.keys():
        raise WeightsMismatch(
            f"{source}: {layers[0]}.scales belongs to quantised weights, and the configuration does not say "
            f"under 'quantization' with how many 'bits' and which 'group_size'"
        )
    groupings = {layer: _grouping(stated, layer, source) for layer in layers}
    hidden = {f"{layer}.{kind}" for layer in layers for kind in ("scales", "biases")}
    plain = {name: shape for name, shape in shapes.items() if name not in hidden}
    for layer, grouping in groupings.items():
        plain[f"{layer}.weight"] = _expanded_shape(shapes, layer, grouping, source)
    return GroupedWeights(stored, plain, groupings, source)


def bits_of(weights: Weights) -> int | None:
    """The fewest bits that a matrix is quantised with, None if none is."""
    return weights.bits if isinstance(weights, GroupedWeights) else None


def _grouping(stated: Mapping[str, Any], layer: str, source: str) -> Grouping:
    own = stated.get(layer)
    chosen = own if isinstance(own, Mapping) else stated
    mode, size, bits = chosen.get("mode", "affine"), chosen.get("group_size"), chosen.get("bits")
    if mode != "affine" or size not in GROUP_SIZES or bits not in BITS:
        raise WeightsMismatch(
            f"{source}: {layer} is quantised in mode {mode!r} with {bits!r} bits in groups of {size!r}; "
            f"this engine reads mode 'affine', {_choice(BITS)} bits and groups of {_choice(GROUP_SIZES)}"
        )
    return Grouping(size, bits)


def _choice(values: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, values[:-1]))} or {values[-1]}"


def _expanded_shape(shapes: Mapping[str, Shape], layer: str, grouping: Grouping, source: str) -> Shape:
    for kind in ("weight", "biases"):
        if f"{layer}.{kind}" not in shapes:
            raise WeightsMismatch(f"{source}: {layer}.{kind} is missing beside {layer}.scales")
    weight, scales, biases = (shapes[f"{layer}.{kind}"] for kind in ("weight", "scales", "biases"))
    columns = scales[-1] * grouping.group_size if scales else 0
    if len(scales) != 2 or biases != scales or weight != (scales[0], columns * grouping.bits // 32):
        raise WeightsMismatch(
            f"{source}: {layer}.weight is not quantised as stated, with {grouping.bits} bits in groups of "
            f"{grouping.group_size}: its shape is {list(weight)}, that of its scales {list(scales)} and that "
            f"of its biases {list(biases)}"
        )
    return (scales[0], columns)
