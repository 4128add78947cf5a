"""What the network hears: utterances drawn by kind, varied, joined, and packed into batches of like length.

Batch number n of a seed is always the same batch, whatever came before it, so a run can be taken up again.
Knows the cache and the augmentations; knows no network.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ops.train import augment
from ops.train.cache import Clip, FeatureSet
from ops.train.features import MELS, Mels, normalise

Rng = np.random.Generator
Utterance = tuple[Mels, str]
T = TypeVar("T")
DIGITS = frozenset(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "oh"])

# What is drawn how often while most of the learning is done, and for the last part of it.
OPEN = {
    "phrase": 0.31,  # a sentence of the recordings, or several
    "spelled": 0.05,  # a string of digits, spoken as one
    "digits": 0.06,  # single digits of a speaker, one or joined
    "words": 0.04,  # command words, one to four
    "synthetic": 0.39,
    "wordless": 0.09,
    "medley": 0.06,  # digits, words and phrases with long pauses between them
}
FINAL = {
    "phrase": 0.28,
    "spelled": 0.04,
    "digits": 0.13,
    "words": 0.07,
    "synthetic": 0.33,
    "wordless": 0.08,
    "medley": 0.07,
}


@dataclass(frozen=True)
class Batch:
    """features [B, T, 80] normalised, frames [B], targets int64 [B, U], labels [B]."""

    features: Tensor
    frames: Tensor
    targets: Tensor
    labels: Tensor

    def to(self, device: str) -> Batch:
        return Batch(*(x.to(device) for x in (self.features, self.frames, self.targets, self.labels)))

    def rows(self, chosen: Tensor) -> Batch:
        """Some of the utterances, their targets no wider than they need."""
        labels = self.labels[chosen]
        targets = self.targets[chosen, : max(1, int(labels.max()))]
        return Batch(self.features[chosen], self.frames[chosen], targets, labels)


@dataclass(frozen=True)
class BatchOptions:
    seed: int = 0
    seconds: float = 130.0  # padded audio a batch
    lattice: int = 120_000  # states (t, u) of the TDT loss a batch
    round: int = 256  # utterances drawn together and sorted by length
    longest: int = 1700  # frames; longer ones are drawn anew
    shares: dict[str, float] = field(default_factory=lambda: dict(OPEN))
    masked: float = 1.0  # share of the utterances that SpecAugment masks
    process: bool = False  # whether batches are made in a process of their own, on another core


class Mixture:
    """Draws utterances by kind from the sets under a cache folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.train, self.synth = FeatureSet(folder, "train"), FeatureSet(folder, "synth")
        self.noise = FeatureSet(folder, "wordless")
        by_domain: dict[str, list[Clip]] = defaultdict(list)
        for clip in self.train:
            by_domain[clip.domain].append(clip)
        self.open = by_domain["so762"] * 2 + by_domain["libri"] * 3
        self.spelled = [c for c in by_domain["so762"] if set(c.text.split()) <= DIGITS]
        self.words = by_domain["words"]
        self.speakers: dict[str, list[Clip]] = defaultdict(list)
        for clip in by_domain["digits"]:
            self.speakers[clip.speaker].append(clip)
        self.cut = FeatureSet(folder, "cut") if (folder / "cut.jsonl").exists() else None
        self.cut_speakers: dict[str, list[Clip]] = defaultdict(list)
        for clip in self.cut or ():
            self.cut_speakers[clip.speaker].append(clip)
        self.lone = [c for c in self.synth if c.text in DIGITS]
        self.beds = [c for c in self.noise if c.domain != "foreign" and c.frames > 100]
        self.foreign = [c for c in self.noise if c.domain == "foreign"]
        self.kinds: dict[str, Callable[[Rng], Utterance]] = {
            "phrase": self._phrase,
            "spelled": lambda rng: self._single(self.train, self.spelled, rng, strong=True),
            "digits": self._digits,
            "words": self._words,
            "synthetic": lambda rng: self._single(self.synth, self.synth.clips, rng),
            "wordless": self._wordless,
            "medley": self._medley,
        }

    def draw(self, kind: str, rng: Rng) -> Utterance:
        """Log-mel, not normalised, and text."""
        return self.kinds[kind](rng)

    def _bed(self, rng: Rng) -> Mels:
        return self.noise.mels(_one(self.beds, rng))

    def _single(
        self, source: FeatureSet, clips: Sequence[Clip], rng: Rng, *, strong: bool = False
    ) -> Utterance:
        clip = _one(clips, rng)
        return augment.varied(source.mels(clip), self._bed(rng), rng, strong=strong), clip.text

    def _phrase(self, rng: Rng) -> Utterance:
        clip = _one(self.open, rng)
        parts: list[Utterance] = [(self.train.mels(clip), clip.text)]
        # A chunk of a long recording can hold several voices, whose features are normalised together.
        while rng.random() < 0.35:
            other = _one(self.open, rng)
            if sum(len(m) for m, _ in parts) + other.frames < 1400:
                parts.append((self.train.mels(other), other.text))
        mels, text = joined(parts, rng, 60)
        return augment.varied(mels, self._bed(rng), rng), text

    def _digits(self, rng: Rng) -> Utterance:
        source, clips, trim = self._voice_of_digits(rng)
        count = 1 if rng.random() < 0.5 else int(rng.integers(2, 10))
        chosen = [_one(clips, rng) for _ in range(count)]
        parts = [(source.mels(c), c.text) for c in chosen]
        if trim:
            parts = [(augment.trimmed(mels, rng), text) for mels, text in parts]
        mels, text = joined(parts, rng, 35)
        return augment.varied(mels, self._bed(rng), rng, strong=True), text

    def _voice_of_digits(self, rng: Rng) -> tuple[FeatureSet, list[Clip], bool]:
        """One speaker's single digits: recorded as such, cut from strings, or synthetic (trimmed later)."""
        kind = rng.random()
        if kind < 0.25 and self.cut is not None and self.cut_speakers:
            return self.cut, self.cut_speakers[_one(sorted(self.cut_speakers), rng)], False
        if kind < 0.45 and self.lone:
            return self.synth, self.lone, True
        return self.train, self.speakers[_one(sorted(self.speakers), rng)], False

    def _words(self, rng: Rng) -> Utterance:
        count = 1 if rng.random() < 0.6 else int(rng.integers(2, 5))
        chosen = [_one(self.words, rng) for _ in range(count)]
        mels, text = joined([(self.train.mels(c), c.text) for c in chosen], rng, 40)
        return augment.varied(mels, self._bed(rng), rng), text

    def _wordless(self, rng: Rng) -> Utterance:
        if self.foreign and rng.random() < 0.65:
            clip = _one(self.foreign, rng)
            return augment.varied(self.noise.mels(clip), self._bed(rng), rng), ""
        mels = self.noise.mels(_one(self.noise.clips, rng))
        if rng.random() < 0.3:
            mels = np.concatenate([mels, self._bed(rng)])
        return (augment.coloured(mels, rng) if rng.random() < 0.5 else mels), ""

    def _medley(self, rng: Rng) -> Utterance:
        parts: list[Utterance] = []
        for _ in range(int(rng.integers(2, 6))):
            kind = str(
                rng.choice(
                    ["digits", "words", "spelled", "phrase", "wordless"], p=[0.34, 0.32, 0.16, 0.08, 0.1]
                )
            )
            parts.append(self.draw(kind, rng))
        return joined(parts, rng, 250)


