"""The beam over an attention decoder: one search, and the rules of what becomes of a hypothesis that ended.

`AttentionSearch` makes one pass of the decoder over every live hypothesis in each step; finished utterances
leave and waiting ones enter between steps. The rules are

- `BeamSettings`: it is set aside until enough have ended (openai-whisper's `BeamSearchDecoder`, decoding.py);
- `KeptBeam`: it stays among the others and competes with them, its length counted (NeMo);
- `SumBeam`: it stays, and only sums are compared until the search is over (WeNet);
- `GenerateBeam`: it is set aside, and a better one takes its place, until no other can (transformers).

Greedy is a beam of one. All arrays have the utterances first and stay on the device. Knows no model.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Self

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.decode.attention.fused import FusedTokens
from worker.decode.fusion.fusion import FusionState
from worker.models.attention.layers import log_sum_exp
from worker.models.base_attention import AttentionHead, LogitsRules, RuleState, Trail, TrailHead
from worker.models.turns import give_way

GROWTH = 32  # tokens by which the histories grow
PENALTY_LENGTHS = 4096  # lengths that the table of penalties knows
# The host asks a GPU only now and then who has ended: an answer stops what is under way.
STEPS_BETWEEN_CHECKS = 8
# Leaving and entering copy the live rows' keys and values: worth it for an eighth of them.
WORTH_A_CHANGE = 0.125


@dataclass(frozen=True, slots=True)
class ScoredTokens:
    """One hypothesis: tokens without prompt and end, the sum of their log-probabilities with the end's where
    it has `ended`. log_probs: of each token, if the rule keeps them."""

    tokens: tuple[int, ...]
    score: float
    ended: bool
    log_probs: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """An utterance's hypotheses as its search orders them, and the index of the answer; none if its scores
    contain NaN. key: its request's. trail: of an only hypothesis that ended, where the decoder keeps it."""

    hypotheses: tuple[ScoredTokens, ...]
    answer: int = 0
    key: Hashable = None
    trail: Trail | None = None


