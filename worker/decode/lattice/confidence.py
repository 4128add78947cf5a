"""The confidence of each word of a beam's best hypothesis, and its alternatives.

A word's confidence is the share of the kept paths' probability that has this text at this time, times the
share of all probability that the beam kept where the word begins. The first factor alone would be 1 for
whatever all kept paths agree on, and the paths of a narrow beam agree on much that is wrong; the second
counts what the beam dropped as another word. The result is a probability, comparable across files; it says
what the model believes, not whether the model is right.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, fsum

import numpy as np
from numpy.typing import NDArray

from spool.domain.transcript import Alternative, Word
from worker.decode.lattice.word_graph import WordGraph, posteriors, with_shares
from worker.decode.words import CONFIDENCE_DIGITS

ARCS_AT_ONCE = 256
NEAR_FRAMES = 2  # the largest gap between two occurrences of a word that count as the same


@dataclass(frozen=True, slots=True)
class LatticeWord:
    """A text with its encoder frames (half-open) and its probability, 0 to 1."""

    text: str
    start: float
    end: float
    share: float = 0.0


def arc_posteriors(graph: WordGraph) -> WordGraph:
    """The unpruned lattice with each arc's probability as its share."""
    kept: dict[int, list[float]] = {}
    for arc in graph.arcs:
        kept.setdefault(arc.source, []).append(exp(arc.acoustic))
    for state, final in graph.finals.items():
        kept.setdefault(state, []).append(exp(final.acoustic))
    # A link's price compares two frames, so the parts can add up to slightly more than 1.
    part = {state: min(fsum(parts), 1.0) for state, parts in kept.items()}
    shares = [share * part[arc.source] for arc, share in zip(graph.arcs, posteriors(graph), strict=True)]
    return with_shares(graph, shares)


def with_confidence(
    words: Sequence[Word], graph: WordGraph, frame_seconds: float, offset_seconds: float, alternatives: int
) -> list[Word]:
    """The words with their confidence, each with up to `alternatives` others, most probable first.

    words: those of the utterance's best hypothesis, in seconds, with `offset_seconds` added. graph: as
    `arc_posteriors` returns it.
    """
    best = [
        LatticeWord(
            word.text,
            (word.start - offset_seconds) / frame_seconds,
            (word.end - offset_seconds) / frame_seconds,
        )
        for word in words
    ]
    arcs = [LatticeWord(arc.word, arc.start, arc.end, arc.share) for arc in graph.arcs]
    return [
        _with_share(word, slot, alternatives)
        for word, slot in zip(words, confusion_bins(best, arcs), strict=True)
    ]


def confusion_bins(words: Sequence[LatticeWord], arcs: Sequence[LatticeWord]) -> list[dict[str, float]]:
    """For each of `words` (in order) the texts of the arcs over its time, with their probabilities.

    An arc counts for one word: one of the same text, if it is no farther than NEAR_FRAMES, else the one that
    it shares the most time with (of equals the first). An arc that shares time with none counts for none.
    """
    bins: list[dict[str, list[float]]] = [{} for _ in words]
    for first in range(0, len(arcs) if words else 0, ARCS_AT_ONCE):
        block = arcs[first : first + ARCS_AT_ONCE]
        for arc, index in zip(block, _match_words(words, block), strict=True):
            if index >= 0 and arc.text:
                bins[index].setdefault(arc.text, []).append(arc.share)
    return [{text: min(fsum(parts), 1.0) for text, parts in slot.items()} for slot in bins]


def _match_words(words: Sequence[LatticeWord], arcs: Sequence[LatticeWord]) -> list[int]:
    """The index of the word that each arc counts for, -1 for none."""
    numbers: dict[str, int] = {}

    def columns(
        of: Sequence[LatticeWord],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        texts = [numbers.setdefault(each.text, len(numbers)) for each in of]
        times = np.array([(each.start, each.end) for each in of], np.float64)
        return times[:, 0], times[:, 1], np.array(texts, np.int64)

    (starts, ends, texts), (begins, stops, spoken) = columns(words), columns(arcs)
    shared = np.minimum(stops[:, None], ends) - np.maximum(begins[:, None], starts)
    same = (spoken[:, None] == texts) & (shared >= -NEAR_FRAMES)
    allowed = np.where(same.any(axis=1, keepdims=True), same, shared > 0)
    best = np.where(allowed, shared, -np.inf).argmax(axis=1)  # of equals the first
    places: list[int] = np.where(allowed.any(axis=1), best, -1).tolist()
    return places


def _with_share(word: Word, slot: dict[str, float], alternatives: int) -> Word:
    shown = {text: round(share, CONFIDENCE_DIGITS) for text, share in slot.items()}
    others = sorted(
        ((share, text) for text, share in shown.items() if text != word.text and share > 0),
        key=lambda other: (-other[0], other[1]),
    )
    alternates = tuple(Alternative(text=text, confidence=share) for share, text in others[:alternatives])
    return word.model_copy(update={"confidence": shown.get(word.text, 0.0), "alternatives": alternates})
