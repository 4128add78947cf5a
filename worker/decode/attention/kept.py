"""NeMo's beam: a hypothesis that ended stays among the others and competes with them.

`BeamSearchSequenceGenerator` of NeMo 3.0.0 (transformer_generators.py) with three defects repaired: an
end as the first token ends, each candidate is ranked by the length of the hypothesis it comes from, what is
cached follows it. All arrays have the utterances first and stay on the device. Knows no model
and no rule; `loop` drives it. Greedy is a beam of one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.decode.attention.beam import BeamArrays, RankedHypotheses, ScoredTokens, descending, start_arrays

PENALTY_LENGTHS = 4096  # lengths that the table of penalties knows


@dataclass(slots=True)
class KeptState(BeamArrays):
    """The hypotheses in the order of the last ranking, ends among their histories.

    counts int32 [B, K], tokens that are no end; ended bool [B, K]; prompts, steps int32 [B]: tokens before
    the answer, and sampled.
    """

    counts: mx.array
    ended: mx.array
    prompts: mx.array
    steps: mx.array


@dataclass(frozen=True, slots=True)
class KeptBeam:
    """How a batch is searched.

    beam: hypotheses of an utterance. ends: tokens that end one; the last is what one that ended goes on with.
    length_penalty: alpha of ((5 + n) / 6) ** alpha, n = 1 + prompt + tokens (Wu et al. 2016). overrun: tokens
    beyond an utterance's limit; NeMo's beams take one. max_new_tokens: the longest answer, end included.
    """

    ends: tuple[int, ...]
    beam: int = 1
    length_penalty: float = 0.0
    overrun: int = 0
    max_new_tokens: int = 1 << 20

    @property
    def candidates(self) -> int:
        """The best tokens of each hypothesis that are looked at."""
        return self.beam

    def start(self, limits: Sequence[int], prompts: Sequence[int]) -> KeptState:
        """Nothing sampled. limits: the steps that each utterance may take, at least 1; prompts: tokens before
        its answer."""
        shape = (len(limits), self.beam)
        return KeptState(
            **start_arrays(limits, self.beam),
            counts=mx.zeros(shape, mx.int32),
            ended=mx.zeros(shape, mx.bool_),
            prompts=mx.array(list(prompts), mx.int32),
            steps=mx.zeros(shape[0], mx.int32),
        )

    def advance(
        self,
        state: KeptState,
        tokens: mx.array,
        scores: mx.array,
        eos: int,  # noqa: ARG002 - `ends` here
    ) -> tuple[KeptState, mx.array, mx.array]:
        """One step. tokens int32 and scores float32 [B, K, K]: the best of each hypothesis, best first. ->
        the state, and for the next beam its parents and tokens, int32 [B, K]. Those that are done stay as
        they are.

        A hypothesis that ended is one candidate, its score unchanged; of all candidates the K best by
        score / penalty of their parents' lengths are the next beam, in that order.
        """
        count, beam, width = tokens.shape
        first = mx.arange(width) == 0
        stays = mx.where(first, state.scores[:, :, None], -mx.inf)
        total = mx.where(state.ended[:, :, None], stays, state.scores[:, :, None] + scores)
        ranking = total / self._penalties()[self._lengths(state)][:, :, None]
        order = descending(ranking.reshape(count, -1))[:, :beam]
        parents = (order // width).astype(mx.int32)
        chosen = mx.where(state.ended[:, :, None], self.ends[-1], tokens).reshape(count, -1)
        next_tokens = mx.maximum(mx.take_along_axis(chosen, order, axis=1), 0)
        next_scores = mx.take_along_axis(total.reshape(count, -1), order, axis=1)
        ends = mx.any(next_tokens[:, :, None] == mx.array(self.ends), axis=2)
        live = ~state.done
        state.broken = state.broken | (live & ~mx.any(next_scores > -mx.inf, axis=1))
        state.extend(parents, next_tokens, live, state.steps)
        counts = mx.take_along_axis(state.counts, parents, axis=1) + (~ends).astype(mx.int32)
        state.scores = mx.where(live[:, None], next_scores, state.scores)
        state.counts = mx.where(live[:, None], counts, state.counts)
        state.ended = mx.where(live[:, None], ends, state.ended)
        state.steps = state.steps + live.astype(mx.int32)
        finished = mx.all(state.ended, axis=1) | (state.steps >= state.limits) | state.broken
        state.done = state.done | finished
        return state, parents, next_tokens

    def collect(self, state: KeptState, utterance: int) -> RankedHypotheses:
        """The hypotheses of an utterance that is done in the order of the last ranking, and which of them is
        the best by its own length. None if its scores contain NaN."""
        if bool(state.broken[utterance]):
            return RankedHypotheses(())
        steps = int(state.steps[utterance])
        histories = np.array(state.histories[utterance])[:, :steps].tolist()
        scores = np.array(state.scores[utterance]).tolist()
        hypotheses = tuple(
            ScoredTokens(tuple(_before_end(row, self.ends)), score, ended=bool(set(row) & set(self.ends)))
            for row, score in zip(histories, scores, strict=True)
            if np.isfinite(score)
        )
        penalties, prompt = _penalty_table(self.length_penalty), int(state.prompts[utterance])
        ranks = [each.score / penalties[1 + prompt + len(each.tokens)] for each in hypotheses]
        return RankedHypotheses(hypotheses, int(np.argmax(ranks)) if ranks else 0)

    def _lengths(self, state: KeptState) -> mx.array:
        return 1 + state.prompts[:, None] + state.counts

    def _penalties(self) -> mx.array:
        """((5 + n) / 6) ** alpha for n from 0, rounded from 64 bit once."""
        return mx.array(_penalty_table(self.length_penalty))


@cache
def _penalty_table(alpha: float) -> NDArray[np.float32]:
    table: NDArray[np.float32] = (((5 + np.arange(PENALTY_LENGTHS)) / 6) ** alpha).astype(np.float32)
    return table


def _before_end(tokens: Sequence[int], ends: Sequence[int]) -> Sequence[int]:
    return tokens[: next((at for at, token in enumerate(tokens) if token in ends), len(tokens))]
