"""The rules on logits of a family that has none.

Rules keep a state for each hypothesis, as arrays [B, K, ...] that the search reorders, cuts and joins with
its own. Knows no token by name.
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from kernels.attention.rules import Rule, forbidden_bits, rules_topk
from worker.models.base_attention import RuleState


class NoRules:
    """Everything may come at any time."""

    def __init__(self, vocabulary: int) -> None:
        self._vocabulary = vocabulary
        self._forbidden = forbidden_bits([()], vocabulary)
        row = [0] * len(Rule)
        row[Rule.TIME_FROM] = row[Rule.TIME_TO] = vocabulary
        self._row = mx.array([row], mx.int32)

    def start(self, requests: Sequence[Any], beam: int) -> RuleState:  # noqa: ARG002 - the protocol's
        return {}

    def best(
        self,
        logits: mx.array,
        state: RuleState,  # noqa: ARG002 - the protocol's
        count: int,
        gains: mx.array | None = None,
    ) -> tuple[mx.array, mx.array]:
        rows = mx.broadcast_to(self._row, (logits.shape[0], len(Rule)))
        return rules_topk(
            logits, rows, self._forbidden, first_time=self._vocabulary, count=count, gains=gains
        )

    def advance(self, state: RuleState, tokens: mx.array) -> RuleState:  # noqa: ARG002 - the protocol's
        return state
