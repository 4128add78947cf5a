"""A Whisper with its matrices quantised in MLX's groups, as mlx-whisper's converter writes it.

    python -m ops.accuracy.whisper.grouped MODEL FOLDER [--bits 8] [--group 64]
    spool-worker confirm --quality --model FOLDER --against MODEL

Every linear layer and the token table; convolutions, norms and biases stay in float32.
"""

import argparse
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import mlx.core as mx
import numpy as np

from ops.bench.peers.whisper.layouts import mlx_names
from worker.models.load import model_files
from worker.models.whisper.artifacts import open_folder


def main() -> None:
    """Write the folder and print its size beside the model's."""
    parser = argparse.ArgumentParser(prog="python -m ops.accuracy.whisper.grouped", description=__doc__)
    parser.add_argument("model", help="a name of the catalogue, or a folder")
    parser.add_argument("folder", type=Path, help="folder to write")
    parser.add_argument("--bits", type=int, default=8)
    parser.add_argument("--group", type=int, default=64)
    options = parser.parse_args()
    source = model_files(options.model).path
    artifacts = open_folder(source)
    plain = {name: np.array(value.astype(mx.float32)) for name, value in artifacts.tensors.items()}
    tensors: dict[str, mx.array] = {}
    for name, value in mlx_names(plain).items():
        if value.ndim == 2 and name.endswith(".weight"):
            parts = mx.quantize(mx.array(value), group_size=options.group, bits=options.bits)
            stem = name.removesuffix("weight")
            tensors |= {
                f"{stem}{kind}": part
                for kind, part in zip(("weight", "scales", "biases"), parts, strict=True)
            }
        else:
            tensors[name] = mx.array(value)
    options.folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(options.folder / "weights.safetensors"), tensors)
    settings = artifacts.settings
    config = {
        **asdict(artifacts.dims),
        "quantization": {"group_size": options.group, "bits": options.bits},
        "suppress_tokens": settings.suppress,
        "begin_suppress_tokens": settings.suppress_first,
        "alignment_heads": settings.alignment_heads,
    }
    (options.folder / "config.json").write_text(json.dumps(config))
    shutil.copy(source / "tokenizer.json", options.folder)
    sizes = [sum(value.nbytes for value in each.values()) for each in (artifacts.tensors, tensors)]
    print(f"{options.folder}: {sizes[1] / 1e6:.1f} MB, {options.model}: {sizes[0] / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
