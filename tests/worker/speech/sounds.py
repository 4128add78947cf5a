"""The golden conversation, and sounds without speech, float32 at 16 kHz."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

GOLDEN = Path(__file__).parents[2] / "golden"
RATE = 16_000
_ORDER = [0, 2, 3, 4, 0, 3, 2, 4, 0, 2]


@cache
def conversation() -> Floats:
    """As tests/golden/make_speech.py makes it."""
    stored = np.load(GOLDEN / "audio.npz")
    parts: list[NDArray[np.floating]] = []
    for index in _ORDER:
        parts += [stored["audio"][index, : stored["lengths"][index]] / np.float32(32768), np.zeros(6400)]
    samples = np.concatenate([*parts, np.zeros(80_000)])
    return (samples + np.random.default_rng(7).normal(0, 1e-3, len(samples))).astype(np.float32)


@cache
def golden() -> dict[str, NDArray[Any]]:
    return dict(np.load(GOLDEN / "speech.npz"))


def blocks_of(samples: Floats, size: int = RATE) -> Iterator[Floats]:
    for at in range(0, len(samples), size):
        yield samples[at : at + size]


def music(seconds: float) -> Floats:
    """Chords of a plucked sound, two a second."""
    time = np.arange(int(seconds * RATE)) / RATE
    beat = time % 0.5
    root = 220 * 2 ** (np.array([0, 5, 7, 3])[(time * 2).astype(int) % 4] / 12)
    tone = sum(np.sin(2 * np.pi * root * ratio * beat) for ratio in (1, 1.25, 1.5, 2))
    return (0.1 * tone * np.exp(-4 * beat)).astype(np.float32)


def noise(seconds: float, level: float = 0.1) -> Floats:
    return np.random.default_rng(1).normal(0, level, int(seconds * RATE)).astype(np.float32)
