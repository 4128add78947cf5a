"""Loads NeMo's FastConformer from a folder or a `.nemo` file.

A folder holds `config.json` (or `model_config.yaml`), `model.safetensors` and, where the vocabulary alone is
not enough, `tokenizer.model`. Knows where things lie; what they mean is the business of `config`, `weights`
and `artifacts`.
"""

from collections.abc import Mapping
from pathlib import Path

import mlx.core as mx
import numpy as np

from kernels.runtime.device import compiles_for_cpu
from spool.errors import ModelUnreadable, UnknownModel
from worker.models.artifacts.grouped import bits_of
from worker.models.artifacts.nemo import open_nemo
from worker.models.artifacts.safetensors import read_tensors, sha256_of
from worker.models.artifacts.tensors import Weights
from worker.models.base import ModelFiles
from worker.models.conformer.config import PreprocessorConfig
from worker.models.front_ends.log_mel import FeatureExtractor, Float32
from worker.models.heads.transducer import Transducer
from worker.models.nemo.config import ModelConfig, parse_config, read_config
from worker.models.nemo.model import NemoModel, Network
from worker.models.tokenizers.pieces import Tokenizer
from worker.models.weights import NEMO, NameMap, Shape, default_dtype, install

CONFIG_NAMES = ("config.json", "model_config.yaml")
WEIGHTS_NAME = "model.safetensors"
TOKENIZER_NAME = "tokenizer.model"
FILTERS_NAME = "preprocessor.featurizer.fb"
WINDOW_NAME = "preprocessor.featurizer.window"


class Nemo:
    """The family of NeMo's FastConformer: TDT, RNNT, CTC and hybrids of them."""

    def matches(self, files: ModelFiles) -> bool:  # noqa: ARG002 - the last family asked: it names what is missing
        return True

    def load(self, files: ModelFiles, dtype: mx.Dtype | None = None) -> NemoModel:
        kind = dtype or default_dtype()
        if files.path.is_dir():
            return load_folder(files.path, kind, files.name)
        return load_archive(files.path, kind)


def load_folder(folder: Path, dtype: mx.Dtype, name: str) -> NemoModel:
    """The model of a folder. Raises UnknownModel, ModelUnreadable, WeightsMismatch."""
    config_path = next((folder / known for known in CONFIG_NAMES if (folder / known).is_file()), None)
    if config_path is None:
        raise UnknownModel(f"{folder}: holds no config.json, so no model")
    config = read_config(config_path)
    pieces = next(iter(sorted(folder.glob(f"*{TOKENIZER_NAME}"))), None)
    tokenizer = _tokenizer(config, str(folder), Tokenizer.from_file(pieces) if pieces else None)
    weights = folder / WEIGHTS_NAME
    tensors = read_tensors(weights)
    files = {"weights": sha256_of(weights), "config": sha256_of(config_path)}
    if pieces is not None:
        files["tokenizer"] = sha256_of(pieces)
    return build_model(config, tokenizer, tensors, dtype, name, str(weights), files)


def load_archive(path: Path, dtype: mx.Dtype, part: str = "", sha256: str | None = None) -> NemoModel:
    """The model of a `.nemo`, or a second one in it, whose files' names begin with `part`. sha256: of the
    file, where it is known. Raises ModelUnreadable, WeightsMismatch."""
    with open_nemo(path, part) as archive:
        config = parse_config(archive.config, f"{path}: {part}model_config.yaml")
        named = config.tokenizer.get("model_path")
        stored = archive.tokenizer(named if isinstance(named, str) else None)
        pieces = Tokenizer.from_bytes(stored[1], f"{path}: {stored[0]}") if stored else None
        tokenizer = _tokenizer(config, str(path), pieces)
        files = {"weights": sha256 or sha256_of(path)}
        return build_model(config, tokenizer, archive.weights, dtype, path.stem, str(path), files)


def build_model(
    config: ModelConfig,
    tokenizer: Tokenizer,
    weights: Weights,
    dtype: mx.Dtype,
    name: str,
    source: str,
    files: Mapping[str, str],
    names: NameMap = NEMO,
) -> NemoModel:
    """The model of these parts. files: SHA-256 by role. Raises WeightsMismatch."""
    network = Network(config, tokenizer.vocabulary_size)
    install(network, weights, dtype, source, names=names)
    network.encoder.fold(dtype)
    network.eval()
    mx.eval(network.parameters())
    features = feature_extractor(config.preprocessor, weights)
    model = NemoModel(config, network, tokenizer, features, name=name, files=files, dtype=dtype)
    model.bits = bits_of(weights)
    _compile_kernels(model)
    return model


def _compile_kernels(model: NemoModel) -> None:
    """A tenth of a second through the network, so that what this machine compiles at first use (seconds, once
    a machine) is done here, where no job pays for it."""
    if not compiles_for_cpu():
        return
    silence = np.zeros(model.config.preprocessor.sample_rate // 10, np.float32)
    mx.eval(model.encode([silence]).frames)
    for head in model.heads.values():
        if isinstance(head, Transducer):
            mx.eval(head.start(1))


def feature_extractor(config: PreprocessorConfig, weights: Weights) -> FeatureExtractor:
    """The front end, with the checkpoint's own filters and window where it holds them."""
    filters = _front_end(FILTERS_NAME, weights, (config.features, config.fft_length // 2 + 1))
    return FeatureExtractor(config, filters, _front_end(WINDOW_NAME, weights, (config.win_length,)))


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
