"""NeMo's answers, the small model they are of, and tiny random models in both layouts."""

import io
import json
import tarfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.utils
import numpy as np
import yaml

from ops.testbed.torch_checkpoint import handmade
from worker.models import (
    Canary,
    CanaryConfig,
    CanaryModel,
    CanaryTokenizer,
    ConformerEncoder,
    EncodedBatch,
    EncodedWindow,
    ModelFiles,
    NemoDecoder,
    parse_canary,
    read_stored,
)
from worker.models.attention.nemo_decoder import TABLE

GOLDEN = Path(__file__).parents[3] / "golden" / "canary.npz"
SINGLE, FLASH = "aed_v2", "aed_small_flash"
EMBEDDING = "transf_decoder._embedding.token_embedding.weight"
POSITIONS = 160


@cache
def golden() -> dict[str, np.ndarray]:
    return dict(np.load(GOLDEN))


def raw(model: str, name: str) -> bytes:
    return golden()[f"{model}/{name}"].tobytes()


@cache
def config(model: str) -> CanaryConfig:
    parsed = parse_canary(raw(model, "config"), model)
    return replace(parsed, decoder=replace(parsed.decoder, max_sequence_length=POSITIONS))


@cache
def tokenizer(model: str) -> CanaryTokenizer:
    section = config(model).tokenizer
    named = section["langs"] if section["type"] == "agg" else {"": section}
    models = {key: raw(model, part["model_path"].removeprefix("nemo:")) for key, part in named.items()}
    return CanaryTokenizer(models, model)


@cache
def head() -> NemoDecoder:
    tensors = {key[7:]: mx.array(value) for key, value in golden().items() if key.startswith("tensor/")}
    tensors[TABLE] = tensors[EMBEDDING]
    parts = config(SINGLE).parts(tokenizer(SINGLE).vocabulary_size)
    return NemoDecoder(parts, tensors, mx.float32, tokenizer(SINGLE).eos)


def window(frames: np.ndarray, decoder: NemoDecoder) -> EncodedWindow:
    rows = mx.array(frames)[None]
    length = np.array([len(frames)], np.int32)
    return EncodedWindow(EncodedBatch(rows, length, decoder.cross_memory(rows), length), 0)


def tiny_tree(model: str = SINGLE) -> dict[str, Any]:
    """The configuration of a tiny model with the tokenizers of a golden one."""
    tree: dict[str, Any] = yaml.safe_load(raw(model, "config"))
    tree["encoder"] |= {"n_layers": 1, "d_model": 32, "n_heads": 2, "subsampling_conv_channels": 8}
    tree["transf_decoder"]["config_dict"] |= {
        "hidden_size": 64,
        "inner_size": 96,
        "num_layers": 2,
        "num_attention_heads": 2,
        "max_sequence_length": POSITIONS,
    }
    tree["model_defaults"] |= {"asr_enc_hidden": 32, "lm_enc_hidden": 64, "lm_dec_hidden": 64}
    return tree


@cache
def tiny_tensors(model: str = SINGLE) -> dict[str, np.ndarray]:
    """Random weights as NeMo stores them."""
    parsed = parse_canary(json.dumps(tiny_tree(model)).encode(), model)
    encoder: Any = mlx.utils.tree_flatten(ConformerEncoder(parsed.encoder).parameters())
    shapes = {
        stored.names[0]: stored.shape
        for name, value in encoder
        for stored in read_stored(f"encoder.{name}", tuple(value.shape), False)
    }
    shapes |= parsed.parts(tokenizer(model).vocabulary_size).shapes
    generator = np.random.default_rng(7)
    tensors = {}
    for name, shape in shapes.items():
        values = generator.normal(size=shape).astype(np.float32) * (1.2 / shape[-1] ** 0.5)
        is_scale = "norm" in name and name.endswith("weight")
        tensors[name] = np.abs(values) + 1 if is_scale or name.endswith("running_var") else values
    tensors[TABLE] = tensors[EMBEDDING] = tensors[EMBEDDING] * 6
    # An end that is likely now and then: searches then end at unlike lengths.
    tensors["log_softmax.mlp.layer0.bias"][tokenizer(model).eos] += 3
    return tensors


def tokenizer_files(model: str) -> dict[str, bytes]:
    names = [key.removeprefix(f"{model}/") for key in golden() if key.startswith(f"{model}/")]
    return {name: raw(model, name) for name in names if name != "config"}


def write_folder(folder: Path, model: str = SINGLE, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(tiny_tree(model) | changes))
    for name, content in tokenizer_files(model).items():
        (folder / name).write_bytes(content)
    tensors = {name: mx.array(value) for name, value in tiny_tensors(model).items()}
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)
    return folder


def write_archive(path: Path, model: str = SINGLE) -> Path:
    stored = {
        name: ("FloatStorage", value.ravel(), 0, value.shape, tuple(step // 4 for step in value.strides))
        for name, value in tiny_tensors(model).items()
    }
    files = {
        "model_config.yaml": yaml.safe_dump(tiny_tree(model), sort_keys=False).encode(),
        "model_weights.ckpt": handmade(stored),
    }
    with tarfile.open(path, "w") as archive:
        for name, content in (files | tokenizer_files(model)).items():
            entry = tarfile.TarInfo(f"./{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def load(path: Path) -> CanaryModel:
    files = ModelFiles(path, path.stem)
    assert Canary().matches(files)
    return Canary().load(files, mx.float32)


def sound(seconds: float, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    time = np.arange(int(seconds * 16_000)) / 16_000
    tones = sum(np.sin(2 * np.pi * pitch * time) for pitch in generator.uniform(80, 3000, 5))
    return (0.05 * tones + 0.02 * generator.normal(size=len(time))).astype(np.float32)
