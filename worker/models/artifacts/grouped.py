"""Matrices that MLX quantised in groups, as the arrays that they stand for. Knows no names of weights."""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from spool.errors import WeightsMismatch

GROUPED = (".scales", ".biases")


def dequantise(
    tensors: Mapping[str, mx.array], config: Mapping[str, Any], source: str
) -> dict[str, mx.array]:
    """Tensors with every matrix that MLX quantised in groups as float32; the others as they are.

    `config` says under `quantization` how many bits and how large the groups are (as mlx-whisper's
    `convert.py` writes it). Raises WeightsMismatch that names the tensor which does not fit.
    """
    grouped = sorted(name.removesuffix(".scales") for name in tensors if name.endswith(".scales"))
    lonely = [
        name for name in tensors if name.endswith(".biases") and name.removesuffix(".biases") not in grouped
    ]
    if lonely:
        raise WeightsMismatch(f"{source}: {lonely[0]} has no scales beside it")
    if not grouped:
        return dict(tensors)
    stated = config.get("quantization")
    if not isinstance(stated, Mapping) or not {"bits", "group_size"} <= stated.keys():
        raise WeightsMismatch(
            f"{source}: {grouped[0]}.scales belongs to quantised weights, and the configuration does not say "
            f"under 'quantization' with how many 'bits' and which 'group_size'"
        )
    plain = {name: value for name, value in tensors.items() if not name.endswith(GROUPED)}
    for name in grouped:
        weight, scales, biases = (tensors.get(f"{name}.{part}") for part in ("weight", "scales", "biases"))
        if weight is None or scales is None or biases is None:
            missing = "weight" if weight is None else "biases"
            raise WeightsMismatch(f"{source}: {name}.{missing} is missing beside {name}.scales")
        try:
            plain[f"{name}.weight"] = mx.dequantize(
                weight,
                scales.astype(mx.float32),
                biases.astype(mx.float32),
                group_size=int(stated["group_size"]),
                bits=int(stated["bits"]),
            )
        except (ValueError, TypeError, RuntimeError) as cause:
            raise WeightsMismatch(f"{source}: {name}.weight is not quantised as stated: {cause}") from cause
    return plain
