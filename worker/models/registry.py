"""Which families of models there are, and which of them a model's files belong to.

Owns the list; a family says itself which files are its own and how they are loaded.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import mlx.core as mx

from spool.errors import UnknownModel
from worker.models.base import SpeechModel
from worker.models.canary.load import Canary
from worker.models.nemo.load import Nemo
from worker.models.wenet.model import Wenet
from worker.models.whisper.model import Whisper


@dataclass(frozen=True)
class ModelFiles:
    """A model's folder, or its single file. `name` is what people know it by."""

    path: Path
    name: str

    @cached_property
    def config(self) -> dict[str, Any]:
        """The folder's config.json; empty where there is none that can be read."""
        try:
            value = json.loads((self.path / "config.json").read_text())
        except (OSError, ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


class ModelFamily(Protocol):
    """One architecture and its layouts of files."""

    def matches(self, files: ModelFiles) -> bool:
        """Whether these files are this family's, before anything large is read."""

    def load(self, files: ModelFiles, dtype: mx.Dtype | None) -> SpeechModel:
        """The model in `dtype`, by default what suits the device. Raises UnknownModel, ModelUnreadable,
        WeightsMismatch."""


FAMILIES: tuple[ModelFamily, ...] = (Whisper(), Canary(), Wenet(), Nemo())
"""In the order in which they are asked; NeMo's is the one that says what is missing of a model."""


def load_files(files: ModelFiles, dtype: mx.Dtype | None) -> SpeechModel:
    """The model, by the first family that these files belong to. Raises what the family raises."""
    for family in FAMILIES:
        if family.matches(files):
            return family.load(files, dtype)
    raise UnknownModel(f"{files.path}: no family of models that is known here has such files")