@dataclass(slots=True)
class BeamArrays:
    """What every rule keeps of B utterances of K hypotheses.

    scores float32 [B, K]; histories int32 [B, K, room]; limits, steps int32 [B]: steps that an utterance may
    take, and has taken; done, has_nan bool [B]: it has its answer; its scores contain NaN.
    """

    scores: mx.array
    histories: mx.array
    limits: mx.array
    steps: mx.array
    done: mx.array
    has_nan: mx.array

    def select(self, utterances: Sequence[int]) -> Self:
        """These utterances alone."""
        chosen = mx.array(list(utterances), mx.int32)
        return type(self)(**{name: value[chosen] for name, value in self._arrays().items()})

    @classmethod
    def join(cls, states: Sequence[Self]) -> Self:
        """The utterances of several states, in order."""
        room = max(state.histories.shape[2] for state in states)
        for state in states:
            state.grow(room)
        arrays = [state._arrays() for state in states]
        return cls(**{name: mx.concatenate([each[name] for each in arrays]) for name in arrays[0]})

    def grow(self, room: int) -> None:
        """Makes room for histories of this many tokens."""
        missing = room - self.histories.shape[2]
        if missing <= 0:
            return
        missing = -(-missing // GROWTH) * GROWTH
        for name, value in self._arrays().items():
            if value.ndim == 3:
                setattr(self, name, mx.pad(value, [(0, 0), (0, 0), (0, missing)]))

    def _arrays(self) -> dict[str, mx.array]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def extend(self, histories: mx.array, parents: mx.array, values: mx.array) -> mx.array:
        """`histories` [B, K, room] of `parents` [B, K], each with one of `values` [B, K] behind it; those of
        utterances that are done as they are."""
        moved = mx.take_along_axis(histories, parents[:, :, None], axis=1)
        at_end = mx.arange(moved.shape[2])[None, None, :] == self.steps[:, None, None]
        extended = mx.where(at_end, values[:, :, None], moved)
        return mx.where(self.done[:, None, None], histories, extended)

    def count_step(self, finished: mx.array, has_scores: mx.array) -> None:
        """Ends a step: `finished` bool [B] of those that end by the rule, `has_scores` bool [B] where a
        candidate's score is a number."""
        live = ~self.done
        self.has_nan = self.has_nan | (live & ~has_scores)
        self.steps = self.steps + live.astype(mx.int32)
        self.done = self.done | finished | (self.steps >= self.limits) | self.has_nan


def start_arrays(limits: Sequence[int], beam: int) -> dict[str, mx.array]:
    """The fields of `BeamArrays` before anything is sampled."""
    shape = (len(limits), beam)
    # All hypotheses are equal at first: only one of them counts.
    first = mx.where(mx.arange(beam) == 0, 0.0, -mx.inf).astype(mx.float32)
    return {
        "scores": mx.broadcast_to(first, shape),
        "histories": mx.zeros((*shape, GROWTH), mx.int32),
        "limits": mx.array(list(limits), mx.int32),
        "steps": mx.zeros(shape[0], mx.int32),
        "done": mx.zeros(shape[0], mx.bool_),
        "has_nan": mx.zeros(shape[0], mx.bool_),
    }


# --- set aside (OpenAI) -------------------------------------------------------------------------------------


@dataclass(slots=True)
class BeamState(BeamArrays):
    """The finished: scores [B, W], histories [B, W, room], lengths [B, W] and how many, int32 [B]."""

    finished_scores: mx.array
    finished_histories: mx.array
    finished_lengths: mx.array
    finished: mx.array


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
        order = sort_descending(flat_scores)
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
        _set_aside(state, end_places, ranked_scores, ranked_parents)
        state.histories = state.extend(state.histories, parents, next_tokens)
        state.scores = mx.where(state.done[:, None], state.scores, next_scores)
        state.count_step(state.finished >= self.wanted, mx.any(ranked_scores > -mx.inf, axis=1))
        return state, parents, next_tokens

    def collect(self, state: BeamState, utterance: int) -> SearchAnswer:
        """The hypotheses of an utterance that is done, best first, equals in the order they were finished:
        where fewer than the beam have ended, the live ones fill up. Empty if its scores contain NaN."""
        if bool(state.has_nan[utterance]):
            return SearchAnswer(())
        histories = np.array(state.finished_histories[utterance])
        lengths = np.array(state.finished_lengths[utterance]).tolist()
        scores = np.array(state.finished_scores[utterance]).tolist()
        candidates = [
            ScoredTokens(tuple(histories[row, : lengths[row]].tolist()), scores[row], ended=True)
            for row in range(int(state.finished[utterance]))
        ]
        live, count = np.array(state.histories[utterance]), int(state.steps[utterance])
        live_scores = np.array(state.scores[utterance])
        # OpenAI sorts from the lowest, stably, and reads it backwards.
        for row in np.argsort(live_scores, kind="stable")[::-1].tolist():
            if len(candidates) >= self.beam:
                break
            candidate = ScoredTokens(tuple(live[row, :count].tolist()), float(live_scores[row]), ended=False)
            if np.isfinite(candidate.score):
                candidates.append(candidate)
        return SearchAnswer(
            tuple(sorted(candidates, key=lambda each: -self.rank(each.score, len(each.tokens))))
        )

    def rank(self, score: float, tokens: int) -> float:
        """What hypotheses are ordered by, highest first; the end is not counted among the tokens."""
        if self.length_penalty is None:
            return score / max(tokens, 1)
        return score / float(((5 + tokens) / 6) ** self.length_penalty)


def sort_descending(scores: mx.array) -> mx.array:
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


def _set_aside(state: BeamState, places: mx.array, scores: mx.array, parents: mx.array) -> None:
    """Puts candidates that ended at their `places` [B, C] among the finished; -1 is none."""
    filled, chosen = _invert_places(places, state.finished_scores.shape[1])
    filled = filled & ~state.done[:, None]
    ended = mx.take_along_axis(scores, chosen, axis=1)
    rows = mx.take_along_axis(parents, chosen, axis=1)
    histories = mx.take_along_axis(state.histories, rows[:, :, None], axis=1)
    state.finished_scores = mx.where(filled, ended, state.finished_scores)
    state.finished_histories = mx.where(filled[:, :, None], histories, state.finished_histories)
    state.finished_lengths = mx.where(filled, state.steps[:, None], state.finished_lengths)
    state.finished = state.finished + mx.sum(filled.astype(mx.int32), axis=1)


# --- kept (NeMo, WeNet) -------------------------------------------------------------------------------------


@dataclass(slots=True)
class KeptState(BeamArrays):
    """The hypotheses in the order of the last ranking, ends among their histories.

    counts int32 [B, K], tokens that are no end; ended bool [B, K]; prompts int32 [B]: tokens before the
    answer. log_probs float32 [B, K, room]: of the histories, if the rule keeps them.
    """

    counts: mx.array
    ended: mx.array
    prompts: mx.array
    log_probs: mx.array | None = None


@dataclass(frozen=True, slots=True)
class KeptBeam:
    """How a batch is searched: `BeamSearchSequenceGenerator` of NeMo 3.0.0 (transformer_generators.py) with
    three defects repaired: an end as the first token ends, each candidate is ranked by the length of the
    hypothesis it comes from, what is cached follows it.

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
        `_rank` are the next beam, in that order.
        """
        count, beam, width = tokens.shape
        first = mx.arange(width) == 0
        stays = mx.where(first, state.scores[:, :, None], -mx.inf)
        total = mx.where(state.ended[:, :, None], stays, state.scores[:, :, None] + scores)
        order = sort_descending(self._rank(state, total).reshape(count, -1))[:, :beam]
        parents = (order // width).astype(mx.int32)
        chosen = mx.where(state.ended[:, :, None], self.ends[-1], tokens).reshape(count, -1)
        next_tokens = mx.maximum(mx.take_along_axis(chosen, order, axis=1), 0)
        next_scores = mx.take_along_axis(total.reshape(count, -1), order, axis=1)
        ends = mx.any(next_tokens[:, :, None] == mx.array(self.ends), axis=2)
        done = state.done[:, None]
        state.histories = state.extend(state.histories, parents, next_tokens)
        if state.log_probs is not None:
            given = mx.where(state.ended[:, :, None], 0.0, scores).reshape(count, -1)
            added = mx.take_along_axis(given, order, axis=1)
            state.log_probs = state.extend(state.log_probs, parents, added)
        counts = mx.take_along_axis(state.counts, parents, axis=1) + (~ends).astype(mx.int32)
        state.scores = mx.where(done, state.scores, next_scores)
        state.counts = mx.where(done, state.counts, counts)
        state.ended = mx.where(done, state.ended, ends)
        state.count_step(mx.all(state.ended, axis=1), self._has_scores(next_scores))
        return state, parents, next_tokens

    def collect(self, state: KeptState, utterance: int) -> SearchAnswer:
        """The hypotheses of an utterance that is done in the order of the last ranking, and which of them is
        the best by its own length. Empty if its scores contain NaN."""
        hypotheses = self._list_hypotheses(state, utterance)
        penalties, prompt = _penalty_table(self.length_penalty), int(state.prompts[utterance])
        ranks = [each.score / penalties[1 + prompt + len(each.tokens)] for each in hypotheses]
        return SearchAnswer(hypotheses, int(np.argmax(ranks)) if ranks else 0)

    def _rank(self, state: KeptState, totals: mx.array) -> mx.array:
        """What candidates of `totals` [B, K, K] are ordered by: score / penalty of their parents' lengths."""
        # The penalties are rounded from 64 bit once.
        penalties = mx.array(_penalty_table(self.length_penalty))
        return totals / penalties[1 + state.prompts[:, None] + state.counts][:, :, None]

    def _has_scores(self, scores: mx.array) -> mx.array:
        return mx.any(scores > -mx.inf, axis=1)

    def _list_hypotheses(self, state: KeptState, utterance: int) -> tuple[ScoredTokens, ...]:
        if bool(state.has_nan[utterance]):
            return ()
        steps = int(state.steps[utterance])
        histories = np.array(state.histories[utterance])[:, :steps].tolist()
        log_probs: list[list[float]] = [[] for _ in histories]
        if state.log_probs is not None:
            log_probs = np.array(state.log_probs[utterance])[:, :steps].tolist()
        hypotheses = []
        for row, score, each in zip(
            histories, np.array(state.scores[utterance]).tolist(), log_probs, strict=True
        ):
            count = next((at for at, token in enumerate(row) if token in self.ends), len(row))
            if np.isfinite(score):
                # The sum of what was added, where it is known: float32 rounds `score` at every step.
                exact = float(np.cumsum(each, dtype=np.float64)[-1]) if each else score
                hypotheses.append(
                    ScoredTokens(tuple(row[:count]), exact, count < len(row), tuple(each[:count]))
                )
        return tuple(hypotheses)


@cache
def _penalty_table(alpha: float) -> NDArray[np.float32]:
    table: NDArray[np.float32] = (((5 + np.arange(PENALTY_LENGTHS)) / 6) ** alpha).astype(np.float32)
    return table


@dataclass(frozen=True, slots=True)
class SumBeam(KeptBeam):
    """As `KeptBeam`, but candidates are ordered by their sums alone. Once the search is over, the best is the
    one of the highest score / tokens ** length_penalty; start_counts: whether the start is one of these
    tokens. Keeps the log-probability of each token."""

    start_counts: bool = True

    def start(self, limits: Sequence[int], prompts: Sequence[int]) -> KeptState:
        state = KeptBeam.start(self, limits, prompts)
        state.log_probs = mx.zeros(state.histories.shape, mx.float32)
        return state

    def collect(self, state: KeptState, utterance: int) -> SearchAnswer:
        """The hypotheses of an utterance that is done, best first. Empty if its scores contain NaN."""

        def rank(each: ScoredTokens) -> float:
            count = len(each.tokens) + self.start_counts
            if count == 0:
                return each.score if self.length_penalty == 0 else -np.inf
            return each.score / float(count**self.length_penalty)

        return SearchAnswer(
            tuple(sorted(self._list_hypotheses(state, utterance), key=lambda each: -rank(each)))
        )

    def _rank(self, state: KeptState, totals: mx.array) -> mx.array:  # noqa: ARG002 - no length counts
        return totals

    def _has_scores(self, scores: mx.array) -> mx.array:
        # A sum is NaN where an element is, and what is NaN is ordered first.
        return KeptBeam._has_scores(self, scores) & ~mx.isnan(mx.sum(scores, axis=1))


# --- set aside, the best of all (transformers) --------------------------------------------------------------


@dataclass(slots=True)
class GenerateState(BeamArrays):
    """log_probs float32 [B, K, room], of the histories. The finished, best first: ranks (-inf where there is
    none) and sums [B, K], histories with the log-probabilities of their tokens [B, K, room], lengths int32
    [B, K] without an end, and whether there is one, bool [B, K]."""

    log_probs: mx.array
    ranks: mx.array
    sums: mx.array
    finished: mx.array
    finished_log_probs: mx.array
    lengths: mx.array
    ended: mx.array


@dataclass(frozen=True, slots=True)
class GenerateBeam:
    """How a batch is searched: `generate()` of transformers 5.24 (generation/utils.py, `_beam_search`) with
    `early_stopping` false.

    beam: hypotheses of an utterance. ends: tokens that end one. length_penalty: alpha of sum / n ** alpha, n
    its tokens, the end among them. max_new_tokens: the longest answer, end included; what it cuts is
    finished too.
    """

    ends: tuple[int, ...]
    beam: int = 1
    length_penalty: float = 1.0
    max_new_tokens: int = PENALTY_LENGTHS - 1

    @property
    def candidates(self) -> int:
        """The best tokens of each hypothesis that are looked at: the beam's, and as many as may be ends."""
        return self.beam + len(self.ends) if self.beam > 1 else 1

    @property
    def overrun(self) -> int:
        """Tokens beyond an utterance's limit."""
        return 0

    def start(self, limits: Sequence[int], prompts: Sequence[int]) -> GenerateState:  # noqa: ARG002 - lengths do not count
        """Nothing sampled. limits: the steps that each utterance may take, at least 1."""
        shape = (len(limits), self.beam)
        return GenerateState(
            **start_arrays(limits, self.beam),
            log_probs=mx.zeros((*shape, GROWTH), mx.float32),
            ranks=mx.full(shape, -mx.inf, mx.float32),
            sums=mx.full(shape, -mx.inf, mx.float32),
            finished=mx.zeros((*shape, GROWTH), mx.int32),
            finished_log_probs=mx.zeros((*shape, GROWTH), mx.float32),
            lengths=mx.zeros(shape, mx.int32),
            ended=mx.zeros(shape, mx.bool_),
        )

    def advance(
        self,
        state: GenerateState,
        tokens: mx.array,
        scores: mx.array,
        eos: int,  # noqa: ARG002 - `ends` here
    ) -> tuple[GenerateState, mx.array, mx.array]:
        """One step. tokens int32 and scores float32 [B, K, N]: the best of each hypothesis, best first. ->
        the state, and for the next beam its parents and tokens, int32 [B, K]. Utterances that are done stay
        as they are.

        A candidate is over if it is an end or the last that the limit allows. Of the K best, those that are
        over join the finished, of which the K best by sum / n ** alpha stay; the K best that are not over go
        on, while one of them might take the place of a finished one.
        """
        count, beam, width = tokens.shape
        total = (state.scores[:, :, None] + scores).reshape(count, -1)
        order = sort_descending(total)
        ranked = mx.take_along_axis(total, order, axis=1)
        ranked_tokens = mx.take_along_axis(tokens.reshape(count, -1), order, axis=1)
        ranked_parents = (order // width).astype(mx.int32)
        added = mx.take_along_axis(scores.reshape(count, -1), order, axis=1)
        ends = mx.any(ranked_tokens[:, :, None] == mx.array(self.ends), axis=2)
        over = ends | (state.steps + 1 >= state.limits)[:, None]
        penalty = mx.array(_length_table(self.length_penalty))[state.steps + 1][:, None]
        first = slice(0, beam)
        ranks = mx.where(over & (ranked > -mx.inf), ranked / penalty, -mx.inf)[:, first]
        columns = (ranked, ranked_parents, ranked_tokens, added, ends)
        self._finish(state, ranks, *(each[:, first] for each in columns))
        places = mx.where(~over, mx.cumsum((~over).astype(mx.int32), axis=1) - 1, -1)
        filled, chosen = _invert_places(places, beam)
        parents = mx.where(filled, mx.take_along_axis(ranked_parents, chosen, axis=1), 0)
        # Padding of too few candidates is a token that costs nothing to compute and never wins.
        next_tokens = mx.maximum(
            mx.where(filled, mx.take_along_axis(ranked_tokens, chosen, axis=1), self.ends[-1]), 0
        )
        next_scores = mx.where(filled, mx.take_along_axis(ranked, chosen, axis=1), -mx.inf)
        state.histories = state.extend(state.histories, parents, next_tokens)
        next_log_probs = mx.take_along_axis(added, chosen, axis=1)
        state.log_probs = state.extend(state.log_probs, parents, next_log_probs)
        state.scores = mx.where(state.done[:, None], state.scores, next_scores)
        # The worst of the finished is -inf until there are enough of them.
        hopeless = next_scores[:, 0] / penalty[:, 0] <= state.ranks[:, -1]
        has_scores = mx.any(total > -mx.inf, axis=1) & ~mx.any(mx.isnan(total), axis=1)
        state.count_step(hopeless | (next_scores[:, 0] == -mx.inf), has_scores)
        return state, parents, next_tokens

    def _finish(
        self,
        state: GenerateState,
        ranks: mx.array,
        sums: mx.array,
        parents: mx.array,
        tokens: mx.array,
        added: mx.array,
        ends: mx.array,
    ) -> None:
        """Candidates of `ranks` [B, K], -inf where one is not over, join the finished."""
        done = state.done
        lengths = mx.broadcast_to(state.steps[:, None], ends.shape) + (~ends).astype(mx.int32)
        pool = mx.concatenate([state.ranks, ranks], axis=1)
        best = sort_descending(pool)[:, : self.beam]

        def choose(old: mx.array, new: mx.array) -> mx.array:
            joined = mx.take_along_axis(mx.concatenate([old, new], axis=1), best, axis=1)
            return mx.where(done[:, None], old, joined)

        state.ranks, state.sums = choose(state.ranks, ranks), choose(state.sums, sums)
        state.lengths, state.ended = choose(state.lengths, lengths), choose(state.ended, ends)

        def choose_rows(old: mx.array, new: mx.array) -> mx.array:
            joined = mx.take_along_axis(mx.concatenate([old, new], axis=1), best[:, :, None], axis=1)
            return mx.where(done[:, None, None], old, joined)

        state.finished = choose_rows(state.finished, state.extend(state.histories, parents, tokens))
        state.finished_log_probs = choose_rows(
            state.finished_log_probs, state.extend(state.log_probs, parents, added)
        )

    def collect(self, state: GenerateState, utterance: int) -> SearchAnswer:
        """The finished of an utterance that is done, best first. Empty if its scores contain NaN."""
        if bool(state.has_nan[utterance]):
            return SearchAnswer(())
        rows = zip(
            np.array(state.ranks[utterance]).tolist(),
            np.array(state.sums[utterance]).tolist(),
            np.array(state.lengths[utterance]).tolist(),
            np.array(state.ended[utterance]).tolist(),
            np.array(state.finished[utterance]).tolist(),
            np.array(state.finished_log_probs[utterance]).tolist(),
            strict=True,
        )
        return SearchAnswer(
            tuple(
                ScoredTokens(tuple(history[:length]), total, ended, tuple(log_probs[:length]))
                for rank, total, length, ended, history, log_probs in rows
                if rank > -np.inf
            )
        )


@cache
def _length_table(alpha: float) -> NDArray[np.float32]:
    # The first entry is of no tokens, which nothing is divided by.
    table: NDArray[np.float32] = (np.maximum(np.arange(PENALTY_LENGTHS), 1.0) ** alpha).astype(np.float32)
    return table


Beams = BeamSettings | KeptBeam | GenerateBeam


# --- the search ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One utterance. encoded: the output of the family's encoder. prompt: at least one token. options: those
    of the family's rules. limit: the most tokens of its answer, None for the search's limit. fused: its row
    in the search's fusion."""

    key: Hashable
    encoded: Any
    prompt: tuple[int, ...]
    options: Any = None
    limit: int | None = None
    fused: int = 0


@dataclass(slots=True)
class _Live:
    """The live utterances, row by row."""

    requests: list[SearchRequest]
    kv: Any
    rules: RuleState
    beams: Any
    tokens: mx.array  # int32 [B, K], fed next
    answered: list[bool]
    taken: NDArray[np.int32]  # steps of each, counted on the host to avoid reading back
    fusion: FusedTokens | None
    fused: FusionState
    log_probs: mx.array | None  # float32 [B, 1, room], of the tokens among text, where trails are kept


class AttentionSearch:
    """Searches utterances as they are added, at most `width` of them at a time."""

    def __init__(
        self,
        head: AttentionHead[Any],
        rules: LogitsRules,
        settings: Beams,
        width: int = 32,
        fusion: FusedTokens | None = None,
    ) -> None:
        self.head, self.rules, self.settings, self.fusion = head, rules, settings, fusion
        self.width = width
        self._waiting: deque[SearchRequest] = deque()
        self._live: _Live | None = None
        on_gpu = mx.default_device() != mx.Device(mx.cpu)
        self._between = STEPS_BETWEEN_CHECKS if on_gpu else 1
        self._steps = 0
        one_answer = isinstance(settings, BeamSettings) and settings.wanted == 1
        traced = head if one_answer and isinstance(head, TrailHead) else None
        self._traced = traced if traced is not None and traced.keeps_trail(settings.beam) else None

    def add(self, request: SearchRequest) -> None:
        """Queue an utterance; it enters when there is room. Raises ValueError if its prompt leaves no room
        for an answer."""
        if not 0 < len(request.prompt) < self.head.max_tokens:
            raise ValueError(
                f"a prompt has 1 to {self.head.max_tokens - 1} tokens; this one has {len(request.prompt)}"
            )
        self._waiting.append(request)

    @property
    def pending(self) -> int:
        """The number of utterances without an answer."""
        live = self._live.answered.count(False) if self._live else 0
        return len(self._waiting) + live

    def step(self) -> list[SearchAnswer]:
        """Advance all utterances by one step; returns the answers of those that ended."""
        self._admit()
        live = self._live
        if live is None:
            return []
        count, beam = len(live.requests), self.settings.beam
        logits, live.kv = self.head.step(live.tokens, live.kv)
        candidates = self.settings.candidates
        gains = None if live.fusion is None else live.fusion.gains(live.fused, logits.shape[1])
        tokens, scores = self.rules.best(logits, live.rules, candidates, gains)
        shape = (count, beam, candidates)
        live.taken += 1
        live.beams.grow(int(live.taken.max()))
        if live.log_probs is not None:
            live.log_probs = self._keep_log_probs(live, logits, tokens)
        live.beams, parents, live.tokens = self.settings.advance(
            live.beams, tokens.reshape(shape), scores.reshape(shape), self.head.eos
        )
        if beam > 1:
            live.kv = self.head.reorder(live.kv, parents)
            live.rules = {
                name: mx.take_along_axis(value, parents, axis=1) for name, value in live.rules.items()
            }
        if live.fusion is not None:
            live.fused = live.fusion.advance(live.fused, parents, live.tokens)
        live.rules = self.rules.advance(live.rules, live.tokens)
        self._steps += 1
        if self._steps % self._between:
            mx.async_eval(live.tokens, live.beams.done)  # type: ignore[no-untyped-call]
            return []
        give_way(live.tokens, live.beams.done)
        return self._collect()

    def run(self, requests: Iterable[SearchRequest]) -> list[SearchAnswer]:
        """The answers of these utterances, in their order."""
        order = []
        for request in requests:
            order.append(request.key)
            self.add(request)
        answers = {}
        while self.pending:
            answers.update({answer.key: answer for answer in self.step()})
        return [answers[key] for key in order]

    def _keep_log_probs(self, live: _Live, logits: mx.array, tokens: mx.array) -> mx.array:
        """With those of one token more: tokens int32 [B, 1], each among the tokens below the end."""
        assert live.log_probs is not None
        text = logits[:, : self.head.eos]
        chosen = mx.take_along_axis(logits, mx.maximum(tokens, 0), axis=1)
        added = chosen.astype(mx.float32) - log_sum_exp(text)
        room = live.beams.histories.shape[2]
        known = mx.pad(live.log_probs, [(0, 0), (0, 0), (0, room - live.log_probs.shape[2])])
        kept: mx.array = live.beams.extend(known, mx.zeros(tokens.shape, mx.int32), added)
        return kept

    def _admit(self) -> None:
        live = self._live
        room = self.width - (live.answered.count(False) if live else 0)
        worth = live is None or room >= max(1, self.width * WORTH_A_CHANGE)
        if not self._waiting or room <= 0 or not worth:
            return
        requests = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
        entered = self._start(requests)
        if live is None:
            self._live = entered
            return
        self._drop_answered()
        self._live = entered if self._live is None else self._join(self._live, entered)

    def _start(self, requests: Sequence[SearchRequest]) -> _Live:
        beam, prompts = self.settings.beam, [request.prompt for request in requests]
        kv = self.head.start([request.encoded for request in requests], prompts, beam)
        # The model's context bounds a sequence, including its prompt.
        limits = [
            min(
                self.settings.max_new_tokens,
                self.head.max_tokens - len(request.prompt) + 1,
                self.head.max_tokens if request.limit is None else request.limit + self.settings.overrun,
            )
            for request in requests
        ]
        last = mx.array([[prompt[-1]] * beam for prompt in prompts], mx.int32)
        fusion = self._fusion_of(requests)
        return _Live(
            list(requests),
            kv,
            self.rules.start([request.options for request in requests], beam),
            self.settings.start(limits, [len(prompt) for prompt in prompts]),
            last,
            [False] * len(requests),
            np.zeros(len(requests), np.int32),
            fusion,
            () if fusion is None else fusion.start(beam),
            mx.zeros((len(requests), 1, GROWTH)) if self._traced is not None else None,
        )

    def _fusion_of(self, requests: Sequence[SearchRequest]) -> FusedTokens | None:
        return None if self.fusion is None else self.fusion.select([each.fused for each in requests])

    def _join(self, first: _Live, second: _Live) -> _Live:
        return _Live(
            first.requests + second.requests,
            self.head.join([first.kv, second.kv]),
            {name: mx.concatenate([value, second.rules[name]]) for name, value in first.rules.items()},
            first.beams.join([first.beams, second.beams]),
            mx.concatenate([first.tokens, second.tokens]),
            first.answered + second.answered,
            np.concatenate([first.taken, second.taken]),
            self._fusion_of([*first.requests, *second.requests]),
            tuple(mx.concatenate(list(pair)) for pair in zip(first.fused, second.fused, strict=True)),
            _join_rows(first.log_probs, second.log_probs),
        )

    def _collect(self) -> list[SearchAnswer]:
        live = self._live
        assert live is not None
        if live.log_probs is not None:
            # Nobody reads them yet, but until they are computed they hold the logits of every step.
            mx.eval(live.beams.done, live.log_probs)
        done = np.array(live.beams.done)
        if self._traced is not None:
            # A trail goes on to the end, which is fed in the step behind the one that found it.
            done &= np.array(live.beams.steps) < live.taken
        answers = []
        for row in np.flatnonzero(done).tolist():
            if not live.answered[row]:
                live.answered[row] = True
                answer = self.settings.collect(live.beams, row)
                answers.append(replace(answer, key=live.requests[row].key, trail=self._trail(row, answer)))
        left = live.answered.count(False)
        if left == 0 or len(live.requests) - left >= max(1.0, len(live.requests) * WORTH_A_CHANGE):
            self._drop_answered()
        return answers

    def _trail(self, row: int, answer: SearchAnswer) -> Trail | None:
        live = self._live
        assert live is not None
        if self._traced is None or live.log_probs is None:
            return None
        if not answer.hypotheses or not answer.hypotheses[0].ended:
            return None
        tokens = len(answer.hypotheses[0].tokens)
        heard = self._traced.trail(live.kv, row, len(live.requests[row].prompt) + tokens + 1)
        return Trail(heard, np.array(live.log_probs[row, 0, :tokens]))

    def _drop_answered(self) -> None:
        live = self._live
        assert live is not None
        kept = [row for row, answered in enumerate(live.answered) if not answered]
        if not kept:
            self._live = None
        elif len(kept) < len(live.requests):
            chosen = mx.array(kept, mx.int32)
            requests = [live.requests[row] for row in kept]
            self._live = _Live(
                requests,
                self.head.select(live.kv, kept),
                {name: value[chosen] for name, value in live.rules.items()},
                live.beams.select(kept),
                live.tokens[chosen],
                [False] * len(kept),
                live.taken[kept],
                self._fusion_of(requests),
                tuple(each[chosen] for each in live.fused),
                None if live.log_probs is None else live.log_probs[chosen],
            )


def _join_rows(first: mx.array | None, second: mx.array | None) -> mx.array | None:
    """[B, 1, room] of two, the shorter room filled with zeros."""
    if first is None or second is None:
        return None
    room = max(first.shape[2], second.shape[2])
    filled = [mx.pad(each, [(0, 0), (0, 0), (0, room - each.shape[2])]) for each in (first, second)]
    return mx.concatenate(filled)