def _one(items: Sequence[T], rng: Rng) -> T:
    return items[int(rng.integers(len(items)))]


def joined(parts: Sequence[Utterance], rng: Rng, longest: int) -> Utterance:
    """The parts one after another with pauses of up to that many frames, also at either end, at times."""
    pieces: list[Mels] = []
    for number, (mels, _) in enumerate(parts):
        if number or rng.random() < 0.5:
            pieces.append(augment.gap(mels, int(rng.integers(1, longest + 1)), rng))
        pieces.append(mels)
    if rng.random() < 0.5:
        pieces.append(augment.gap(parts[-1][0], int(rng.integers(1, longest + 1)), rng))
    return np.concatenate(pieces), " ".join(text for _, text in parts if text)


def encoder_frames(frames: int) -> int:
    """Frames after the eightfold subsampling."""
    for _ in range(3):
        frames = (frames - 1) // 2 + 1
    return frames


def _packed(items: list[tuple[Mels, list[int]]], options: BatchOptions) -> list[list[int]]:
    order = sorted(range(len(items)), key=lambda i: len(items[i][0]))
    batches: list[list[int]] = [[]]
    labels = 0
    for i in order:
        mels, tokens = items[i]
        size, wider = len(batches[-1]) + 1, max(labels, len(tokens))
        lattice = size * encoder_frames(len(mels)) * (wider + 1)
        if size > 1 and (size * len(mels) > options.seconds * 100 or lattice > options.lattice):
            batches.append([])
            wider = len(tokens)
        batches[-1].append(i)
        labels = wider
    return batches


