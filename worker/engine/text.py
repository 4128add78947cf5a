"""A language model as the engine keeps it: it reads another model's hypotheses and transcribes nothing."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spool.errors import InvalidRequest
from worker.decode.types import DecodeRequest, SearchOptions
from worker.engine.protocol import SAMPLE_RATE, Failure, Recognition, Recognizer
from worker.models.base import BatchCost, ModelInfo
from worker.models.load import TextReader


class TextRecognizer:
    """Keeps one language model. Belongs to the thread that made it."""

    def __init__(self, model: TextReader) -> None:
        self.model, self.info = model, model.info

    def prepare(self, options: SearchOptions, ask: DecodeRequest) -> ModelInfo:  # noqa: ARG002 - the engine's protocol
        """Refuse to transcribe."""
        raise self._refusal()

    def read_by(self, reader: Recognizer) -> Recognizer:  # noqa: ARG002 - the engine's protocol
        """Refuse: there are no hypotheses."""
        raise self._refusal()

    def cost(self, samples: int, options: SearchOptions) -> BatchCost:  # noqa: ARG002 - the engine's protocol
        """Of a sound that nothing hears."""
        return BatchCost(samples // SAMPLE_RATE, 0)

    def recognize(
        self,
        utterances: Sequence[NDArray[np.float32]],
        options: SearchOptions,  # noqa: ARG002 - the engine's protocol
        asks: Sequence[DecodeRequest],  # noqa: ARG002
    ) -> list[Recognition | Failure]:
        """The engine's harmless sound: to be loaded and to have answered is all that it asks."""
        return [Recognition((), (), len(samples) // SAMPLE_RATE) for samples in utterances]

    def _refusal(self) -> InvalidRequest:
        return InvalidRequest(
            f"{self.info.name}: a language model transcribes nothing; name it in `rescore` beside a model"
        )
