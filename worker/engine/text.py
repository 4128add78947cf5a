"""A language model in the engine: it rescores another model's hypotheses and transcribes nothing."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spool.domain.recognition import Recognition
from spool.errors import InvalidRequest
from worker.engine.protocol import SAMPLE_RATE, Failure, Recognizer
from worker.models.base import BatchCost, ModelInfo
from worker.models.load import TextReader
from worker.models.requests import DecodeRequest, SearchOptions


class TextRecognizer:
    """Holds one language model. Belongs to the thread that made it."""

    def __init__(self, model: TextReader) -> None:
        self.model, self.info = model, model.info

    def prepare(self, request: DecodeRequest) -> ModelInfo:  # noqa: ARG002 - the engine's protocol
        """Refuse to transcribe."""
        raise self._refusal()

    def read_by(self, reader: Recognizer) -> Recognizer:  # noqa: ARG002 - the engine's protocol
        """Refuse: there are no hypotheses."""
        raise self._refusal()

    def cost(self, samples: int, options: SearchOptions) -> BatchCost:  # noqa: ARG002 - the engine's protocol
        """The cost of the control sound, the only one it gets."""
        return BatchCost(samples // SAMPLE_RATE, 0)

    def recognize(
        self,
        utterances: Sequence[NDArray[np.float32]],
        requests: Sequence[DecodeRequest],  # noqa: ARG002 - the engine's protocol
    ) -> list[Recognition | Failure]:
        """Answer the engine's control sound, which only tests that the model is loaded and answers."""
        return [Recognition(frames=len(samples) // SAMPLE_RATE) for samples in utterances]

    def _refusal(self) -> InvalidRequest:
        return InvalidRequest(
            f"{self.info.name}: a language model transcribes nothing; name it in `rescore` beside a model"
        )
