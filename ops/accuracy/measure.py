"""Counts the word errors of sets of utterances for many ways of decoding; each batch is encoded once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from ops.train.data.features import RATE
from ops.train.run.evaluate import SEED, Utterance
from spool.domain.transcript import Word
from spool.wer import WordErrors, total_errors, word_errors
from worker.decode.search import answers
from worker.models.conformer.frames import EncodedFrames
from worker.models.nemo.model import NemoModel
from worker.models.requests import DecodeRequest, SearchOptions

FRAMES_AT_ONCE = 160 * RATE
Asks = Callable[[Utterance], DecodeRequest]


@dataclass(frozen=True)
class Way:
    """One way of decoding: its name, its options, and what each utterance asks for itself."""

    name: str
    options: SearchOptions
    asks: Asks | None = None


@dataclass(frozen=True)
class Heard:
    """Words of each utterance of a set, in the set's order."""

    words: list[list[Word]]

    def text(self, number: int) -> str:
        """The words recognized in utterance `number`."""
        return " ".join(word.text for word in self.words[number])


def batched(utterances: Sequence[Utterance]) -> Iterator[list[int]]:
    """Indices of utterances of like length, together some minutes."""
    order = sorted(range(len(utterances)), key=lambda i: len(utterances[i].audio))
    batch: list[int] = []
    for i in order:
        if batch and (len(batch) + 1) * len(utterances[i].audio) > FRAMES_AT_ONCE:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def heard_by(
    model: NemoModel, utterances: Sequence[Utterance], ways: Sequence[Way], *, whole: bool = False
) -> dict[str, Heard]:
    """What each way hears, by its name; whole: all utterances in one batch."""
    found = {way.name: Heard([[] for _ in utterances]) for way in ways}
    for batch in [list(range(len(utterances)))] if whole else batched(utterances):
        encoded = model.encode([utterances[i].audio for i in batch])
        mx.eval(encoded.frames)
        for way in ways:
            for i, words in zip(
                batch, _words(model, encoded, way, [utterances[i] for i in batch]), strict=True
            ):
                found[way.name].words[i] = words
        mx.clear_cache()
    return found


def _words(
    model: NemoModel, encoded: EncodedFrames, way: Way, spoken: Sequence[Utterance]
) -> list[list[Word]]:
    asks = None if way.asks is None else [way.asks(utterance) for utterance in spoken]
    return [
        answer.words(model.tokenizer, model.frame_seconds)
        for answer in answers(model, encoded, way.options, asks)
    ]


def errors_of(heard: Heard, utterances: Sequence[Utterance]) -> list[WordErrors]:
    """The errors of each utterance."""
    return [word_errors(u.text, heard.text(n)) for n, u in enumerate(utterances)]


@dataclass(frozen=True)
class Difference:
    """Error rate of one way less another's, on the same utterances, with its 95 % interval (bootstrap)."""

    rate: float
    low: float
    high: float

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves out no difference at all."""
        return self.low > 0 or self.high < 0


def difference(one: Sequence[WordErrors], other: Sequence[WordErrors], draws: int = 2000) -> Difference:
    """Paired: every redraw takes the same utterances of both (Bisani and Ney 2004)."""
    gained = np.array([a.edits - b.edits for a, b in zip(one, other, strict=True)])
    words = np.array([a.words for a in one])
    drawn = np.random.default_rng(SEED).integers(0, len(gained), (draws, len(gained)))
    rates = gained[drawn].sum(1) / np.maximum(1, words[drawn].sum(1))
    low, high = np.percentile(rates, [2.5, 97.5])
    return Difference(float(gained.sum() / max(1, words.sum())), float(low), float(high))


def rate(errors: Sequence[WordErrors]) -> float:
    """Word error rate of all together."""
    return total_errors(errors).rate
