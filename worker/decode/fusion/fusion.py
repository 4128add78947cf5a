"""Shallow fusion: how a language model and boosted phrases enter a search's scores.

Builds the fusion of one batch from its requests: reads the language model's file (cached), tokenizes the
phrases and binds the graphs to the utterances. During the search it gives each label the graphs' weighted
scores, which are added to the log-probabilities before or after the best labels are chosen (NeMo's pruning
`late` and `early`).

`arpa` has the file format, `ngram` and `phrases` the graphs, and `kernels.search.expand` the arithmetic of a
step.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Protocol

import mlx.core as mx
import numpy as np

from kernels.search.ctc_prefix import Graphs
from kernels.search.expand import Bonus
from spool.errors import InvalidRequest
from worker.decode.fusion.arpa import read_arpa
from worker.decode.fusion.graph import BoundGraph, Graph, join_bounds
from worker.decode.fusion.ngram import language_model
from worker.decode.fusion.phrases import phrase_tree
from worker.decode.fusion.spelling import spell
from worker.models.requests import DecodeRequest, SearchOptions

FusionState = tuple[mx.array, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """The graphs of one kind, one per utterance, and their weights; 0 if an utterance has none.

    sentence_end: whether they give a sentence's end a probability.
    """

    graph: BoundGraph
    alphas: mx.array
    sentence_end: bool


class Fusion:
    """All sources of one batch. `weighted` applies to blank too: a label's fused probability is then the
    acoustic one, times the probability of not being blank to the power of alpha, times the LM's. `early`
    chooses the best labels before fusion; both apply to transducers' beams only."""

    def __init__(self, sources: Sequence[Source], *, weighted: bool = False, early: bool = False) -> None:
        self._sources = tuple(sources)
        self._weighted, self._early = weighted, early
        # Per utterance, so that its neighbours' weights do not change its blanks.
        self._alphas = mx.array(np.sum([np.array(source.alphas) for source in sources], axis=0))

    def select(self, utterances: Sequence[int]) -> "Fusion":
        """The fusion of these utterances only; their states remain valid."""
        rows = mx.array(list(utterances), mx.int32)
        sources = [
            replace(each, graph=each.graph.select(utterances), alphas=each.alphas[rows])
            for each in self._sources
        ]
        return Fusion(sources, weighted=self._weighted, early=self._early)

    def start(self, beam: int) -> FusionState:
        """The states of [B, beam] hypotheses before any token, int32."""
        return tuple(source.graph.start(beam) for source in self._sources)

    def gains(self, state: FusionState) -> mx.array:
        """The weighted score of each token, float32 [B, K, V]."""
        total: mx.array | None = None
        for source, each in zip(self._sources, state, strict=True):
            total = source.graph.label_scores(each, source.alphas, total)
        assert total is not None
        return total

    def bonus(self, state: FusionState) -> Bonus:
        """The bonus for a step of a transducer's beam."""
        return Bonus(self.gains(state), self._alphas, self._weighted, self._early)

    def advance(self, state: FusionState, parents: mx.array, emitted: mx.array) -> FusionState:
        """The states after each slot has become its parent (int32 [B, K]) followed by a token (negative:
        none)."""
        return tuple(
            source.graph.advance(each, parents, emitted)
            for source, each in zip(self._sources, state, strict=True)
        )

    def graphs(self) -> Graphs:
        """All sources in the form of one kernel; `closing` takes the states that it returns."""
        return self._together[0]

    def closing(self, states: FusionState) -> mx.array:
        """The weighted score of the sentence's end in the states [B, K] of each graph, float32 [B, K]."""
        ends = self._together[1]
        total = mx.zeros(states[0].shape)
        for source, each in zip(self._sources, states, strict=True):
            total = total + mx.take(ends, each) * source.alphas[:, None]
        return total

    @cached_property
    def _together(self) -> tuple[Graphs, mx.array]:
        sources = self._sources
        return join_bounds([each.graph for each in sources], [each.alphas for each in sources])

    def ends(self, state: FusionState, *, sentence_end: bool) -> mx.array:
        """The weighted score of the utterance's end, float32 [B, K]."""
        total = mx.zeros(state[0].shape)
        for source, each in zip(self._sources, state, strict=True):
            if sentence_end or not source.sentence_end:
                total = total + source.graph.ends(each) * source.alphas[:, None]
        return total


MOST_PHRASES = 100_000
LONGEST_PHRASE = 200  # characters
Phrases = tuple[str, ...]