def collated(items: Sequence[tuple[Mels, list[int]]]) -> Batch:
    """Pads normalised features and targets with zeros."""
    frames = torch.tensor([len(mels) for mels, _ in items])
    labels = torch.tensor([len(tokens) for _, tokens in items])
    features = torch.zeros(len(items), int(frames.max()), MELS)
    targets = torch.zeros(len(items), max(1, int(labels.max())), dtype=torch.long)
    for row, (mels, tokens) in enumerate(items):
        features[row, : len(mels)] = torch.from_numpy(mels)
        targets[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
    return Batch(features, frames, targets, labels)


def one_round(
    mixture: Mixture, encode: Callable[[str], list[int]], options: BatchOptions, number: int
) -> list[Batch]:
    """The batches of round `number`, in an order of its own; a function of the seed and the number alone."""
    rng = np.random.default_rng((options.seed, number))
    names, shares = list(options.shares), np.array(list(options.shares.values()))
    items: list[tuple[Mels, list[int]]] = []
    while len(items) < options.round:
        mels, text = mixture.draw(str(rng.choice(names, p=shares / shares.sum())), rng)
        tokens = encode(text)
        if 16 <= len(mels) <= options.longest and encoder_frames(len(mels)) >= len(tokens) + 1:
            shown = normalise(mels)
            items.append((augment.masked(shown, rng) if rng.random() < options.masked else shown, tokens))
    packed = _packed(items, options)
    return [collated([items[i] for i in packed[k]]) for k in rng.permutation(len(packed))]


def batches(
    mixture: Mixture,
    encode: Callable[[str], list[int]],
    options: BatchOptions,
    round_: int = 0,
    within: int = 0,
    every: int = 1,
) -> Iterator[tuple[int, int, Batch]]:
    """Without end, from that round and place: round, place in it, batch. The next round is made ahead.

    every: how far apart the rounds are, for processes that take turns.
    """
    with _pool(mixture, encode, options) as pool:
        ahead = pool.submit(_made, round_)
        while True:
            ready = ahead.result()
            ahead = pool.submit(_made, round_ + every)
            for place in range(within, len(ready)):
                yield round_, place, ready[place]
            round_, within = round_ + every, 0


def _pool(mixture: Mixture, encode: Callable[[str], list[int]], options: BatchOptions) -> Executor:
    if options.process:
        given = (mixture.folder, encode, options)
        return ProcessPoolExecutor(1, get_context("spawn"), initializer=_begin_process, initargs=given)
    return ThreadPoolExecutor(1, initializer=_begin, initargs=(mixture, encode, options))


_here = threading.local()


def _begin_process(folder: Path, encode: Callable[[str], list[int]], options: BatchOptions) -> None:
    os.nice(3)  # training goes first
    torch.set_num_threads(1)
    _begin(Mixture(folder), encode, options)


def _begin(mixture: Mixture, encode: Callable[[str], list[int]], options: BatchOptions) -> None:
    _here.round = partial(one_round, mixture, encode, options)


def _made(number: int) -> list[Batch]:
    return _here.round(number)
