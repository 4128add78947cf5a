"""A model's folder as the Hugging Face hub has it: settings in JSON, tensors in safetensors, a tokenizer.

    config.json                             the network's sizes; `model_type` says whose it is
    model.safetensors, or its shards        named by model.safetensors.index.json
    processor_config.json                   the features' settings, under `feature_extractor`; before 2026
                                            flat in preprocessor_config.json
    tokenizer.json, tokenizer_config.json   the fast tokenizer
    generation_config.json                  ends, limits

Knows no names of weights, and of families how their processors are called. Quantised matrices are read as
what they stand for.
"""

import hashlib
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import mlx.core as mx
import tokenizers

from spool.errors import ModelUnreadable, UnknownModel, WeightsMismatch
from worker.models.artifacts.grouped import bits_of
from worker.models.artifacts.safetensors import INDEX, load_tensors, read_tensors, sha256_of
from worker.models.artifacts.tensors import Weights
from worker.models.base import ModelFiles
from worker.models.configuration import read_json

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
TOKENIZER = "tokenizer.json"
# Each begins as the `model_type` of its models does, without the underscores of that.
PROCESSORS = frozenset(
    f"{family}Processor" for family in ("Canary", "CohereAsr", "GraniteSpeech5", "Parakeet", "Qwen3ASR")
)
NAMING_PROCESSORS = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")


def is_hub_folder(files: ModelFiles, *model_types: str) -> bool:
    """Whether a folder's config.json names one of these as its `model_type`."""
    return files.path.is_dir() and files.config.get("model_type") in model_types


class HubFolder:
    """One folder, each file read when it is first asked for. Every method and property raises
    ModelUnreadable, naming the file, where that is missing (if it is needed) or broken."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def config(self) -> dict[str, Any]:
        """config.json. Raises UnknownModel where there is none, and ModelUnreadable where another file of the
        folder belongs to a model of another family."""
        if not (self.path / CONFIG).is_file():
            raise UnknownModel(f"{self.path}: holds no {CONFIG}, so no model")
        config = read_json(self.path / CONFIG)
        own = str(config.get("model_type"))
        for name in NAMING_PROCESSORS:
            stated = self.optional(name).get("processor_class")
            family = str(stated).removesuffix("Processor").lower()
            if str(stated) in PROCESSORS and not own.replace("_", "").startswith(family):
                raise ModelUnreadable(
                    f"{self.path / name}: processor_class is {stated}, but {CONFIG} has a {own}: it is "
                    "another model's"
                )
        return config

    @cached_property
    def features(self) -> dict[str, Any]:
        """The settings of the features; empty where the folder has none. Where both files have them, those
        of processor_config.json win."""
        nested = self.optional("processor_config.json").get("feature_extractor")
        if nested is None:
            return self.optional("preprocessor_config.json")
        if not isinstance(nested, dict):
            raise ModelUnreadable(
                f"{self.path / 'processor_config.json'}: feature_extractor is {nested!r}, not a section"
            )
        return nested

    @property
    def generation(self) -> dict[str, Any]:
        """generation_config.json, empty where there is none."""
        return self.optional("generation_config.json")

    @property
    def tokenizer_config(self) -> dict[str, Any]:
        """tokenizer_config.json, empty where there is none."""
        return self.optional("tokenizer_config.json")

    def optional(self, name: str) -> dict[str, Any]:
        """A file of one JSON object, empty where there is none."""
        path = self.path / name
        return read_json(path) if path.is_file() else {}

    @cached_property
    def tokenizer(self) -> tokenizers.Tokenizer:
        """tokenizer.json as the package reads it."""
        path = self.path / TOKENIZER
        if not path.is_file():
            raise ModelUnreadable(f"{path}: the tokenizer is missing")
        try:
            return tokenizers.Tokenizer.from_buffer(self._read(path))
        except Exception as cause:  # the package raises nothing more exact
            raise ModelUnreadable(f"{path}: not a tokenizer: {cause}") from cause

    @cached_property
    def weights_path(self) -> Path:
        """The file of the weights, or the index of their shards."""
        for name in (WEIGHTS, INDEX):
            if (self.path / name).is_file():
                return self.path / name
        shards = [each.name for each in sorted(self.path.glob("*.safetensors")) if SHARD.fullmatch(each.name)]
        if shards:
            raise ModelUnreadable(f"{self.path / INDEX}: missing beside {shards[0]}; it says which shards")
        raise ModelUnreadable(f"{self.path}: the weights are missing; {WEIGHTS} or {INDEX} is needed")

    @cached_property
    def weights(self) -> Weights:
        """Every tensor under its stored name, each number finite. MLX reads a tensor when it is first used.

        Raises WeightsMismatch for a tensor that an index names and no shard holds, or that holds a NaN or
        an infinity.
        """
        source = self.weights_path
        if source.name == INDEX:
            stored, named = load_tensors(source)[0], read_json(source)["weight_map"]
            lost = next((name for name in sorted(named) if name not in stored), None)
            if lost is not None:
                raise WeightsMismatch(f"{source}: names {lost}, which {named[lost]} does not hold")
        check_finite(source)
        return read_tensors(source)

    @property
    def bits(self) -> int | None:
        """Of quantised weights, those of a weight in the file."""
        return bits_of(self.weights)

    def digests(self, **others: str) -> dict[str, str]:
        """SHA-256 by role: "weights" (of shards together), "config", and of `others`, role=file name, those
        that are there."""
        digests = {"weights": weights_digest(self.weights_path), "config": sha256_of(self.path / CONFIG)}
        known = {"features": "preprocessor_config.json", "processor": "processor_config.json"}
        for role, name in (known | {"tokenizer": TOKENIZER} | others).items():
            if (self.path / name).is_file():
                digests[role] = sha256_of(self.path / name)
        return digests

    def _read(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as cause:
            raise ModelUnreadable(f"{path}: cannot be read: {cause.strerror}") from cause


def weights_digest(path: Path) -> str:
    """SHA-256 of a file of weights, or of all shards that an index names together."""
    if path.name != INDEX:
        return sha256_of(path)
    shards = sorted({Path(str(name)).name for name in read_json(path)["weight_map"].values()})
    together = "".join(f"{name} {sha256_of(path.parent / name)}\n" for name in shards)
    return hashlib.sha256(together.encode()).hexdigest()


def check_finite(path: Path) -> None:
    """Raises WeightsMismatch naming the first tensor of a file, or of an index, with a NaN or an infinity."""
    # Tensors of its own, each dropped once it was looked at: those in use are read when they are needed.
    tensors, _ = load_tensors(path)
    for name in sorted(tensors):
        tensor = tensors.pop(name)
        if not mx.issubdtype(tensor.dtype, mx.floating) or bool(mx.isfinite(tensor.astype(mx.float32).sum())):
            continue
        if count := int(mx.sum(~mx.isfinite(tensor))):  # else the sum alone is too large
            raise WeightsMismatch(
                f"{path}: {name} {list(tensor.shape)} holds {count} numbers that are NaN or infinite"
            )
