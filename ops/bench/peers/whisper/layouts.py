"""A model's folder in the layouts that the peers read: mlx-whisper's and openai-whisper's, in float32."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from worker.models.whisper.artifacts import open_folder
from worker.models.whisper.network import POSITIONS


def write_layouts(model: Path, folder: Path) -> dict[str, Path]:
    """Writes `folder`/openai (dims.json, weights.npz) and `folder`/mlx (config.json, weights.npz) unless they
    are there -> the folder of each engine. faster-whisper reads the model's own, in CTranslate2's layout."""
    folders = {
        "spool": model,
        "faster-whisper": model,
        "mlx-whisper": folder / "mlx",
        "openai-whisper": folder / "openai",
    }
    if (folder / "finished").is_file():
        return folders
    artifacts = open_folder(model)
    dims = json.dumps(asdict(artifacts.dims))
    arrays: dict[str, Any] = {
        name: np.array(value.astype(mx.float32)) for name, value in artifacts.tensors.items()
    }
    for part, name in (("openai", "dims.json"), ("mlx", "config.json")):
        (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / part / name).write_text(dims)
    np.savez(folder / "openai" / "weights.npz", **arrays)
    mlx_arrays: dict[str, Any] = mlx_names(arrays)
    np.savez(folder / "mlx" / "weights.npz", **mlx_arrays)
    (folder / "finished").touch()
    return folders


def mlx_names(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """OpenAI's names to mlx-whisper's; convolutions [out, in, 3] to [out, 3, in], no encoder positions."""
    return {
        name.replace(".mlp.0.", ".mlp1.").replace(".mlp.2.", ".mlp2."): (
            np.ascontiguousarray(value.swapaxes(1, 2)) if value.ndim == 3 else value
        )
        for name, value in arrays.items()
        if name != POSITIONS
    }
