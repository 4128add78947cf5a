"""A WeNet model's folder: `final.pt` or safetensors, `train.yaml`, `units.txt`, perhaps a sentencepiece file.

Paths in `train.yaml` are those of the machine that trained; only the names beside it count. The checkpoint is
read by the unpickler that builds tensors and nothing else (`worker.models.artifacts.torch_checkpoint`).
"""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import mlx.core as mx

from spool.errors import ModelUnreadable, UnknownModel
from worker.models.artifacts.safetensors import read_tensors, sha256_of
from worker.models.artifacts.tensors import Weights
from worker.models.artifacts.torch_checkpoint import open_checkpoint
from worker.models.base import ModelFiles
from worker.models.tokenizers.pieces import read_pieces
from worker.models.tokenizers.units import read_units
from worker.models.weights import default_dtype
from worker.models.wenet.config import read_config, read_tree
from worker.models.wenet.model import WenetModel, build_wenet

CONFIG_NAME, UNITS_NAME, SCRIPTED_NAME = "train.yaml", "units.txt", "final.zip"
WEIGHTS_NAMES = ("final.safetensors", "model.safetensors", "final.pt")
"""In the order of preference."""
CONFIG_BYTES_MAX = 4 << 20


class Wenet:
    """The family of WeNet's U2, U2++ and their transducers."""

    def matches(self, files: ModelFiles) -> bool:
        return is_wenet_folder(files.path)

    def load(self, files: ModelFiles, dtype: mx.Dtype | None = None) -> WenetModel:
        return load_wenet(files.path, files.name, dtype)


def is_wenet_folder(path: Path) -> bool:
    """Whether a folder holds WeNet's configuration or its units: one without the other is no other family's,
    and `load_wenet` says what is missing."""
    return path.is_dir() and ((path / CONFIG_NAME).is_file() or (path / UNITS_NAME).is_file())


def load_wenet(folder: Path, name: str, dtype: mx.Dtype | None = None) -> WenetModel:
    """Loads a model's folder. Raises UnknownModel, ModelUnreadable, WeightsMismatch."""
    path = next((folder / each for each in WEIGHTS_NAMES if (folder / each).is_file()), None)
    if path is None:
        if (folder / SCRIPTED_NAME).is_file():
            raise ModelUnreadable(
                f"{folder}: {SCRIPTED_NAME} holds code and quantised weights; use the model's final.pt"
            )
        raise UnknownModel(f"{folder}: holds none of {', '.join(WEIGHTS_NAMES)}, so no model")
    for needed in (CONFIG_NAME, UNITS_NAME):
        if not (folder / needed).is_file():
            raise UnknownModel(
                f"{folder}: a WeNet model needs {needed} beside {path.name}, and there is none"
            )
    settings = folder / CONFIG_NAME
    if settings.stat().st_size > CONFIG_BYTES_MAX:
        raise ModelUnreadable(f"{settings}: larger than {CONFIG_BYTES_MAX} bytes")
    tree = read_tree(settings.read_bytes(), str(settings))
    pieces = next(iter(sorted(folder.glob("*.model"))), None)
    tokenizer = read_units(folder / UNITS_NAME, read_pieces(pieces)[1] if pieces else None)
    with _open_archive(path) as weights:
        config = read_config(tree, weights.shapes, len(tokenizer.pieces), str(settings))
        roles = {"weights": path, "config": settings, "units": folder / UNITS_NAME}
        if pieces is not None:
            roles["tokenizer"] = pieces
        files = {role: sha256_of(each) for role, each in roles.items()}
        return build_wenet(
            config, tokenizer, weights, dtype or default_dtype(), name=name, source=str(path), files=files
        )


def _open_archive(path: Path) -> AbstractContextManager[Weights]:
    return open_checkpoint(path) if path.suffix == ".pt" else nullcontext(read_tensors(path))
