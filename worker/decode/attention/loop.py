"""Autoregressive search with continuous batching: each step is one pass of the decoder over every live
hypothesis; finished utterances leave and waiting ones enter between steps.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.decode.attention.beam import RankedHypotheses, ScoredTokens
from worker.decode.attention.fused import FusedTokens
from worker.decode.fusion.fusion import FusionState
from worker.models.base_attention import AttentionHead, LogitsRules, RuleState
from worker.models.turns import give_way

# The host asks a GPU only now and then who has ended: an answer stops what is under way.
STEPS_BETWEEN_CHECKS = 8
# Leaving and entering copy the live rows' keys and values: worth it for an eighth of them.
WORTH_A_CHANGE = 0.125


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


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """An utterance's hypotheses in the search's order, and the index of the answer; none if the model's
    output was not finite."""

    key: Hashable
    hypotheses: tuple[ScoredTokens, ...]
    answer: int = 0


class Beams(Protocol):
    """One kind of search, with its parameters. The state is arrays with the utterances as first axis."""

    @property
    def beam(self) -> int:
        """Hypotheses of an utterance; 1 is greedy."""

    @property
    def candidates(self) -> int:
        """The number of best tokens considered for each hypothesis."""

    @property
    def max_new_tokens(self) -> int:
        """The longest answer, end included."""

    @property
    def overrun(self) -> int:
        """The number of tokens allowed beyond a request's limit."""

    def start(self, limits: Sequence[int], prompts: Sequence[int]) -> Any:  # noqa: ANN401 - its own
        """The initial state. limits: the most steps of each utterance; prompts: the prompts' lengths."""

    def advance(
        self,
        state: Any,  # noqa: ANN401
        tokens: mx.array,
        scores: mx.array,
        eos: int,
    ) -> tuple[Any, mx.array, mx.array]:
        """One step: from the best tokens and their scores [B, K, candidates] to the state, and the next
        beam's parents and tokens, int32 [B, K]."""

    def collect(self, state: Any, utterance: int) -> RankedHypotheses:  # noqa: ANN401
        """The hypotheses of an utterance that is done."""


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
        )

    def _collect(self) -> list[SearchAnswer]:
        live = self._live
        assert live is not None
        done = np.array(live.beams.done)
        answers = []
        for row in np.flatnonzero(done).tolist():
            if not live.answered[row]:
                live.answered[row] = True
                outcome = self.settings.collect(live.beams, row)
                key = live.requests[row].key
                answers.append(SearchAnswer(key, outcome.hypotheses, outcome.answer))
        left = live.answered.count(False)
        if left == 0 or len(live.requests) - left >= max(1.0, len(live.requests) * WORTH_A_CHANGE):
            self._drop_answered()
        return answers

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
            )
