"""NeMo's beam: a hypothesis that ended stays among the others and competes with them.

`BeamSearchSequenceGenerator` of NeMo 3.0.0 (transformer_generators.py) with three defects repaired: an
end as the first token ends, each candidate is ranked by the length of the hypothesis it comes from, what is
cached follows it. All arrays have the utterances first and stay on the device. Knows no model
and no rule; `loop` drives it. Greedy is a beam of one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.decode.attention.beam import GROWTH, RankedHypotheses, ScoredTokens, descending

PENALTY_LENGTHS = 4096  # lengths that the table of penalties knows


@dataclass(slots=True)
class KeptState:
    """B utterances of K hypotheses, in the order of the last ranking.

    scores float32 [B, K]; histories int32 [B, K, room], ends among them; counts int32 [B, K], tokens that are
    no end; ended bool [B, K]; prompts, steps, limits int32 [B]: tokens before the answer, sampled, and that
    may be sampled; done, broken bool [B]: has its answer, and had numbers that are none.
    """

    scores: mx.array
    histories: mx.array
    counts: mx.array
    ended: mx.array
    prompts: mx.array
    steps: mx.array
    limits: mx.array
    done: mx.array
    broken: mx.array

    def select(self, utterances: Sequence[int]) -> "KeptState":
        """These utterances alone."""
        chosen = mx.array(list(utterances), mx.int32)
        return KeptState(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    def grow(self, room: int) -> None:
        """Makes room for histories of this many tokens."""
        missing = room - self.histories.shape[2]
        if missing > 0:
            missing = -(-missing // GROWTH) * GROWTH
            self.histories = mx.pad(self.histories, [(0, 0), (0, 0), (0, missing)])


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
        # All hypotheses are equal at first: only one of them counts.
        first = mx.where(mx.arange(self.beam) == 0, 0.0, -mx.inf).astype(mx.float32)
        return KeptState(
            scores=mx.broadcast_to(first, shape),
            histories=mx.zeros((*shape, GROWTH), mx.int32),
            counts=mx.zeros(shape, mx.int32),
            ended=mx.zeros(shape, mx.bool_),
            prompts=mx.array(list(prompts), mx.int32),
            steps=mx.zeros(shape[0], mx.int32),
            limits=mx.array(list(limits), mx.int32),
            done=mx.zeros(shape[0], mx.bool_),
            broken=mx.zeros(shape[0], mx.bool_),
        )

    def join(self, states: Sequence[KeptState]) -> KeptState:
        """The utterances of several states, in order."""
        room = max(state.histories.shape[2] for state in states)
        for state in states:
            state.grow(room)
        names = [field.name for field in fields(KeptState)]
        return KeptState(**{name: mx.concatenate([getattr(each, name) for each in states]) for name in names})

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
        histories = mx.take_along_axis(state.histories, parents[:, :, None], axis=1)
        at_end = mx.arange(histories.shape[2])[None, None, :] == state.steps[:, None, None]
        histories = mx.where(at_end, next_tokens[:, :, None], histories)
        counts = mx.take_along_axis(state.counts, parents, axis=1) + (~ends).astype(mx.int32)
        state.histories = mx.where(live[:, None, None], histories, state.histories)
        state.scores = mx.where(live[:, None], next_scores, state.scores)
        state.counts = mx.where(live[:, None], counts, state.counts)
        state.ended = mx.where(live[:, None], ends, state.ended)
        state.steps = state.steps + live.astype(mx.int32)
        finished = mx.all(state.ended, axis=1) | (state.steps >= state.limits) | state.broken
        state.done = state.done | finished
        return state, parents, next_tokens

    def collect(self, state: KeptState, utterance: int) -> RankedHypotheses:
        """The hypotheses of an utterance that is done in the order of the last ranking, and which of them is
        the best by its own length. None where its numbers were none."""
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
