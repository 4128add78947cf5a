"""A model together with its search, as the engine runs it: utterances in, plain Python answers out.

The only place where the engine meets MLX; imported by the child alone. Knows no slots, no jobs and no time.
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spool.errors import EngineError
from worker.decode.hypothesis import Hypothesis, SearchOptions
from worker.decode.search import best_of, search
from worker.decode.words import words_of
from worker.engine_protocol import Failure, ModelInfo, Recognition
from worker.model.load import load_model
from worker.model.model import AsrModel


class ModelRecognizer:
    """Runs one acoustic model. Belongs to the thread that made it, as everything of MLX does."""

    def __init__(self, model: AsrModel) -> None:
        self._model = model
        self.info = ModelInfo(
            name=model.name,
            sha256=model.sha256,
            heads=tuple(sorted(model.heads)),
            frame_seconds=model.frame_seconds,
            device=str(mx.default_device()),
        )

    def recognize(
        self, utterances: Sequence[NDArray[np.float32]], options: SearchOptions
    ) -> list[Recognition | Failure]:
        """One answer per 16 kHz mono utterance, in order; one whose logits are no numbers fails alone.

        Raises InvalidRequest for a search the model cannot do.
        """
        encoded = self._model.encode(utterances)
        mx.eval(encoded.frames)
        found = search(self._model, encoded, options)
        return [
            self._answer(hypotheses, int(frames))
            for hypotheses, frames in zip(found, encoded.lengths.tolist(), strict=True)
        ]

    def _answer(self, hypotheses: Sequence[Hypothesis], frames: int) -> Recognition | Failure:
        try:
            best = best_of(hypotheses)
        except EngineError as error:
            return Failure(error, frames)
        words = words_of(best, self._model.tokenizer, self._model.frame_seconds)
        return Recognition(tuple(hypotheses), tuple(words), frames)


def load_recognizer(model: str) -> ModelRecognizer:
    """Load `model` (a folder, a `.nemo` file or a hub id). Raises ModelError."""
    return ModelRecognizer(load_model(model))
