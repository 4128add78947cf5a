"""Attention rescoring (U2, Zhang et al. 2020; both directions in U2++, Wu et al. 2021): the n-best of the CTC
prefix beam or of a transducer's, ordered anew by what the attention decoders say of each.

The decoders read all hypotheses at once; there is no loop over tokens. Knows no family but by its heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spool.domain.recognition import Hypothesis
from spool.errors import InvalidRequest
from worker.decode.transducer.likelihood import log_likelihoods
from worker.models.base_attention import AttentionHead
from worker.models.heads.ctc import CtcHead
from worker.models.heads.transducer import Transducer

CTC_WEIGHT = 0.5
REVERSE_WEIGHT = 0.0


class HybridHead(Protocol):
    """A CTC head and attention decoders over the same frames."""

    @property
    def ctc(self) -> CtcHead: ...

    @property
    def transducer(self) -> Transducer | None:
        """A transducer over the same frames, None where there is none."""

    @property
    def sos(self) -> int:
        """The token that begins a sequence."""

    @property
    def left(self) -> AttentionHead[Any]:
        """The decoder that reads from left to right."""

    @property
    def right(self) -> object | None:
        """The decoder that reads from right to left, None where there is none."""

    def windows(self, frames: mx.array, lengths: NDArray[np.int32]) -> Sequence[Any]:
        """Each utterance of frames [B, T, d] as the left decoder's `start` takes it."""

    def score(
        self,
        frames: mx.array,
        lengths: NDArray[np.int32],
        nbest: Sequence[Sequence[Sequence[int]]],
        *,
        reverse: bool = False,
    ) -> list[NDArray[np.float32]]:
        """The log-probability of each utterance's token sequences and of their end."""


@dataclass(frozen=True, slots=True)
class RescoringWeights:
    """ctc: of the first search's score. reverse: of the right decoder; the left one has the rest of 1.
    transducer: of the log-likelihood of a hypothesis over all its alignments. attention: of both decoders
    together; with 0 they are not run."""

    ctc: float = CTC_WEIGHT
    reverse: float = REVERSE_WEIGHT
    transducer: float = 0.0
    attention: float = 1.0


def check_weights(head: HybridHead, weights: RescoringWeights) -> None:
    """Raises InvalidRequest where the head cannot rescore so."""
    if not 0 <= weights.reverse <= 1:
        raise InvalidRequest("reverse_weight must be between 0 and 1")
    if weights.reverse > 0 and head.right is None:
        raise InvalidRequest("reverse_weight: the model has no decoder that reads from right to left")


def rescore(
    head: HybridHead,
    frames: mx.array,
    lengths: NDArray[np.int32],
    nbest: Sequence[Sequence[Hypothesis]],
    weights: RescoringWeights,
) -> list[list[Hypothesis]]:
    """The hypotheses of each utterance, best first, equals in their order; the score of each is
    attention · ((1 - reverse) · left + reverse · right) + ctc · its own + transducer · its log-likelihood
    there, nothing of it normalised by length."""
    check_weights(head, weights)
    tokens = [[hypothesis.tokens for hypothesis in each] for each in nbest]
    sides: list[tuple[float, list[NDArray[np.float32]]]] = []
    for share, reverse in ((1 - weights.reverse, False), (weights.reverse, True)):
        if weight := weights.attention * share:
            sides.append((weight, head.score(frames, lengths, tokens, reverse=reverse)))
    answers = []
    for row, each in enumerate(nbest):
        spoken = sum(
            (weight * scores[row].astype(np.float64) for weight, scores in sides), np.zeros(len(each))
        )
        if weights.transducer and head.transducer is not None:
            spoken += weights.transducer * log_likelihoods(
                head.transducer, frames[row, : lengths[row]], tokens[row]
            )
        scored = [
            replace(hypothesis, score=float(own + weights.ctc * hypothesis.score))
            for hypothesis, own in zip(each, spoken, strict=True)
        ]
        answers.append(sorted(scored, key=lambda hypothesis: -hypothesis.score))
    return answers
