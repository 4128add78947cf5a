"""Opens a folder that holds a Whisper model, whichever of five layouts it follows, as arrays under OpenAI's
names.

    CTranslate2      model.bin (version 4 to 6, float16, float32 or quantised), config.json of settings
    Hugging Face     model.safetensors, whole or by index, `model.encoder.layers.0.self_attn.q_proj.weight`
    OpenAI           safetensors or npz, `encoder.blocks.0.attn.query.weight`, `mlp.0`
    OpenAI's .pt     one checkpoint of PyTorch's that holds the sizes beside such tensors; no config.json
    mlx-community    as OpenAI's but `mlp1`, `mlp2`, convolutions [out, 3, in], no encoder positions

Named tensors may be quantised in MLX's groups (`worker.models.artifacts.grouped`).

The layouts of named tensors are told apart by the names. A checkpoint is read without executing its pickle.
Every tensor that is missing, surplus or of another shape is named. Knows nothing of how the network computes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from spool.errors import ModelUnreadable, UnknownModel, WeightsMismatch
from worker.models.artifacts.ctranslate2 import Array, hub_names, read_binary
from worker.models.artifacts.grouped import bits_of
from worker.models.artifacts.safetensors import INDEX, read_tensors, sha256_of
from worker.models.artifacts.torch_checkpoint import open_checkpoint
from worker.models.attention.layers import sine_positions
from worker.models.configuration import read_json
from worker.models.grouped import PARTS
from worker.models.weights import check_shapes, packed_parts
from worker.models.whisper.config import DecodingSettings, WhisperDims, parse_dims, parse_settings
from worker.models.whisper.layouts import POSITIONS, dims_of, openai_names, shapes_of
from worker.models.whisper.tokenizer import WhisperTokenizer

CONFIG = "config.json"
GENERATION = "generation_config.json"
TOKENIZER = "tokenizer.json"
BINARY = "model.bin"
NAMED_WEIGHTS = ("model.safetensors", "weights.safetensors", "weights.npz")

# The output projection is the token table.
DERIVED = re.compile(r"^proj_out\.weight$|^alignment_heads$")


@dataclass(frozen=True, slots=True)
class WhisperArtifacts:
    """A model's files, read and held against each other.

    tensors: arrays in the dtype they were stored in, under OpenAI's names, convolutions [out, in, 3].
    Quantised ones are expanded, and beside it packed where they stay so. files: SHA-256 of the weights' and
    the tokenizer's file, by role. bits: of quantised weights, those of a weight in the file.
    """

    name: str
    dims: WhisperDims
    settings: DecodingSettings
    tokenizer: WhisperTokenizer
    tensors: dict[str, mx.array]
    files: Mapping[str, str]
    bits: int | None = None


def is_whisper_folder(folder: Path) -> bool:
    """Whether a folder's files say that it holds a Whisper, before anything large is read."""
    if checkpoint_of(folder) is not None:
        return True
    if not (folder / CONFIG).is_file():
        return False
    try:
        config = read_json(folder / CONFIG)
    except ModelUnreadable:
        return False
    return config.get("model_type") == "whisper" or "n_audio_state" in config or "suppress_ids" in config


