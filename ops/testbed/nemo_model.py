"""A NeMo model with its type, for tests that look inside."""

from pathlib import Path

import mlx.core as mx

from worker.models.load import load_model
from worker.models.nemo.model import NemoModel


def load_nemo(path: str | Path, dtype: mx.Dtype | None = None) -> NemoModel:
    """The model at that path, which has to be one of NeMo's."""
    model = load_model(path, dtype)
    assert isinstance(model, NemoModel)
    return model
