"""The attention beam of WeNet's recognisers, in which ended hypotheses keep their places.

All utterances advance together, each for at most as many steps as it has frames. In every step a hypothesis
that has not ended is extended by its best tokens, an ended one stays as it is, and the best sums are kept; an
utterance is done when all of its hypotheses have ended. `worker.decode.attention.beam` is Whisper's beam,
which sets ended hypotheses aside.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.search.topk import top_k
from worker.models.attention.layers import log_sum_exp
from worker.models.turns import give_way

State = TypeVar("State")
KEEP_SHARE = 0.75  # finished utterances are removed once no more than this share is left


class SteppedDecoder(Protocol[State]):
    """The part of `AttentionHead` that this search needs."""

    @property
    def eos(self) -> int: ...

    @property
    def max_tokens(self) -> int: ...

    def start(self, encoded: Sequence[Any], prompts: Sequence[Sequence[int]], beam: int) -> State: ...

    def step(self, tokens: mx.array, state: State) -> tuple[mx.array, State]: ...

    def reorder(self, state: State, parents: mx.array) -> State: ...

    def select(self, state: State, utterances: Sequence[int]) -> State: ...


@dataclass(frozen=True, slots=True)
class Ended:
    """One hypothesis: tokens without start and end, and the sum of their log-probabilities, including the
    end's if it was reached. log_probs: one per token. rank: the value by which hypotheses are ordered."""

    tokens: tuple[int, ...]
    score: float
    log_probs: tuple[float, ...]
    rank: float


@dataclass
class _Beam:
    """An utterance's hypotheses: scores [K], tokens after the start with their log-probabilities, and which
    have ended."""

    steps: int
    scores: NDArray[np.float64]
    histories: list[list[tuple[int, float]]]
    ended: NDArray[np.bool_]
    broken: bool = False

    @property
    def is_over(self) -> bool:
        return self.broken or bool(self.ended.all()) or len(self.histories[0]) >= self.steps

    def advance(
        self, tokens: NDArray[np.int32], log_probs: NDArray[np.float32], eos: int
    ) -> NDArray[np.int32]:
        """One step: the best [K, K] of each hypothesis -> the parents [K] of the next ones."""
        beam = len(self.scores)
        if not np.isfinite(log_probs[~self.ended][:, 0]).all():
            self.broken = True
            return np.arange(beam, dtype=np.int32)
        tokens, log_probs = tokens.copy(), log_probs.astype(np.float64)
        tokens[self.ended] = eos
        log_probs[self.ended] = -np.inf
        log_probs[self.ended, 0] = 0.0
        totals = (self.scores[:, None] + log_probs).reshape(-1)
        order = np.argsort(-totals, kind="stable")[:beam]
        parents: NDArray[np.int32] = (order // tokens.shape[1]).astype(np.int32)
        chosen = tokens.reshape(-1)[order]
        self.scores = totals[order]
        self.histories = [
            [*self.histories[parent], (int(token), float(log_prob))]
            for parent, token, log_prob in zip(parents, chosen, log_probs.reshape(-1)[order], strict=True)
        ]
        self.ended = chosen == eos
        return parents

    def ranked(self, eos: int, start_counts: bool, penalty: float) -> list[Ended]:
        """Best first, by score / tokens^penalty; the count excludes the end, and includes the start if that
        is a different token."""
        if self.broken:
            return []
        answers = []
        for history, score in zip(self.histories, self.scores.tolist(), strict=True):
            if score == -np.inf:
                continue
            spoken = [each for each in history if each[0] != eos]
            tokens, log_probs = zip(*spoken, strict=True) if spoken else ((), ())
            count = len(tokens) + start_counts
            rank = score / count**penalty if count else (score if penalty == 0 else -np.inf)
            answers.append(Ended(tokens, score, log_probs, rank))
        return sorted(answers, key=lambda each: -each.rank)


def attention_beam(
    head: SteppedDecoder[Any],
    encoded: Sequence[Any],
    sos: int,
    steps: Sequence[int],
    beam: int,
    length_penalty: float,
) -> list[list[Ended]]:
    """The hypotheses of each utterance, best first; none if the model's output was not finite. steps: the
    most tokens of each, end included; an utterance with 0 steps has one empty hypothesis."""
    beams = [
        _Beam(
            min(count, head.max_tokens - 1),
            np.where(np.arange(beam) == 0, 0.0, -np.inf),
            [[] for _ in range(beam)],
            np.zeros(beam, bool),
        )
        for count in steps
    ]
    live = [row for row, each in enumerate(beams) if not each.is_over]
    state = head.start([encoded[row] for row in live], [[sos]] * len(live), beam) if live else None
    rows, tokens = list(live), np.full((len(live), beam), sos, np.int32)
    while rows:
        logits, state = head.step(mx.array(tokens), state)
        best, chosen = top_k(logits - log_sum_exp(logits), beam)
        mx.eval(best, chosen)
        give_way(best, chosen)
        shape = (len(rows), beam, beam)
        log_probs, offered = np.array(best).reshape(shape), np.maximum(np.array(chosen), 0).reshape(shape)
        parents = np.tile(np.arange(beam, dtype=np.int32), (len(rows), 1))
        for place, row in enumerate(rows):
            if not beams[row].is_over:
                parents[place] = beams[row].advance(offered[place], log_probs[place], head.eos)
                tokens[place] = [history[-1][0] for history in beams[row].histories]
        state = head.reorder(state, mx.array(parents))
        kept = [place for place, row in enumerate(rows) if not beams[row].is_over]
        if len(kept) <= KEEP_SHARE * len(rows):
            state = head.select(state, kept) if kept else None
            rows, tokens = [rows[place] for place in kept], tokens[kept]
    return [each.ranked(head.eos, sos != head.eos, length_penalty) for each in beams]
