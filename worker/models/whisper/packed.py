"""Whisper's weights that must be unpacked first: OpenAI's `.pt` checkpoints, and matrices that MLX quantised
in groups. Knows neither names of layouts nor the network.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from spool.errors import ModelUnreadable, WeightsMismatch
from worker.models.artifacts.nemo import TorchCheckpoint
from worker.models.artifacts.nemo_files import BROKEN

TENSORS = "model_state_dict"
SIZES = "dims"
GROUPED = (".scales", ".biases")


def checkpoint_of(folder: Path) -> Path | None:
    """The `.pt` file of a folder that holds one and a tokenizer.json, but no config.json; None where there is
    none, or several."""
    if (folder / "config.json").is_file() or not folder.is_dir():
        return None
    files = sorted(folder.glob("*.pt"))
    return files[0] if len(files) == 1 and (folder / "tokenizer.json").is_file() else None


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, mx.array]]:
    """Sizes and tensors of OpenAI's checkpoint, without executing its pickle.

    Raises ModelUnreadable naming what the pickle asks for, or what is missing.
    """
    try:
        with path.open("rb") as file:
            checkpoint = TorchCheckpoint(file, str(path), tensors=TENSORS)
            sizes = checkpoint.others.get(SIZES)
            if not isinstance(sizes, Mapping):
                raise ModelUnreadable(f"it holds no {SIZES!r}, so it is no checkpoint of OpenAI's Whisper")
            return dict(sizes), {name: checkpoint.read(name) for name in checkpoint.shapes}
    except ModelUnreadable as cause:
        raise ModelUnreadable(f"{path}: {cause.message}") from cause
    except BROKEN as cause:
        raise ModelUnreadable(f"{path}: not a readable checkpoint: {cause}") from cause


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
