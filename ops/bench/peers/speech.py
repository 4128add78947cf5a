"""The utterances of `peers.py`: real speech, joined and cut to lengths drawn evenly from 5 to 30 s.

Lengths are drawn rather than taken from the recordings, so that every folder of speech gives the same shapes:
short clips are joined, and where there is too little speech it is repeated. Knows no engine.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from worker.audio import SAMPLE_RATE, open_audio

SHORTEST, LONGEST = 5.0, 30.0
SUFFIXES = {".flac", ".wav", ".ogg", ".mp3"}


def cut_utterances(
    recordings: Sequence[NDArray[np.float32]],
    seconds: float,
    seed: int = 0,
    shortest: float = SHORTEST,
    longest: float = LONGEST,
) -> list[NDArray[np.float32]]:
    """Utterances of `seconds` in all (the last takes what is left), longest first, so that neighbours are
    alike in length and a batch of neighbours holds little padding."""
    lengths = _lengths(seconds, np.random.default_rng(seed), shortest, longest)
    stream = np.resize(np.concatenate(recordings), sum(lengths))
    cut = np.split(stream, np.cumsum(lengths)[:-1])
    return sorted(cut, key=len, reverse=True)


def _lengths(seconds: float, rng: np.random.Generator, shortest: float, longest: float) -> list[int]:
    lengths: list[int] = []
    left = int(seconds * SAMPLE_RATE)
    while left > longest * SAMPLE_RATE:
        length = int(rng.uniform(shortest, longest) * SAMPLE_RATE)
        # What stays must still be an utterance.
        length = min(length, left - int(shortest * SAMPLE_RATE))
        lengths.append(length)
        left -= length
    return [*lengths, left]


def read_speech(folders: Sequence[Path], seconds: float, seed: int = 0) -> list[NDArray[np.float32]]:
    """Recordings of these folders in a seeded order, 16 kHz mono, until there are `seconds` of them."""
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in SUFFIXES)
    if not files:
        raise SystemExit(f"no recording under {', '.join(map(str, folders))}")
    np.random.default_rng(seed).shuffle(files)
    found: list[NDArray[np.float32]] = []
    for path in files:
        found.append(read_samples(path))
        if sum(map(len, found)) >= seconds * SAMPLE_RATE:
            break
    return found


def read_samples(path: Path) -> NDArray[np.float32]:
    with open_audio(path) as audio:
        return np.concatenate([block[:, 0] for block in audio.blocks()])


def batches_of(count: int, size: int) -> Iterator[list[int]]:
    """Neighbours, `size` at a time."""
    yield from (list(range(first, min(first + size, count))) for first in range(0, count, size))
