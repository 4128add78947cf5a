"""Finds a model and loads it: a folder, a `.nemo` file, or an id on the Hugging Face hub.

A folder holds `config.json` (or `model_config.yaml`), `model.safetensors` and, where the vocabulary alone is
not enough, `tokenizer.model`. Knows where things lie; what they mean is told by `config`, `weights` and
`checkpoint`.
"""

import hashlib
import re
from pathlib import Path

import huggingface_hub
import mlx.core as mx
import numpy as np
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from kernels.runtime.device import compiled_for_cpu
from spool.errors import ModelUnreadable, UnknownModel
from worker.models.artifacts.nemo import open_nemo
from worker.models.artifacts.safetensors import Weights, read_tensors
from worker.models.features import FeatureExtractor, Float32
from worker.models.nemo.config import ModelConfig, parse_config, read_config
from worker.models.nemo.model import AsrModel, Network
from worker.models.tokenizer import Tokenizer
from worker.models.weights import Shape, default_dtype, install

HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[\w.-]+$")
HUB_FILES = ["config.json", "model.safetensors", "*tokenizer.model"]
CONFIG_NAMES = ("config.json", "model_config.yaml")
WEIGHTS_NAME = "model.safetensors"
TOKENIZER_NAME = "tokenizer.model"
FILTERS_NAME = "preprocessor.featurizer.fb"
WINDOW_NAME = "preprocessor.featurizer.window"


def load_model(path: str | Path, dtype: mx.Dtype | None = None) -> AsrModel:
    """Loads a model in `dtype` (default: bfloat16 on a GPU, float32 on a CPU).

    Raises UnknownModel when nothing is there, ModelUnreadable when its files cannot be read, WeightsMismatch
    when the weights are not those of its configuration.
    """
    place = Path(path).expanduser()
    kind = dtype or default_dtype()
    if place.is_dir():
        return _load_folder(place, kind, place.resolve().name)
    if place.is_file():
        return _load_nemo(place, kind)
    if HUB_ID.match(str(path)):
        return _load_folder(_download(str(path)), kind, str(path))
    raise UnknownModel(f"{path}: no folder, no .nemo file and no hub id of the form owner/name")


def _load_folder(folder: Path, dtype: mx.Dtype, name: str) -> AsrModel:
    config_path = next((folder / known for known in CONFIG_NAMES if (folder / known).is_file()), None)
    if config_path is None:
        raise UnknownModel(f"{folder}: holds no config.json, so no model")
    config = read_config(config_path)
    pieces = next(iter(sorted(folder.glob(f"*{TOKENIZER_NAME}"))), None)
    tokenizer = _tokenizer(config, str(folder), Tokenizer.from_file(pieces) if pieces else None)
    weights = folder / WEIGHTS_NAME
    return _build(config, tokenizer, read_tensors(weights), dtype, name, weights)


def _load_nemo(path: Path, dtype: mx.Dtype) -> AsrModel:
    with open_nemo(path) as archive:
        config = parse_config(archive.config, f"{path}: model_config.yaml")
        named = config.tokenizer.get("model_path")
        found = archive.tokenizer(named if isinstance(named, str) else None)
        pieces = Tokenizer.from_bytes(found[1], f"{path}: {found[0]}") if found else None
        tokenizer = _tokenizer(config, str(path), pieces)
        return _build(config, tokenizer, archive.weights, dtype, path.stem, path)


def _download(hub_id: str) -> Path:
    """The hub's files of a model, from the local cache where they are there already."""
    try:
        return Path(huggingface_hub.snapshot_download(hub_id, allow_patterns=HUB_FILES))
    except HFValidationError as cause:
        raise UnknownModel(f"{hub_id}: no folder, no .nemo file and no hub id: {cause}") from cause
    except LocalEntryNotFoundError as cause:
        raise UnknownModel(f"{hub_id}: not in the local cache, and the hub cannot be reached") from cause
    except (HfHubHTTPError, OSError) as cause:
        reason = str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__
        raise UnknownModel(f"{hub_id}: the hub does not give this model: {reason}") from cause


def _build(
    config: ModelConfig, tokenizer: Tokenizer, weights: Weights, dtype: mx.Dtype, name: str, path: Path
) -> AsrModel:
    network = Network(config, tokenizer.vocabulary_size)
    install(network, weights.shapes, weights.read, dtype, str(path))
    network.encoder.fold(dtype)
    network.eval()
    mx.eval(network.parameters())
    front_end = config.preprocessor
    filters = _front_end(FILTERS_NAME, weights, (front_end.features, front_end.fft_length // 2 + 1))
    window = _front_end(WINDOW_NAME, weights, (front_end.win_length,))
    features = FeatureExtractor(front_end, filters, window)
    model = AsrModel(config, network, tokenizer, features, name=name, sha256=_sha256(path), dtype=dtype)
    _compile_kernels(model)
    return model


def _compile_kernels(model: AsrModel) -> None:
    """A tenth of a second through the network, so that what this machine compiles at first use (seconds, once
    a machine) is done here, where no job pays for it."""
    if not compiled_for_cpu():
        return
    silence = np.zeros(model.config.preprocessor.sample_rate // 10, np.float32)
    mx.eval(model.encode([silence]).frames)
    if model.transducer is not None:
        mx.eval(model.transducer.start(1))


def _front_end(name: str, weights: Weights, shape: Shape) -> Float32 | None:
    """The checkpoint's own filters or window, where it holds them (NeMo's do, with a leading axis of one)."""
    stored = weights.shapes.get(name)
    if stored is None or tuple(size for size in stored if size != 1) != shape:
        return None
    values: Float32 = np.array(weights.read(name).astype(mx.float32)).reshape(shape)
    return values


def _tokenizer(config: ModelConfig, name: str, pieces: Tokenizer | None) -> Tokenizer:
    """The sentencepiece model, or else the configuration's vocabulary; where both are, they must agree."""
    if config.tokenizer.get("type") not in (None, "bpe"):
        raise ModelUnreadable(f"{name}: tokenizers of type {config.tokenizer['type']!r} are not supported")
    if pieces is None:
        if not config.vocabulary:
            raise ModelUnreadable(f"{name}: neither a tokenizer.model nor a vocabulary in the configuration")
        return Tokenizer(config.vocabulary)
    if config.vocabulary and len(config.vocabulary) != pieces.vocabulary_size:
        raise ModelUnreadable(
            f"{name}: the tokenizer has {pieces.vocabulary_size} pieces, "
            f"the configuration names {len(config.vocabulary)}"
        )
    return pieces


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
