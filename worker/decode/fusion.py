"""How a language model and boosted phrases enter a search's scores, for every hypothesis of a batch at once.

Shallow fusion: the weighted scores of the graphs are added to the log-probabilities of labels, before the
best are chosen or after (NeMo's pruning `late` and `early`). Knows graphs and weights; does not know files,
texts or beams, nor the arithmetic of a step (`kernels.expand`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from kernels.expand import Bonus
from worker.decode.graph import BoundGraph

FusionState = tuple[mx.array, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """The graphs of one kind, one an utterance, and their weights; weight 0 where an utterance has none.

    sentence_end: they give a sentence's end a probability.
    """

    graph: BoundGraph
    alphas: mx.array
    sentence_end: bool


class Fusion:
    """All sources of one batch. `weighted` scores blank too: a label's fused probability is then the
    acoustic one times the chance that there is a label at all, to the power of alpha, times the LM's. `early`
    chooses the best labels without all this; both are of transducers' beams alone."""

    def __init__(self, sources: Sequence[Source], *, weighted: bool = False, early: bool = False) -> None:
        self._sources = tuple(sources)
        self._weighted, self._early = weighted, early
        # Each utterance's own: what its neighbours fuse must not change its blanks.
        self._alphas = mx.array(np.sum([np.array(source.alphas) for source in sources], axis=0))

    def start(self, beam: int) -> FusionState:
        """The states of [B, beam] hypotheses before any token, int32."""
        return tuple(source.graph.start(beam) for source in self._sources)

    def gains(self, state: FusionState) -> mx.array:
        """What each token adds, weighted, float32 [B, K, V]."""
        total: mx.array | None = None
        for source, each in zip(self._sources, state, strict=True):
            total = source.graph.look(each, source.alphas, total)
        assert total is not None
        return total

    def bonus(self, state: FusionState) -> Bonus:
        """What fusion adds to a step of a transducer's beam."""
        return Bonus(self.gains(state), self._alphas, self._weighted, self._early)

    def look(self, state: FusionState) -> tuple[mx.array, FusionState]:
        """`gains` as [B * K, V], and what `follow` wants of this step."""
        gains = self.gains(state)
        return gains.reshape(-1, gains.shape[-1]), state

    def follow(self, state: FusionState, _: FusionState, rows: mx.array, labels: mx.array) -> FusionState:
        """`walk`, of rows [B * K] that know their parents' rows."""
        shape = state[0].shape
        return self.walk(state, rows.reshape(shape) % shape[1], labels.reshape(shape))

    def walk(self, state: FusionState, parents: mx.array, emitted: mx.array) -> FusionState:
        """The states after each slot became its parent (int32 [B, K]) followed by a token, a negative one
        being none."""
        return tuple(
            source.graph.walk(each, parents, emitted)
            for source, each in zip(self._sources, state, strict=True)
        )

    def ends(self, state: FusionState, *, sentence_end: bool) -> mx.array:
        """What the end of the utterance adds, weighted, float32 [B, K]."""
        total = mx.zeros(state[0].shape)
        for source, each in zip(self._sources, state, strict=True):
            if sentence_end or not source.sentence_end:
                total = total + source.graph.ends(each) * source.alphas[:, None]
        return total


def given(bonus: mx.array, rows: mx.array, emitted: mx.array) -> mx.array:
    """What `bonus` [B, K, V] gave the labels `emitted` [B, K] behind slots `rows` [B * K], 0 where none."""
    gains = bonus.reshape(-1, bonus.shape[-1])
    chosen = mx.take(gains.reshape(-1), rows * gains.shape[1] + mx.maximum(emitted, 0).reshape(-1))
    return mx.where(emitted >= 0, chosen.reshape(emitted.shape), 0.0)
