"""How a language model and boosted phrases enter a search's scores, for every hypothesis of a batch at once.

Shallow fusion: the weighted scores of the graphs are added to the log-probabilities of labels before the
best are chosen (NeMo's `late` pruning). Knows graphs and weights; does not know files, texts or beams.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from worker.decode.graph import BoundGraph

FusionState = tuple[mx.array, ...]
LEAST_LABEL = 0.01  # of a label at all, under `weighted`: NeMo's bound, for bfloat16's sake


@dataclass(frozen=True, slots=True)
class Source:
    """The graphs of one kind, one an utterance, and their weights; weight 0 where an utterance has none.

    sentence_end: they give a sentence's end a probability.
    """

    graph: BoundGraph
    alphas: tuple[float, ...]
    sentence_end: bool

    def weigh(self, costs: mx.array) -> mx.array:
        """Costs of [B * beam] hypotheses ([N] or [N, V]), each by its utterance's weight."""
        alphas = mx.array(self.alphas, mx.float32)
        rows = costs.reshape(len(self.alphas), -1)
        return (rows * alphas[:, None]).reshape(costs.shape)


class Fusion:
    """All sources of one batch. `weighted` scores blank too: a label's fused probability is then the
    acoustic one times the chance that there is a label at all, to the power of alpha, times the LM's."""

    def __init__(self, sources: Sequence[Source], *, weighted: bool = False) -> None:
        self._sources = tuple(sources)
        self._weighted = weighted
        # Each utterance's own: what its neighbours fuse must not change its blanks.
        alphas = np.sum([np.array(source.alphas, np.float32) for source in sources], axis=0)
        self._alpha = mx.array(alphas, mx.float32)[:, None, None]

    def start(self, beam: int) -> FusionState:
        """The states of [B * beam] hypotheses before any token."""
        return tuple(source.graph.start(beam) for source in self._sources)

    def look(self, state: FusionState) -> tuple[mx.array, FusionState]:
        """What each token adds, weighted, float32 [N, V], and the states it leads to, int32 [N, V] each."""
        seen = [source.graph.look(each) for source, each in zip(self._sources, state, strict=True)]
        bonus = sum(
            (source.weigh(costs) for source, (costs, _) in zip(self._sources, seen, strict=True)),
            start=mx.zeros((1, 1)),
        )
        return bonus, tuple(targets for _, targets in seen)

    def combine(self, log_probs: mx.array, bonus: mx.array) -> mx.array:
        """A transducer's log-probabilities [B, K, V + 1], blank last, with what `look` said of them."""
        labels, blank = log_probs[..., :-1] + bonus, log_probs[..., -1:]
        if self._weighted:
            some_label = mx.log1p(-mx.minimum(mx.exp(blank), 1 - LEAST_LABEL))
            labels, blank = labels + self._alpha * some_label, blank * (1 + self._alpha)
        return mx.concatenate([labels, blank], axis=-1)

    @staticmethod
    def follow(state: FusionState, targets: FusionState, rows: mx.array, labels: mx.array) -> FusionState:
        """Row n becomes row rows[n] after labels[n]; a negative label leaves the state. int32 [N] both."""

        def moved(here: mx.array, there: mx.array) -> mx.array:
            chosen = mx.take(there.reshape(-1), rows * there.shape[1] + mx.maximum(labels, 0))
            return mx.where(labels >= 0, chosen, mx.take(here, rows))

        return tuple(moved(here, there) for here, there in zip(state, targets, strict=True))

    def ends(self, state: FusionState, *, sentence_end: bool) -> mx.array:
        """What the end of the utterance adds, weighted, float32 [N]."""
        total = mx.zeros(state[0].shape)
        for source, each in zip(self._sources, state, strict=True):
            if sentence_end or not source.sentence_end:
                total = total + source.weigh(source.graph.ends(each))
        return total
