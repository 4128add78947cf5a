"""The small cache-aware model of this folder, its recordings and NeMo's answers."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from worker.models import NemoModel, load_model

GOLDEN = Path(__file__).parent
Samples = NDArray[np.float32]


@cache
def model() -> NemoModel:
    loaded = load_model(str(GOLDEN / "model.nemo"))
    assert isinstance(loaded, NemoModel)
    return loaded


@cache
def answers() -> dict[str, NDArray[Any]]:
    return dict(np.load(GOLDEN / "answers.npz"))


@cache
def audio(number: int) -> Samples:
    samples: Samples = soundfile.read(GOLDEN / f"{number}.flac", dtype="float32")[0]
    return samples
