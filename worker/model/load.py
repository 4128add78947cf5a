"""Finds a model and loads it: a folder, a `.nemo` file, or an id on the Hugging Face hub.

A folder holds `config.json` (or `model_config.yaml`), `model.safetensors` and, where the vocabulary alone is
not enough, `tokenizer.model`. Knows where things lie; what they mean is told by `config`, `weights` and
`checkpoint`.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import mlx.core as mx
import numpy as np

from spool.errors import ModelUnreadable, UnknownModel
from worker.model.config import ModelConfig, read_config
from worker.model.features import FeatureExtractor, Float32
from worker.model.model import AsrModel, Network
from worker.model.tokenizer import Tokenizer
from worker.model.weights import Shape, default_dtype, install

HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[\w.-]+$")
HUB_FILES = ["config.json", "model_config.yaml", "*.safetensors", "*.nemo", "*tokenizer.model"]
CONFIG_NAMES = ("config.json", "model_config.yaml")
WEIGHTS_NAME = "model.safetensors"
TOKENIZER_NAME = "tokenizer.model"


def load_model(path: str | Path, dtype: mx.Dtype | None = None) -> AsrModel:
    """Loads a model in `dtype` (default: bfloat16 on a GPU, float32 on a CPU).

    Raises UnknownModel when nothing is there, ModelUnreadable when its files cannot be read, WeightsMismatch
    when the weights are not those of its configuration.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        return _load_folder(place, dtype or default_dtype())
    if place.is_file():
        return _load_nemo(place, dtype or default_dtype())
    if isinstance(path, str) and HUB_ID.match(path):
        return _load_hub(path, dtype or default_dtype())
    raise UnknownModel(f"{path}: no folder, no .nemo file and no hub id of the form owner/name")


def _load_folder(folder: Path, dtype: mx.Dtype, name: str | None = None) -> AsrModel:
    config_path = next((folder / known for known in CONFIG_NAMES if (folder / known).is_file()), None)
    if config_path is None:
        raise UnknownModel(f"{folder}: holds no config.json, so no model")
    config = read_config(config_path)
    tokenizer = _tokenizer(config, next(iter(sorted(folder.glob(f"*{TOKENIZER_NAME}"))), None), str(folder))
    weights = folder / WEIGHTS_NAME
    tensors = _safetensors(weights)
    shapes = {key: tuple(value.shape) for key, value in tensors.items()}
    return _build(config, tokenizer, shapes, tensors.__getitem__, dtype, name or folder.name, weights)


def _load_nemo(path: Path, dtype: mx.Dtype) -> AsrModel:
    raise ModelUnreadable(f"{path}: .nemo files are not read yet")


def _load_hub(hub_id: str, dtype: mx.Dtype) -> AsrModel:
    raise UnknownModel(f"{hub_id}: the hub is not asked yet")


def _build(
    config: ModelConfig,
    tokenizer: Tokenizer,
    shapes: Mapping[str, Shape],
    read: Callable[[str], mx.array],
    dtype: mx.Dtype,
    name: str,
    weights: Path,
) -> AsrModel:
    network = Network(config, tokenizer.vocabulary_size)
    install(network, shapes, read, dtype, str(weights))
    network.encoder.fold(dtype)
    network.eval()
    mx.eval(network.parameters())
    features = FeatureExtractor(
        config.preprocessor,
        filters=_front_end("preprocessor.featurizer.fb", shapes, read),
        window=_front_end("preprocessor.featurizer.window", shapes, read),
    )
    return AsrModel(config, network, tokenizer, features, name=name, sha256=_sha256(weights), dtype=dtype)


def _front_end(name: str, shapes: Mapping[str, Shape], read: Callable[[str], mx.array]) -> Float32 | None:
    if name not in shapes:
        return None
    stored: Float32 = np.array(read(name).astype(mx.float32))
    return stored.reshape(stored.shape[-2:]) if stored.ndim > 1 else stored


def _safetensors(path: Path) -> dict[str, mx.array]:
    if not path.is_file():
        raise ModelUnreadable(f"{path}: the weights are missing")
    try:
        loaded = mx.load(str(path))
    except (RuntimeError, ValueError, OSError) as cause:
        raise ModelUnreadable(f"{path}: not a readable safetensors file: {cause}") from cause
    if not isinstance(loaded, dict):
        raise ModelUnreadable(f"{path}: holds no named tensors")
    return loaded


def _tokenizer(config: ModelConfig, path: Path | None, name: str) -> Tokenizer:
    if path is not None:
        return Tokenizer.from_file(path)
    if config.vocabulary:
        return Tokenizer(config.vocabulary)
    raise ModelUnreadable(f"{name}: neither a tokenizer.model nor a vocabulary in the configuration")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