def open_folder(folder: Path) -> WhisperArtifacts:
    """Reads a model's folder.

    Raises UnknownModel where there is none, ModelUnreadable where a file is missing, cut off or of another
    model, WeightsMismatch where the tensors are not those of the configuration.
    """
    if not folder.is_dir():
        raise UnknownModel(f"{folder}: no such folder")
    checkpoint = checkpoint_of(folder)
    if checkpoint is None and not (folder / CONFIG).is_file():
        raise UnknownModel(f"{folder}: holds no {CONFIG}, so no model")
    config = {} if checkpoint else read_json(folder / CONFIG)
    weights = checkpoint or _weights_file(folder)
    source, bits = str(weights), None
    if checkpoint:
        config, named = _read_checkpoint(checkpoint)
        dims = parse_dims(config, source)
    elif weights.name == BINARY:
        variables, bits = read_binary(weights, "WhisperSpec")
        heads = {side: _heads_of(side, variables, source) for side in ("encoder", "decoder")}
        named = openai_names({key: mx.array(value) for key, value in hub_names(variables, source).items()})
        dims = dims_of(named, heads, source)
        del variables
    else:
        dims = parse_dims(config, str(folder / CONFIG))
        stored = read_tensors(weights)
        bits = bits_of(stored)
        plain = {name: stored.read(name) for name in stored.shapes}
        packed = (packed_parts(stored, name, name) for name in plain)
        named = openai_names(plain | {key: part for parts in packed for key, part in parts.items()})
    tensors = check_tensors(named, dims, source)
    tokenizer = WhisperTokenizer.from_file(folder / TOKENIZER, dims.n_vocab)
    generation = folder / GENERATION
    # A checkpoint states sizes alone: what is to be suppressed follows from the tokenizer then.
    stated = generation if generation.is_file() else weights if checkpoint else folder / CONFIG
    settings = parse_settings(
        {} if stated == checkpoint else read_json(stated),
        dims,
        tokenizer.non_speech_tokens(),
        tokenizer.blank_token,
        str(stated),
    )
    read = {
        "weights": weights,
        "tokenizer": folder / TOKENIZER,
        "config": weights if checkpoint else folder / CONFIG,
        "settings": stated,
    }
    files = {role: sha256_of(path) for role, path in read.items()}
    return WhisperArtifacts(folder.resolve().name, dims, settings, tokenizer, tensors, files, bits)


def check_tensors(named: Mapping[str, mx.array], dims: WhisperDims, source: str) -> dict[str, mx.array]:
    """Those of `named` that a model of `dims` has. Raises WeightsMismatch that names what does not fit."""
    expected = shapes_of(dims)
    # mlx-community leaves out what can be computed; where it is stored, it is rounded as the weights are.
    named = {POSITIONS: sine_positions(dims.n_audio_ctx, dims.n_audio_state), **named}
    packed = {name: value for name, value in named.items() if name.endswith(PARTS)}
    shapes = {name: tuple(value.shape) for name, value in named.items() if name not in packed}
    check_shapes(expected, shapes, DERIVED, source)
    return packed | {name: named[name] for name in expected}


def checkpoint_of(folder: Path) -> Path | None:
    """The `.pt` file of a folder that holds one and a tokenizer.json, but no config.json; None where there is
    none, or several."""
    if (folder / CONFIG).is_file() or not folder.is_dir():
        return None
    files = sorted(folder.glob("*.pt"))
    return files[0] if len(files) == 1 and (folder / TOKENIZER).is_file() else None


def _read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, mx.array]]:
    """Sizes and tensors of OpenAI's checkpoint."""
    with open_checkpoint(path, "model_state_dict") as checkpoint:
        sizes = checkpoint.others.get("dims")
        if not isinstance(sizes, Mapping):
            raise ModelUnreadable("it holds no 'dims', so it is no checkpoint of OpenAI's Whisper")
        return dict(sizes), {name: checkpoint.read(name) for name in checkpoint.shapes}


def _heads_of(side: str, variables: Mapping[str, Array], source: str) -> int:
    heads = variables.get(f"{side}/num_heads")
    if heads is None or heads.ndim:
        raise WeightsMismatch(f"{source}: {side}/num_heads is missing or no number")
    return int(heads.item())


def _weights_file(folder: Path) -> Path:
    for name in (BINARY, *NAMED_WEIGHTS, INDEX):
        if (folder / name).is_file():
            return folder / name
    known = ", ".join((BINARY, *NAMED_WEIGHTS))
    raise ModelUnreadable(f"{folder}: the weights are missing; one of {known} is needed")
