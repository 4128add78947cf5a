"""Where recordings may be cut: single digits out of spoken strings, and sentences at the pauses within them.

There are few speakers of single digits, and a chunk of a long recording begins and ends within sentences. The
CTC head (Graves et al. 2006) of the weights that training begins from places the words, by Viterbi; each
cut is at the quietest frame between two words. Writes the set `cut` and `pauses.json` into the cache.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from ops.train.data import cache
from ops.train.data.cache import FeatureSet
from ops.train.data.features import Mels, normalise
from ops.train.data.mixture import DIGITS
from ops.train.model.network import Network

FACTOR = 8  # features a frame of the encoder
SHORTEST, LONGEST = 16, 90  # features in a cut digit
QUIET, PAUSE = 0.25, 10  # how far up from the quietest to the loud frames a pause may be, and how long it is


def aligned(log_probs: npt.NDArray[np.float32], tokens: list[int]) -> list[int] | None:
    """The frame in which each token is likeliest to be out first; None where there are too few frames.

    log_probs [T, V + 1], the blank last.
    """
    blank = log_probs.shape[1] - 1
    states = [blank] + [s for token in tokens for s in (token, blank)]
    count = len(states)
    best = np.full(count, -np.inf)
    best[:2] = log_probs[0, states[:2]]
    came = np.zeros((len(log_probs), count), np.int64)
    skips = np.array([s >= 2 and states[s] != blank and states[s] != states[s - 2] for s in range(count)])
    for t in range(1, len(log_probs)):
        one, two = np.roll(best, 1), np.where(skips, np.roll(best, 2), -np.inf)
        one[0] = -np.inf
        came[t] = np.argmax([best, one, two], axis=0)
        best = np.choose(came[t], [best, one, two]) + log_probs[t, states]
    state = count - 1 if best[-1] >= best[-2] else count - 2
    if not np.isfinite(best[state]):
        return None
    path = []
    for t in range(len(log_probs) - 1, -1, -1):
        path.append(state)
        state -= int(came[t, state])
    path.reverse()
    return [path.index(2 * k + 1) for k in range(len(tokens))]


def between_words(mels: Mels, peaks: list[int], starts: list[int]) -> list[int]:
    """The quietest frame between the peaks of each word and the next.

    peaks: the encoder frame of each token; starts: the index of each word's first token.
    """
    level = mels.mean(axis=1)
    bounds = []
    for start in starts[1:]:
        a = peaks[start - 1] * FACTOR
        bounds.append(a + int(np.argmin(level[a : max(a + 1, peaks[start] * FACTOR + 4)])))
    return bounds


def words_cut(mels: Mels, peaks: list[int], starts: list[int]) -> list[Mels]:
    """The features of each word, from the quietest frame before it to the one after it."""
    first, last = max(0, peaks[0] * FACTOR - 30), min(len(mels), peaks[-1] * FACTOR + 40)
    return [mels[a:b] for a, b in pairwise([first, *between_words(mels, peaks, starts), last])]


def pauses(mels: Mels, peaks: list[int], starts: list[int]) -> list[tuple[int, int]]:
    """Where nobody speaks between two words: how many words come before, and the quietest frame there."""
    level = mels.mean(axis=1)
    low, high = np.percentile(level, (5, 75))
    quiet = np.concatenate([[False], level < low + QUIET * (high - low), [False]])
    edges = np.flatnonzero(quiet[1:] != quiet[:-1]).reshape(-1, 2)
    utterances = enumerate(between_words(mels, peaks, starts), start=1)
    return [
        (before, frame)
        for before, frame in utterances
        if any(a <= frame < b and b - a >= PAUSE for a, b in edges)
    ]


def _placed(
    network: Network, mels: Mels, words: list[str], encode: Callable[[str], list[int]]
) -> tuple[list[int], list[int]] | None:
    """The encoder frame of each token, the index of each word's first; None where frames are too few."""
    features = torch.from_numpy(normalise(mels))[None]
    frames, _ = network.encoder(features, torch.tensor([len(mels)]))
    scores = network.ctc(frames.transpose(1, 2))[0].log_softmax(0).T.numpy()
    pieces = [encode(word) for word in words]
    peaks = aligned(scores, [p for word in pieces for p in word])
    return None if peaks is None else (peaks, np.cumsum([0, *map(len, pieces[:-1])]).tolist())


@torch.no_grad()
def _cuts(network: Network, spoken: FeatureSet, encode: Callable[[str], list[int]]) -> Iterator[cache.Named]:
    network.eval()
    for clip in spoken:
        words = clip.text.split()
        if clip.domain != "so762" or len(words) < 2 or not set(words) <= DIGITS:
            continue
        mels = spoken.mels(clip)
        placed = _placed(network, mels, words, encode)
        for number, part in enumerate(words_cut(mels, *placed) if placed else ()):
            if SHORTEST <= len(part) <= LONGEST:
                yield cache.Named(f"{clip.id}-{number}", words[number], "cut", "train", clip.speaker, part)


@torch.no_grad()
def _pauses(
    network: Network, spoken: FeatureSet, encode: Callable[[str], list[int]]
) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    network.eval()
    for clip in spoken:
        words = clip.text.split()
        if clip.domain in ("so762", "libri") and len(words) > 3:
            mels = spoken.mels(clip)
            placed = _placed(network, mels, words, encode)
            yield clip.id, pauses(mels, *placed) if placed else []


def cut_digits(folder: Path, network: Network, encode: Callable[[str], list[int]]) -> None:
    """Writes the set `cut` from the set `train`, unless it is there."""
    if not (folder / "cut.jsonl").exists():
        frames = cache.write(folder, "cut", _cuts(network, FeatureSet(folder, "train"), encode))
        print(f"cut: {frames / 6000:.1f} minutes of single digits", flush=True)


def find_pauses(folder: Path, network: Network, encode: Callable[[str], list[int]]) -> None:
    """Writes `pauses.json` about the set `train`, unless it is there: by clip, what `pauses` gives."""
    path = folder / "pauses.json"
    if not path.exists():
        pauses = dict(_pauses(network, FeatureSet(folder, "train"), encode))
        path.with_suffix(".part").write_text(json.dumps(pauses))
        path.with_suffix(".part").replace(path)
        print(f"pauses: {sum(map(len, pauses.values()))} in {len(pauses)} recordings", flush=True)
