"""Utterances packed into batches of like length.

Batch number n of a seed is always the same batch, whatever came before it, so a run can be taken up again.
Knows the mixture; knows no network.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ops.train.data import augment
from ops.train.data.features import MELS, Mels, normalise
from ops.train.data.mixture import OPEN, Mixture

SPARED = {"synthetic": 0.4}  # masked less often by this: of synthetic speech there is plenty, heard seldom


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
        kind = str(rng.choice(names, p=shares / shares.sum()))
        mels, text = mixture.draw(kind, rng)
        tokens = encode(text)
        if 16 <= len(mels) <= options.longest and encoder_frames(len(mels)) >= len(tokens) + 1:
            shown = normalise(mels)
            masks = rng.random() < options.masked * SPARED.get(kind, 1.0)
            items.append((augment.masked(shown, rng) if masks else shown, tokens))
    packed = _packed(items, options)
    return [collated([items[i] for i in packed[k]]) for k in rng.permutation(len(packed))]


def batches(
    mixture: Mixture,
    encode: Callable[[str], list[int]],
    options: BatchOptions,
    round_: int = 0,
    within: int = 0,
    every: int = 1,
) -> Generator[tuple[int, int, Batch], None, None]:
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
