"""Reads the golden files for the tests of this folder."""

from functools import cache
from pathlib import Path

import numpy as np

from ops.testbed.nemo_model import load_nemo
from worker.models import NemoModel

FOLDER = Path(__file__).parents[2] / "golden"
# Every stored model, and which golden numbers are its own.
MODELS = {
    "tdt.nemo": "tdt",
    "tdt": "tdt",
    "rnnt.nemo": "rnnt",
    "rnnt": "rnnt",
    "ctc.nemo": "ctc",
    "hybrid.nemo": "hybrid",
    "hybrid": "hybrid",
    "causal.nemo": "causal",
}


@cache
def model(name: str) -> NemoModel:
    return load_nemo(FOLDER / name)


@cache
def numbers(name: str) -> dict[str, np.ndarray]:
    with np.load(FOLDER / f"{name}.npz") as file:
        return dict(file)


@cache
def speech() -> tuple[np.ndarray, ...]:
    """The five utterances, float32."""
    file = numbers("audio")
    rows = zip(file["audio"], file["lengths"], strict=True)
    return tuple(row[:length].astype(np.float32) / 32768.0 for row, length in rows)
