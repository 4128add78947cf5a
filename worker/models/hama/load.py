"""The folder of hama's recogniser: `asr_waveform.hama`, and `g2p_vocab.json` with its symbols."""

import mlx.core as mx

from spool.errors import UnknownModel
from worker.models.artifacts.hama import read_hama
from worker.models.artifacts.safetensors import sha256_of
from worker.models.base import ModelFiles
from worker.models.hama.config import SYMBOLS, WEIGHTS, read_symbols
from worker.models.hama.model import HamaModel, build_hama


class Hama:
    """The family of the phoneme recogniser."""

    def matches(self, files: ModelFiles) -> bool:
        return files.path.is_dir() and (files.path / WEIGHTS).is_file()

    def load(self, files: ModelFiles, dtype: mx.Dtype | None = None) -> HamaModel:  # noqa: ARG002 - float32 alone
        """As `ModelFamily.load`. It computes in float32 whatever is asked."""
        symbols, weights = files.path / SYMBOLS, files.path / WEIGHTS
        if not symbols.is_file():
            raise UnknownModel(f"{files.path}: {WEIGHTS} needs {SYMBOLS} beside it, and there is none")
        return build_hama(
            read_hama(weights),
            read_symbols(symbols),
            name=files.name,
            source=str(weights),
            files={"weights": sha256_of(weights), "symbols": sha256_of(symbols)},
        )
