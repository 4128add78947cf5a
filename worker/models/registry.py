"""Which families of models there are, and which of them a model's files belong to.

Owns the list; a family says itself which files are its own and how they are loaded.
"""

import mlx.core as mx

from spool.errors import UnknownModel
from worker.models.base import ModelFamily, ModelFiles, SpeechModel
from worker.models.canary.hub import CanaryFolder
from worker.models.canary.load import Canary
from worker.models.cohere.load import Cohere
from worker.models.granite.load import Granite
from worker.models.hama.load import Hama
from worker.models.nemo.hub import Parakeet
from worker.models.nemo.load import Nemo
from worker.models.qwen3_aligner.model import Qwen3Aligner
from worker.models.qwen3_asr.load import Qwen3Asr
from worker.models.wenet.load import Wenet
from worker.models.whisper.model import Whisper

FAMILIES: tuple[ModelFamily, ...] = (
    Whisper(),
    Granite(),
    Qwen3Aligner(),
    Qwen3Asr(),
    Parakeet(),
    CanaryFolder(),
    Cohere(),
    Canary(),
    Wenet(),
    Hama(),
    Nemo(),
)
"""In the order in which they are asked; NeMo's is the one that says what is missing of a model."""


def load_files(files: ModelFiles, dtype: mx.Dtype | None) -> SpeechModel:
    """The model, by the first family that these files belong to. Raises what the family raises."""
    for family in FAMILIES:
        if family.matches(files):
            return family.load(files, dtype)
    raise UnknownModel(f"{files.path}: no family of models that is known here has such files")
