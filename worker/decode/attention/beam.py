"""One step of a batch's searches: candidates to the next beam, ends to the finished (openai-whisper's
`BeamSearchDecoder`, decoding.py). Greedy is a beam of one.

All arrays have the utterances first and stay on the device. Knows no model and no rule; `loop` drives it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import mlx.core as mx
import numpy as np

GROWTH = 32  # tokens by which the histories grow


@dataclass(slots=True)
class BeamArrays:
    """What every kind of beam keeps of B utterances of K hypotheses, utterances first.

    scores float32 [B, K]; histories int32 [B, K, room]; limits int32 [B], steps that an utterance may take;
    done, broken bool [B]: has its answer, and had scores that are NaN.
    """

    scores: mx.array
    histories: mx.array
    limits: mx.array
    done: mx.array
    broken: mx.array

    def select(self, utterances: Sequence[int]) -> Self:
        """These utterances alone."""
        chosen = mx.array(list(utterances), mx.int32)
        return type(self)(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    @classmethod
    def join(cls, states: Sequence[Self]) -> Self:
        """The utterances of several states, in order."""
        room = max(state.histories.shape[2] for state in states)
        for state in states:
            state.grow(room)
        names = [field.name for field in fields(cls)]
        return cls(**{name: mx.concatenate([getattr(each, name) for each in states]) for name in names})

    def grow(self, room: int) -> None:
        """Makes room for histories of this many tokens."""
        missing = room - self.histories.shape[2]
        if missing <= 0:
            return
        missing = -(-missing // GROWTH) * GROWTH
        for field in fields(self):
            value = getattr(self, field.name)
            if value.ndim == 3:
                setattr(self, field.name, mx.pad(value, [(0, 0), (0, 0), (0, missing)]))

    def extend(self, parents: mx.array, tokens: mx.array, live: mx.array, at: mx.array) -> None:
        """Puts `tokens` [B, K] at place `at` [B] of the histories of `parents` [B, K], where `live` [B]."""
        histories = mx.take_along_axis(self.histories, parents[:, :, None], axis=1)
        at_end = mx.arange(histories.shape[2])[None, None, :] == at[:, None, None]
        extended = mx.where(at_end, tokens[:, :, None], histories)
        self.histories = mx.where(live[:, None, None], extended, self.histories)


def start_arrays(limits: Sequence[int], beam: int) -> dict[str, mx.array]:
    """The fields of `BeamArrays` before anything is sampled."""
    shape = (len(limits), beam)
    # All hypotheses are equal at first: only one of them counts.
    first = mx.where(mx.arange(beam) == 0, 0.0, -mx.inf).astype(mx.float32)
    return {
        "scores": mx.broadcast_to(first, shape),
        "histories": mx.zeros((*shape, GROWTH), mx.int32),
        "limits": mx.array(list(limits), mx.int32),
        "done": mx.zeros(shape[0], mx.bool_),
        "broken": mx.zeros(shape[0], mx.bool_),
    }


@dataclass(slots=True)
class BeamState(BeamArrays):
    """counts int32 [B]: tokens sampled. The finished: scores [B, W], histories [B, W, room], lengths [B, W]
    and how many, int32 [B]."""

    counts: mx.array
    finished_scores: mx.array
    finished_histories: mx.array
    finished_lengths: mx.array
    finished: mx.array


@dataclass(frozen=True, slots=True)
class ScoredTokens:
    """One hypothesis: tokens without prompt and end, the sum of their log-probabilities with the end's where
    it has `ended`."""

    tokens: tuple[int, ...]
    score: float
    ended: bool


@dataclass(frozen=True, slots=True)
class RankedHypotheses:
    """An utterance's hypotheses as its search orders them, and which of them is its answer; none if its
    scores contain NaN."""

    hypotheses: tuple[ScoredTokens, ...]
    answer: int = 0


@dataclass(frozen=True, slots=True)
class BeamSettings:
    """How a batch is searched.

    beam: hypotheses of an utterance; 1 is greedy. patience: an utterance ends when round(beam * patience)
    hypotheses have (half to even, as Python rounds). length_penalty: None ranks by Σ log p / tokens, alpha by
    Σ log p / ((5 + tokens) / 6) ** alpha (Wu et al. 2016). max_new_tokens: the longest answer, end included.
    """

    beam: int = 1
    patience: float = 1.0
    length_penalty: float | None = None
    max_new_tokens: int = 224

    def __post_init__(self) -> None:
        if self.beam < 1 or self.max_new_tokens < 1 or self.wanted < 1:
            raise ValueError("beam, max_new_tokens and round(beam * patience) must be at least 1")

    @property
    def wanted(self) -> int:
        """How many finished hypotheses end an utterance's search."""
        return round(self.beam * self.patience)

    @property
    def candidates(self) -> int:
        """The best tokens of each hypothesis that are looked at: one more than the beam, as one may end."""
        return self.beam + 1 if self.beam > 1 or self.wanted > 1 else 1

    @property
    def overrun(self) -> int:
        """Tokens beyond an utterance's limit."""
        return 0

    def start(self, limits: Sequence[int], prompts: Sequence[int]) -> BeamState:  # noqa: ARG002 - lengths do not count
        """Nothing sampled. limits: the steps that each utterance may take, at least 1."""
        count, wanted = len(limits), self.wanted
        return BeamState(
            **start_arrays(limits, self.beam),
            counts=mx.zeros(count, mx.int32),
            finished_scores=mx.full((count, wanted), -mx.inf, mx.float32),
            finished_histories=mx.zeros((count, wanted, GROWTH), mx.int32),
            finished_lengths=mx.zeros((count, wanted), mx.int32),
            finished=mx.zeros(count, mx.int32),
        )

    def advance(
        self, state: BeamState, tokens: mx.array, scores: mx.array, eos: int
    ) -> tuple[BeamState, mx.array, mx.array]:
        """One step. tokens int32 and scores float32 [B, K, N]: the best of each hypothesis, best first, N the
        beam + 1 (1 where the beam is one hypothesis). -> the state, and for the next beam its parents and
        tokens, int32 [B, K]. Utterances that are done stay as they are.

        All candidates of an utterance are sorted; of those before the K-th that is no end, ends are finished
        while there is room, the others are the next beam.
        """
        count, beam, width = tokens.shape
        total = state.scores[:, :, None] + scores
        flat_scores, flat_tokens = total.reshape(count, -1), tokens.reshape(count, -1)
        # Stable by the order of hypotheses, then of their candidates.
        order = descending(flat_scores)
        ranked_scores = mx.take_along_axis(flat_scores, order, axis=1)
        ranked_tokens = mx.take_along_axis(flat_tokens, order, axis=1)
        ranked_parents = (order // width).astype(mx.int32)
        ends = ranked_tokens == eos
        others = mx.cumsum((~ends).astype(mx.int32), axis=1)  # how many non-ends up to here, itself included
        next_places = mx.where(~ends & (others <= beam), others - 1, -1)
        valid_ends = ends & (others < beam) & (ranked_scores > -mx.inf)
        end_places = mx.where(
            valid_ends, state.finished[:, None] + mx.cumsum(valid_ends.astype(mx.int32), axis=1) - 1, -1
        )
        filled, chosen = _invert_places(next_places, beam)
        next_scores = mx.where(filled, mx.take_along_axis(ranked_scores, chosen, axis=1), -mx.inf)
        next_tokens = mx.where(filled, mx.take_along_axis(ranked_tokens, chosen, axis=1), eos)
        parents = mx.where(filled, mx.take_along_axis(ranked_parents, chosen, axis=1), 0)
        # Padding of too few candidates is a token that costs nothing to compute and never wins.
        next_tokens = mx.maximum(next_tokens, 0)
        state = _with_finished(state, end_places, ranked_scores, ranked_parents, self.wanted)
        live = ~state.done
        state.extend(parents, next_tokens, live, state.counts)
        state.scores = mx.where(live[:, None], next_scores, state.scores)
        state.broken = state.broken | (live & ~mx.any(ranked_scores > -mx.inf, axis=1))
        state.counts = state.counts + live.astype(mx.int32)
        state.done = (
            state.done | (state.finished >= self.wanted) | (state.counts >= state.limits) | state.broken
        )
        return state, parents, next_tokens

    def collect(self, state: BeamState, utterance: int) -> RankedHypotheses:
        """The hypotheses of an utterance that is done, best first, equals in the order they were finished:
        where fewer than the beam have ended, the live ones fill up. Empty if its scores contain NaN."""
        if bool(state.broken[utterance]):
            return RankedHypotheses(())
        histories = np.array(state.finished_histories[utterance])
        lengths = np.array(state.finished_lengths[utterance]).tolist()
        scores = np.array(state.finished_scores[utterance]).tolist()
        candidates = [
            ScoredTokens(tuple(histories[row, : lengths[row]].tolist()), scores[row], ended=True)
            for row in range(int(state.finished[utterance]))
        ]
        live, count = np.array(state.histories[utterance]), int(state.counts[utterance])
        live_scores = np.array(state.scores[utterance])
        # OpenAI sorts from the lowest, stably, and reads it backwards.
        for row in np.argsort(live_scores, kind="stable")[::-1].tolist():
            if len(candidates) >= self.beam:
                break
            candidate = ScoredTokens(tuple(live[row, :count].tolist()), float(live_scores[row]), ended=False)
            if np.isfinite(candidate.score):
                candidates.append(candidate)
        return RankedHypotheses(
            tuple(sorted(candidates, key=lambda each: -self.rank(each.score, len(each.tokens))))
        )

    def rank(self, score: float, tokens: int) -> float:
        """What hypotheses are ordered by, highest first; the end is not counted among the tokens."""
        if self.length_penalty is None:
            return score / max(tokens, 1)
        return score / float(((5 + tokens) / 6) ** self.length_penalty)


def descending(scores: mx.array) -> mx.array:
    """Indices that sort [B, C] from the highest, equals in their order."""
    ahead = scores[:, None, :] > scores[:, :, None]
    equal_before = (scores[:, None, :] == scores[:, :, None]) & mx.tril(
        mx.ones((scores.shape[1], scores.shape[1]), mx.bool_), -1
    )
    ranks = mx.sum((ahead | equal_before).astype(mx.int32), axis=2)
    return mx.argsort(ranks, axis=1).astype(mx.int32)


def _invert_places(places: mx.array, size: int) -> tuple[mx.array, mx.array]:
    """places int32 [B, C]: where each candidate goes, or -1. -> whether each of `size` places is taken, and
    by which candidate."""
    taken = places[:, None, :] == mx.arange(size)[None, :, None]
    return mx.any(taken, axis=2), mx.argmax(taken, axis=2).astype(mx.int32)


def _with_finished(
    state: BeamState, places: mx.array, scores: mx.array, parents: mx.array, wanted: int
) -> BeamState:
    filled, chosen = _invert_places(places, wanted)
    filled = filled & ~state.done[:, None]
    ended = mx.take_along_axis(scores, chosen, axis=1)
    rows = mx.take_along_axis(parents, chosen, axis=1)
    histories = mx.take_along_axis(state.histories, rows[:, :, None], axis=1)
    state.finished_scores = mx.where(filled, ended, state.finished_scores)
    state.finished_histories = mx.where(filled[:, :, None], histories, state.finished_histories)
    state.finished_lengths = mx.where(filled, state.counts[:, None], state.finished_lengths)
    state.finished = state.finished + mx.sum(filled.astype(mx.int32), axis=1)
    return state
