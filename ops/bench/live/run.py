"""The options of a measurement of live sessions, and how its times are summed up."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from worker.audio import SAMPLE_RATE, open_audio

Head = Literal["auto", "tdt", "rnnt", "ctc"]
BLOCK = SAMPLE_RATE * 80 // 1000
"""Samples that are sent at once."""
Samples = NDArray[np.float32]


@dataclass(frozen=True)
class Run:
    """Numbers of `sessions` that speak for `seconds`; whether an `archive` is decoded beside them; context
    and head of the search; whether the speech detector listens."""

    sessions: Sequence[int]
    seconds: float
    archive: bool
    context: tuple[int, int]
    head: Head
    detects: bool
    device: str


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """In ms; empty for none."""
    if not seconds:
        return {}
    p50, p95, p99 = np.percentile(np.array(seconds) * 1000, [50, 95, 99])
    return {"p50": round(p50, 1), "p95": round(p95, 1), "p99": round(p99, 1)}


def read_samples(path: Path) -> Samples:
    """The recording, its first channel at 16 kHz."""
    with open_audio(path) as stream:
        return np.concatenate([block[:, 0] for block in stream.blocks()])
