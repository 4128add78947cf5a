"""Conversations mixed from the open samples: real voices of people that no threshold was tuned on."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from tests.worker.speech.sounds import RATE

OPEN = Path(__file__).parents[3] / "samples" / "open"
READERS = tuple(f"readers/reader-{n}" for n in range(1, 6))
OTHERS = tuple(f"second-language/speaker-{n}" for n in range(1, 9))
TWO_SPEAKERS = OPEN / "conversation" / "two-speakers.flac"

Floats = NDArray[np.float32]
Turns = list[tuple[float, float, int]]
"""Start and end in seconds, and who."""


@cache
def voice(name: str) -> Floats:
    """One clip of one person at 16 kHz."""
    samples, rate = soundfile.read(OPEN / f"{name}.flac", dtype="float32")
    assert rate == RATE
    return np.asarray(samples, np.float32)


def mixed(names: Sequence[str], pause: float = 0.6, noise: float = 1e-3) -> tuple[Floats, Turns]:
    """The clips one after another, with a pause and faint noise; and whose turn it is when."""
    order = list(dict.fromkeys(names))
    parts, turns, at = [], [], 0
    for name in names:
        clip = voice(name)
        turns.append((at / RATE, (at + len(clip)) / RATE, order.index(name)))
        parts += [clip, np.zeros(int(pause * RATE), np.float32)]
        at += len(parts[-2]) + len(parts[-1])
    samples = np.concatenate(parts)
    return (samples + np.random.default_rng(3).normal(0, noise, len(samples))).astype(np.float32), turns
