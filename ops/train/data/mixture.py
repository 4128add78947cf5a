"""What the network hears: utterances drawn by kind, varied and joined.

Knows the cache and the augmentations; knows no batch and no network.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from ops.train.data import augment
from ops.train.data.cache import Clip, FeatureSet
from ops.train.data.features import Mels

Rng = np.random.Generator
Utterance = tuple[Mels, str]
T = TypeVar("T")
DIGITS = frozenset(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "oh"])

CUT_SHARE = 0.4  # of the sentences with pauses

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
    "phrase": 0.31,
    "spelled": 0.04,
    "digits": 0.1,
    "words": 0.06,
    "synthetic": 0.34,
    "wordless": 0.08,
    "medley": 0.07,
}


class Mixture:
    """Draws utterances by kind from the sets under a cache folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.train, self.synth = FeatureSet(folder, "train"), FeatureSet(folder, "synth")
        self.noise = FeatureSet(folder, "wordless")
        by_domain: dict[str, list[Clip]] = defaultdict(list)
        for clip in self.train:
            by_domain[clip.domain].append(clip)
        self.open = by_domain["so762"] * 2 + by_domain["libri"] * 5
        self.spelled = [c for c in by_domain["so762"] if set(c.text.split()) <= DIGITS]
        self.words = by_domain["words"]
        self.speakers: dict[str, list[Clip]] = defaultdict(list)
        for clip in by_domain["digits"]:
            self.speakers[clip.speaker].append(clip)
        self.cut = FeatureSet(folder, "cut") if (folder / "cut.jsonl").exists() else None
        self.cut_speakers: dict[str, list[Clip]] = defaultdict(list)
        for clip in self.cut or ():
            self.cut_speakers[clip.speaker].append(clip)
        path = folder / "pauses.json"
        self.pauses: dict[str, list[tuple[int, int]]] = json.loads(path.read_text()) if path.exists() else {}
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
        parts = [self.sentence(_one(self.open, rng), rng)]
        # A chunk of a long recording can hold several voices, whose features are normalised together.
        while rng.random() < 0.35:
            other = self.sentence(_one(self.open, rng), rng)
            if sum(len(m) for m, _ in parts) + len(other[0]) < 1400:
                parts.append(other)
        mels, text = joined(parts, rng, 60)
        return augment.varied(mels, self._bed(rng), rng), text

    def sentence(self, clip: Clip, rng: Rng) -> Utterance:
        """The recording, at times from one of its pauses to another, as a chunk begins and ends."""
        mels, words = self.train.mels(clip), clip.text.split()
        places = [(0, 0), *self.pauses.get(clip.id, ()), (len(words), len(mels))]
        if len(places) > 2 and rng.random() < CUT_SHARE:
            a, b = sorted(rng.choice(len(places), 2, replace=False))
            (word, frame), (last_word, last_frame) = places[a], places[b]
            if last_frame - frame >= 50:
                return mels[frame:last_frame], " ".join(words[word:last_word])
        return mels, clip.text

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
        if self.foreign and rng.random() < 0.75:
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
