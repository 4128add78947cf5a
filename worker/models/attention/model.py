"""What models with an attention decoder have in common, whichever their encoder is.

Knows neither chunks nor jobs. A model belongs to the thread that made it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spool.errors import InvalidRequest
from worker.models.attention.windows import judge_answer
from worker.models.base import HeadName
from worker.models.base_attention import (
    NO_OPENING,
    HeardWindow,
    Opening,
    PromptAnswer,
    Question,
    TimedText,
    TokenTimes,
    Unread,
    Window,
    WindowOutcome,
)
from worker.models.loaded import LoadedModel


class DecodingModel(LoadedModel):
    """The methods of an `AttentionModel` that need not be a family's own: it is asked once, writes text
    alone, and tells no times. A family adds `head`, `rules`, `end_rule`, `frames_in`, `ask` and `is_text`."""

    encoder: Any
    head: Any
    aligner: Any = None

    @property
    def heads(self) -> Mapping[HeadName, Any]:
        return {"attention": self.head}

    @property
    def size(self) -> int:
        return sum(array.nbytes for array in (*self.encoder.parameters, *self.head.parameters))

    def is_text(self, token: int) -> bool:
        raise NotImplementedError

    def check_prompt(self, tokens: Sequence[int]) -> None:
        """Raises InvalidRequest where a prompt leaves an answer less than half of the room."""
        most = self.head.max_tokens // 2
        if len(tokens) > most:
            raise InvalidRequest(f"prompt: it has {len(tokens)} tokens; {self.name} takes at most {most}")

    def opening(self, tokens: Sequence[int]) -> Opening:  # noqa: ARG002 - it is all text
        return NO_OPENING

    def judge(
        self,
        window: Window,
        readings: Sequence[PromptAnswer],
        question: Question,  # noqa: ARG002 - the protocol's
        samples: NDArray[np.float32],
    ) -> WindowOutcome:
        return judge_answer(window, readings[0], samples)

    def unread(
        self,
        heard: HeardWindow,  # noqa: ARG002 - the protocol's
        times: TokenTimes,  # noqa: ARG002
    ) -> Unread:
        """As `AttentionModel.unread`: nothing; its words need not have times of their own."""
        return Unread()

    def time(self, windows: Sequence[HeardWindow]) -> list[TimedText]:
        """As `AttentionModel.time`: the tokens with their probabilities, and their words if the answer says
        when they were spoken."""
        return [self._time_window(each) for each in windows]

    def _time_window(self, heard: HeardWindow) -> TimedText:
        first = self.opening(heard.tokens).length
        text = [at for at in range(first, len(heard.tokens)) if self.is_text(heard.tokens[at])]
        if not text:
            return TimedText(TokenTimes.even(np.zeros(0, np.float32), heard.window.seconds), ())
        shares = np.exp(self.log_probabilities(heard)[text]).astype(np.float32)
        return self.place_words(heard, text, shares)

    def log_probabilities(self, heard: HeardWindow) -> NDArray[np.float32]:
        """Of each token of an answer. A window by itself: what is printed must not know the batch."""
        return np.array(self.head.log_probabilities(heard.encoded, heard.prompt.tokens, [heard.tokens])[0])

    def place_words(
        self,
        heard: HeardWindow,
        text: list[int],  # noqa: ARG002 - a family whose answers have times overrides it
        shares: NDArray[np.float32],
    ) -> TimedText:
        """The words of an answer in time. text: which of its tokens are text; shares: their probabilities."""
        return TimedText(TokenTimes.even(shares, heard.window.seconds), None)