class Speller(Hashable, Protocol):
    """What fusion needs of a tokenizer."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """The piece of each id."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text. Raises InvalidRequest where it cannot be written."""


def make_fusion(
    tokenizer: Speller, options: SearchOptions, requests: Sequence[DecodeRequest]
) -> Fusion | None:
    """The language models and phrases that the utterances ask for; None if there are none.

    Raises InvalidRequest: a weight is not finite, an ARPA file is broken, a phrase is too long, a context
    contains an id that is no token.
    """
    if not all(
        math.isfinite(weight) for request in requests for weight in (request.lm_weight, request.boost)
    ):
        raise InvalidRequest("the weights of a language model and of phrases must be finite numbers")
    vocabulary = len(tokenizer.pieces)
    if any(not 0 <= token < vocabulary for request in requests for token in request.context):
        raise InvalidRequest("a context contains an id that is not a token of the model")
    lists = [
        (
            [_model(tokenizer, request.language_model) for request in requests],
            [request.lm_weight for request in requests],
            True,
        ),
        (
            [_phrases(tokenizer, request.phrases) for request in requests],
            [request.boost for request in requests],
            False,
        ),
    ]
    contexts = [request.context for request in requests]
    sources = [
        _source(graphs, alphas, contexts, sentence_end=end) for graphs, alphas, end in lists if any(graphs)
    ]
    early = options.pruning == "early"
    return Fusion(sources, weighted=options.lm_blanks, early=early) if sources else None


def _source(
    graphs: Sequence[Graph | None],
    alphas: Sequence[float],
    contexts: Sequence[tuple[int, ...]],
    *,
    sentence_end: bool,
) -> Source:
    """One graph per utterance; an utterance without one gets any graph with weight 0."""
    filler = next(graph for graph in graphs if graph)
    kinds = list(dict.fromkeys(graph or filler for graph in graphs))
    kinds.sort(key=id)
    bound = BoundGraph(kinds, [kinds.index(graph or filler) for graph in graphs], contexts)
    weights = [alpha if graph else 0.0 for graph, alpha in zip(graphs, alphas, strict=True)]
    return Source(bound, mx.array(weights, mx.float32), sentence_end)


def _model(tokenizer: Speller, path: str | None) -> Graph | None:
    return None if path is None else read_model(Path(path), tokenizer.pieces)


def _phrases(tokenizer: Speller, phrases: Phrases) -> Graph | None:
    return _tree(tokenizer, phrases)[0] if any(phrase.strip() for phrase in phrases) else None


def find_unspelled(tokenizer: Speller, phrases: Phrases) -> list[str]:
    """The phrases that the tokenizer cannot spell in any form; they boost nothing."""
    return _tree(tokenizer, phrases)[1] if any(phrase.strip() for phrase in phrases) else []


def read_model(path: Path, pieces: tuple[str, ...]) -> Graph:
    """The language model of a file as a graph over these tokens, cached until the file changes. Raises
    InvalidRequest as `read_arpa` does."""
    try:
        status = path.stat()
    except OSError as error:
        raise InvalidRequest(f"{path}: the language model cannot be read: {error.strerror}") from error
    return _load_model(path, status.st_mtime_ns, status.st_size, pieces)


@lru_cache(maxsize=4)
def _load_model(path: Path, _changed: int, _size: int, pieces: tuple[str, ...]) -> Graph:
    return language_model(read_arpa(path, pieces), len(pieces))


@lru_cache(maxsize=64)
def _tree(tokenizer: Speller, phrases: Phrases) -> tuple[Graph | None, list[str]]:
    """The graph of phrases (None if it would be empty), and the phrases that cannot be spelled. Blank and
    repeated phrases are ignored."""
    if len(phrases) > MOST_PHRASES:
        raise InvalidRequest(f"{len(phrases)} phrases are more than {MOST_PHRASES}")
    texts = dict.fromkeys(" ".join(phrase.split()) for phrase in phrases)
    for text in texts:
        if len(text) > LONGEST_PHRASE:
            raise InvalidRequest(f"the phrase {text[:40]!r}… is longer than {LONGEST_PHRASE} characters")
    spelled = {text: spell(tokenizer, text) for text in texts if text}
    tokens = [ids for ids in spelled.values() if ids]
    graph = phrase_tree(tokens, len(tokenizer.pieces)) if tokens else None
    return graph, [text for text, ids in spelled.items() if not ids]
