"""Language models and phrases over an attention decoder's tokens, of which text is a part.

What `fusion` says of a text token is added to its log-probability; what it says of the utterance's end, to
the tokens that end a hypothesis. Times and other orders to the model are no words: they earn nothing, cost
nothing, and leave language model and phrases where they are.
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from worker.decode.fusion.fusion import Fusion, FusionState, make_fusion
from worker.models.base_attention import AttentionModel
from worker.models.requests import DecodeRequest, SearchOptions


class FusedTokens:
    """The fusion of a batch, an utterance by its row."""

    def __init__(self, fusion: Fusion, is_text: mx.array, ends: Sequence[int]) -> None:
        """is_text: bool [N], of the tokens that the fusion knows. ends: what ends a hypothesis."""
        self._fusion, self._is_text, self._ends = fusion, is_text, tuple(ends)

    def select(self, utterances: Sequence[int]) -> "FusedTokens":
        """The fusion of these utterances only; their states remain valid."""
        return FusedTokens(self._fusion.select(utterances), self._is_text, self._ends)

    def start(self, beam: int) -> FusionState:
        """The states of [B, beam] hypotheses before any token."""
        return self._fusion.start(beam)

    def gains(self, state: FusionState, vocabulary: int) -> mx.array:
        """What each token adds to its log-probability, float32 [B * K, vocabulary]."""
        known = self._is_text.shape[0]
        of_text = mx.where(self._is_text, self._fusion.gains(state), 0.0)[..., :vocabulary]
        gains = mx.pad(of_text, [(0, 0), (0, 0), (0, max(0, vocabulary - known))])
        closing = self._fusion.ends(state, sentence_end=True)
        for end in self._ends:
            gains[..., end] = closing
        return gains.reshape(-1, vocabulary)

    def advance(self, state: FusionState, parents: mx.array, tokens: mx.array) -> FusionState:
        """The states after hypothesis k became parents[b, k] followed by a token, int32 [B, K] both."""
        known = self._is_text.shape[0]
        is_text = (tokens < known) & self._is_text[mx.clip(tokens, 0, known - 1)]
        return self._fusion.advance(state, parents, mx.where(is_text, tokens, -1))


def fuse_tokens(
    model: AttentionModel, options: SearchOptions, requests: Sequence[DecodeRequest]
) -> FusedTokens | None:
    """What these utterances ask for; None where it is nothing. Raises InvalidRequest as `make_fusion`."""
    fusion = make_fusion(model.tokenizer, options, requests)
    if fusion is None:
        return None
    known = len(model.tokenizer.pieces)
    ends = model.end_rule.ends
    is_text = np.fromiter((model.is_text(token) and token not in ends for token in range(known)), np.bool_)
    return FusedTokens(fusion, mx.array(is_text), ends)
