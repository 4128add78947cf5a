"""Which tokens Whisper may sample next (openai-whisper, decoding.py: SuppressBlank, SuppressTokens,
ApplyTimestampRules).

Never a symbol or a special token; first neither the end nor a space. With times: the first token is a time
of at most one second; times come in pairs, end before start, and never decrease; no segment is empty; where
all times together are likelier than the best text, a time comes. Scores are renormalised over what is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from kernels.attention.rules import Rule, forbidden_bits, rules_topk
from worker.models.base_attention import RuleState
from worker.models.whisper.config import MAX_INITIAL_TIME, DecodingSettings, SpecialTokens


@dataclass(frozen=True, slots=True)
class WhisperOptions:
    """What one utterance asks of the rules."""

    timestamps: bool = True


class WhisperRules:
    """Five numbers a hypothesis say what it may take: see `rules_topk`."""

    def __init__(self, ids: SpecialTokens, settings: DecodingSettings) -> None:
        self.ids = ids
        always, first = set(settings.suppress), set(settings.suppress_first)
        timed = always | {ids.no_timestamps}
        # Indexed by 2 * timestamps + first.
        self._forbidden = forbidden_bits([always, always | first, timed, timed | first], ids.vocabulary)

    def start(self, requests: Sequence[WhisperOptions | None], beam: int) -> RuleState:
        timed = [[(options or WhisperOptions()).timestamps] * beam for options in requests]
        shape = (len(requests), beam)
        return {
            "timed": mx.array(timed, mx.bool_),
            "sampled": mx.zeros(shape, mx.int32),
            "last_time": mx.full(shape, -1, mx.int32),
            "last_is_time": mx.zeros(shape, mx.bool_),
            # What stands before the first sampled token counts as a time.
            "before_is_time": mx.ones(shape, mx.bool_),
        }

    def best(
        self, logits: mx.array, state: RuleState, count: int, gains: mx.array | None = None
    ) -> tuple[mx.array, mx.array]:
        return rules_topk(
            logits, self.rows(state), self._forbidden, first_time=self.ids.time, count=count, gains=gains
        )

    def rows(self, state: RuleState) -> mx.array:
        """int32 [B * K, 5], columns as in `Rule`."""
        ids = self.ids
        timed, first = state["timed"], state["sampled"] == 0
        last, before = state["last_is_time"], state["before_is_time"]
        opens = last & ~before  # a segment ended: the next may begin where it did
        begun = last & before  # two times in a row, or the one at the start: text or the end
        text_from = mx.where(first, ids.time, mx.where(opens, ids.eot, 0))
        later = mx.where(state["last_time"] < 0, ids.time, state["last_time"] + (~opens).astype(mx.int32))
        time_from = mx.where(first, ids.time, mx.where(begun, ids.vocabulary, later))
        time_to = mx.where(first, ids.time + MAX_INITIAL_TIME + 1, ids.vocabulary)
        columns = {
            Rule.FORBIDDEN: 2 * timed.astype(mx.int32) + first.astype(mx.int32),
            Rule.TEXT_FROM: mx.where(timed, text_from, 0),
            Rule.TIME_FROM: mx.where(timed, time_from, ids.time),
            Rule.TIME_TO: mx.where(timed, time_to, ids.vocabulary),
            Rule.OUTWEIGH: timed.astype(mx.int32),
        }
        rows = [columns[rule].reshape(-1).astype(mx.int32) for rule in Rule]
        return mx.stack(rows, axis=1)

    def advance(self, state: RuleState, tokens: mx.array) -> RuleState:
        is_time = tokens >= self.ids.time
        return {
            "timed": state["timed"],
            "sampled": state["sampled"] + 1,
            "last_time": mx.where(is_time, tokens, state["last_time"]),
            "last_is_time": is_time,
            "before_is_time": mx.where(state["sampled"] == 0, True, state["last_is_time"]),
        }
