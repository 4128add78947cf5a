"""Opens a folder that holds a Whisper model, whichever of five layouts it follows.

    CTranslate2      model.bin (version 4 to 6, float16, float32 or quantised), config.json of settings
    Hugging Face     model.safetensors, whole or by index
    OpenAI           safetensors or npz
    OpenAI's .pt     one checkpoint of PyTorch's that holds the sizes beside the tensors; no config.json
    mlx-community    safetensors or npz, config.json of OpenAI's sizes

Named tensors may be quantised in MLX's groups (`worker.models.artifacts.grouped`); whose names they have does
not matter (`worker.models.whisper.network`). A checkpoint is read without executing its pickle.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from spool.errors import ModelUnreadable, WeightsMismatch
from worker.models.artifacts.ctranslate2 import Array, hub_names, read_binary
from worker.models.artifacts.grouped import bits_of
from worker.models.artifacts.hub_folder import CONFIG, TOKENIZER, HubFolder, weights_digest
from worker.models.artifacts.safetensors import INDEX, Safetensors, read_tensors, sha256_of
from worker.models.artifacts.tensors import Weights
from worker.models.artifacts.torch_checkpoint import open_checkpoint
from worker.models.attention.generation import GENERATION
from worker.models.configuration import in_file
from worker.models.whisper.config import DecodingSettings, WhisperDims, parse_dims, parse_settings
from worker.models.whisper.network import read_weights
from worker.models.whisper.tokenizer import WhisperTokenizer

BINARY = "model.bin"
NAMED_WEIGHTS = ("model.safetensors", "weights.safetensors", "weights.npz")


@dataclass(frozen=True, slots=True)
class WhisperArtifacts:
    """A model's files, read and held against each other.

    tensors: those of `read_weights`. files: SHA-256 by role. bits: of quantised weights, those of a weight in
    the file.
    """

    name: str
    dims: WhisperDims
    settings: DecodingSettings
    tokenizer: WhisperTokenizer
    tensors: dict[str, mx.array]
    files: Mapping[str, str]
    bits: int | None = None


def open_folder(path: Path) -> WhisperArtifacts:
    """Reads a model's folder.

    Raises UnknownModel where there is none, ModelUnreadable where a file is missing, cut off or of another
    model, WeightsMismatch where the tensors are not those of the configuration.
    """
    folder, checkpoint = HubFolder(path), checkpoint_of(path)
    config = {} if checkpoint else folder.config
    weights = checkpoint or _weights_file(path)
    dims, stored, bits = _read_stored(weights, config)
    tensors = read_weights(stored, dims, str(weights))
    tokenizer = WhisperTokenizer.from_folder(folder, dims.n_vocab)
    # A checkpoint states sizes alone: what is to be suppressed follows from the tokenizer then.
    sizes = checkpoint or path / CONFIG
    stated = path / GENERATION if (path / GENERATION).is_file() else sizes
    with in_file(stated):
        settings = parse_settings(
            config if stated == sizes else folder.generation,
            dims,
            tokenizer.non_speech_tokens(),
            tokenizer.encode(" ")[0],
        )
    files = {"weights": weights_digest(weights)} | {
        role: sha256_of(file)
        for role, file in (("tokenizer", path / TOKENIZER), ("config", sizes), ("settings", stated))
    }
    return WhisperArtifacts(path.resolve().name, dims, settings, tokenizer, tensors, files, bits)


def checkpoint_of(folder: Path) -> Path | None:
    """The `.pt` file of a folder that holds one and a tokenizer.json, but no config.json; None where there is
    none, or several."""
    if (folder / CONFIG).is_file() or not (folder / TOKENIZER).is_file():
        return None
    files = list(folder.glob("*.pt"))
    return files[0] if len(files) == 1 else None


def _weights_file(folder: Path) -> Path:
    for name in (BINARY, *NAMED_WEIGHTS, INDEX):
        if (folder / name).is_file():
            return folder / name
    known = ", ".join((BINARY, *NAMED_WEIGHTS))
    raise ModelUnreadable(f"{folder}: the weights are missing; one of {known} is needed")


def _read_stored(path: Path, config: Mapping[str, Any]) -> tuple[WhisperDims, Weights, int | None]:
    """The dimensions, the tensors, and the bits of quantised ones, of a file with the configuration beside
    it."""
    source = str(path)
    if path.suffix == ".pt":
        with open_checkpoint(path, "model_state_dict") as checkpoint:
            sizes = checkpoint.others.get("dims")
            if not isinstance(sizes, Mapping):
                raise ModelUnreadable("it holds no 'dims', so it is no checkpoint of OpenAI's Whisper")
            tensors = {name: checkpoint.read(name) for name in checkpoint.shapes}
        return parse_dims(sizes, source), Safetensors(tensors), None
    if path.name == BINARY:
        variables, bits = read_binary(path, "WhisperSpec")
        tensors = {name: mx.array(value) for name, value in hub_names(variables, source).items()}
        return parse_dims(_sizes_of(variables, source), source), Safetensors(tensors), bits
    dims = parse_dims(config, str(path.parent / CONFIG))
    weights = read_tensors(path)
    return dims, weights, bits_of(weights)


def _sizes_of(variables: Mapping[str, Array], source: str) -> dict[str, int]:
    """The dimensions by Hugging Face's names, from the variables of a CTranslate2 binary."""

    def variable(name: str, rank: int) -> Array:
        value = variables.get(name)
        if value is None or value.ndim != rank:
            raise WeightsMismatch(f"{source}: {name} is missing or has another rank than {rank}")
        return value

    def layers(side: str) -> int:
        numbers = (re.match(rf"{side}/layer_(\d+)/", name) for name in variables)
        return 1 + max((int(number[1]) for number in numbers if number), default=-1)

    tokens, width = variable("decoder/embeddings/weight", 2).shape
    return {
        "num_mel_bins": variable("encoder/conv1/weight", 3).shape[1],
        "max_source_positions": len(variable("encoder/position_encodings/encodings", 2)),
        "max_target_positions": len(variable("decoder/position_encodings/encodings", 2)),
        "d_model": width,
        "encoder_attention_heads": int(variable("encoder/num_heads", 0)),
        "decoder_attention_heads": int(variable("decoder/num_heads", 0)),
        "encoder_layers": layers("encoder"),
        "decoder_layers": layers("decoder"),
        "vocab_size": tokens,
    }
