"""What attention models share whose decoder tells no times: tokens with their probabilities, side by side."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from worker.models.base_attention import HeardWindow, Opening, TimedText, TokenTimes, Unread


class UntimedModel:
    """Two methods of an `AttentionModel`. A family adds `head`, which has `log_probabilities`."""

    head: Any

    def is_text(self, token: int) -> bool:
        raise NotImplementedError

    def opening(self, tokens: Sequence[int]) -> Opening:
        raise NotImplementedError

    def time(self, windows: Sequence[HeardWindow]) -> list[TimedText]:
        """As `AttentionModel.time`: the tokens' probabilities; nothing tells their times."""
        return [self._weigh(each) for each in windows]

    def unread(
        self,
        heard: HeardWindow,  # noqa: ARG002 - the protocol's
        times: TokenTimes,  # noqa: ARG002
    ) -> Unread:
        """As `AttentionModel.unread`: nothing; its words need not have times of their own."""
        return Unread()

    def _weigh(self, heard: HeardWindow) -> TimedText:
        first, logs = self.opening(heard.tokens).length, np.array(heard.log_probs, np.float32)
        if len(logs) != len(heard.tokens):
            # A window by itself: what is printed must not know the batch.
            logs = self.head.log_probabilities(heard.encoded, heard.prompt.tokens, [heard.tokens])[0]
        text = [at for at in range(first, len(heard.tokens)) if self.is_text(heard.tokens[at])]
        shares = np.exp(logs[text]).astype(np.float32)
        return TimedText(TokenTimes.even(shares, heard.window.seconds), None if text else ())
