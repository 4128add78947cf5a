"""What a search asks of an attention decoder, whichever family it belongs to.

Owns the protocols alone. Encoders, rules on logits and the search itself are others' business.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """Where the tokens of one utterance were heard.

    starts: float32 [n + 1], seconds from the utterance's start, never decreasing; the last is the end of the
    last token. probabilities: float32 [n], of each token among the text tokens.
    """

    starts: NDArray[np.float32]
    probabilities: NDArray[np.float32]


class AttentionHead(Protocol[State]):
    """An autoregressive decoder that attends to encoder frames.

    A state belongs to whoever holds it last: every call that takes one may reuse its memory.
    """

    @property
    def eos(self) -> int:
        """The token that ends a hypothesis."""

    @property
    def max_tokens(self) -> int:
        """The most tokens of one sequence, prompt and end included."""

    def start(self, encoded: Sequence[Any], prompts: Sequence[Sequence[int]], beam: int) -> State:
        """A state of `len(prompts)` utterances of `beam` equal hypotheses each, behind all but the last token
        of each prompt. encoded: what the family's encoder gave for each utterance."""

    def step(self, tokens: mx.array, state: State) -> tuple[mx.array, State]:
        """tokens int32 [B, K], one for each hypothesis -> logits float32 [B * K, V] of the next, and the
        state behind them."""

    def reorder(self, state: State, parents: mx.array) -> State:
        """Hypothesis k of utterance b goes on from its hypothesis parents[b, k] (int32 [B, K]). By index: no
        key or value is copied."""

    def select(self, state: State, utterances: Sequence[int]) -> State:
        """The state of these utterances alone, in this order."""

    def join(self, states: Sequence[State]) -> State:
        """One state of the utterances of several, in order."""

    def score(
        self,
        encoded: Sequence[Any],
        prompts: Sequence[Sequence[int]],
        nbest: Sequence[Sequence[Sequence[int]]],
        *,
        reverse: bool = False,
    ) -> list[NDArray[np.float32]]:
        """For each utterance the sum of log-probabilities of each of its sequences behind its prompt,
        teacher-forced and without rules; `reverse` from right to left, where the family can."""

    def align(self, encoded: Sequence[Any], tokens: Sequence[Sequence[int]]) -> list[TokenTimes | None]:
        """When each token of each utterance was spoken; None where nothing can be told."""
