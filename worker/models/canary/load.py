"""Loads a Canary from a `.nemo` file, or from a folder that holds the same parts: `config.json` (or
`model_config.yaml`), `model.safetensors` under NeMo's names, and the tokenizers that the configuration names.

canary-1b-v2's archive holds a second model, a CTC recogniser over the same pieces, which aligns its text.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from spool.errors import ModelUnreadable
from worker.models.artifacts.grouped import bits_of
from worker.models.artifacts.nemo import open_nemo
from worker.models.artifacts.nemo_files import CONFIG_NAME, read_nemo_config
from worker.models.artifacts.safetensors import Weights, read_tensors, sha256_of
from worker.models.attention.conformer_model import install_parts
from worker.models.attention.nemo_decoder import NemoDecoder
from worker.models.base import ModelFiles
from worker.models.canary.config import CanaryConfig, is_canary, parse_canary
from worker.models.canary.model import CanaryModel
from worker.models.canary.tokenizer import CanaryTokenizer
from worker.models.configuration import parse_tree
from worker.models.conformer.frames import FrameEncoder
from worker.models.nemo.load import CONFIG_NAMES, WEIGHTS_NAME, feature_extractor, load_archive, load_folder
from worker.models.nemo.model import NemoModel
from worker.models.weights import default_dtype

ALIGNER = "timestamps_asr_"
ALIGNER_FOLDER = "timestamps_asr"
"""Of a folder's second model."""


class Canary:
    """The family of NeMo's attention encoder-decoders."""

    def matches(self, files: ModelFiles) -> bool:
        if files.path.is_dir():
            config = _config_file(files.path)
            raw = config.read_bytes() if config is not None else None
        else:
            raw = read_nemo_config(files.path)
        if raw is None:
            return False
        try:
            return is_canary(parse_tree(raw, str(files.path)))
        except ModelUnreadable:
            return False

    def load(self, files: ModelFiles, dtype: mx.Dtype | None = None) -> CanaryModel:
        kind = dtype or default_dtype()
        if files.path.is_dir():
            return _load_folder(files.path, kind, files.name)
        return _load_nemo(files.path, kind)


def _config_file(folder: Path) -> Path | None:
    return next((folder / known for known in CONFIG_NAMES if (folder / known).is_file()), None)


def _load_folder(folder: Path, dtype: mx.Dtype, name: str) -> CanaryModel:
    path = _config_file(folder)
    assert path is not None
    config = parse_canary(path.read_bytes(), str(path))

    files = {"config": sha256_of(path)}

    def read(model: str) -> bytes | None:
        file = folder / Path(model).name
        if not file.is_file():
            return None
        files[file.name] = sha256_of(file)
        return file.read_bytes()

    tokenizer, weights = _tokenizer(config, read, str(folder)), folder / WEIGHTS_NAME
    tensors, aligner = read_tensors(weights), None
    files["weights"] = sha256_of(weights)
    if (folder / ALIGNER_FOLDER).is_dir():
        aligner = _check_aligner(load_folder(folder / ALIGNER_FOLDER, dtype, name), folder / ALIGNER_FOLDER)
        files |= {f"{ALIGNER}{role}": digest for role, digest in aligner.files.items()}
    return _build(config, tokenizer, tensors, dtype, name, str(weights), files, aligner)


def _load_nemo(path: Path, dtype: mx.Dtype) -> CanaryModel:
    sha256 = sha256_of(path)
    with open_nemo(path) as archive:
        config = parse_canary(archive.config, f"{path}: {CONFIG_NAME}")
        tokenizer = _tokenizer(config, archive.files.get, str(path))
        has_aligner = ALIGNER + CONFIG_NAME in archive.files
        aligner = load_archive(path, dtype, ALIGNER, sha256) if has_aligner else None
        if aligner is not None:
            _check_aligner(aligner, f"{path}: {ALIGNER}{CONFIG_NAME}")
        files = {"weights": sha256}
        return _build(config, tokenizer, archive.weights, dtype, path.stem, str(path), files, aligner)


def _check_aligner(aligner: NemoModel, source: object) -> NemoModel:
    if aligner.ctc is None:
        raise ModelUnreadable(f"{source} is of a model without a CTC head")
    return aligner


def _build(
    config: CanaryConfig,
    tokenizer: CanaryTokenizer,
    weights: Weights,
    dtype: mx.Dtype,
    name: str,
    source: str,
    files: Mapping[str, str],
    aligner: NemoModel | None = None,
) -> CanaryModel:
    parts = config.parts(tokenizer.vocabulary_size)
    encoder, tensors = install_parts(config.encoder, parts, weights, dtype, source)
    head = NemoDecoder(parts, tensors, dtype, tokenizer.eos)
    frames = FrameEncoder(feature_extractor(config.preprocessor, weights), encoder, dtype)
    model = CanaryModel(
        config, frames, head, tokenizer, rows=parts.rows, name=name, files=files, aligner=aligner
    )
    model.bits = bits_of(weights)
    return model


def _tokenizer(config: CanaryConfig, read: Callable[[str], bytes | None], source: str) -> CanaryTokenizer:
    """The tokenizers that the configuration names, in its order."""
    section: Mapping[str, Any] = config.tokenizer
    if section.get("type") == "agg":
        named = {str(key): part.get("model_path") for key, part in section["langs"].items()}
    else:
        named = {"": section.get("model_path")}
    models = {}
    for language, stored in named.items():
        file = str(stored or "").removeprefix("nemo:")
        model = read(file) if file else None
        if model is None:
            where = f"tokenizer.langs.{language}" if language else "tokenizer"
            raise ModelUnreadable(f"{source}: {where}.model_path names {file or 'nothing'}, which is missing")
        models[language] = model
    return CanaryTokenizer(models, source)
