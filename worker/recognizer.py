"""A model together with its search, as the engine runs it: utterances in, plain Python answers out.

The only place where the engine meets MLX; imported by the child alone. Knows no slots, no jobs and no time.
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.decode.hypothesis import SearchOptions
from worker.decode.search import best_of, search
from worker.decode.words import words_of
from worker.engine_protocol import ModelInfo, Recognition
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
    ) -> list[Recognition]:
        """One answer per 16 kHz mono utterance, in order.

        Raises InvalidRequest for a search the model cannot do, EngineError where its output is no number.
        """
        encoded = self._model.encode(utterances)
        mx.eval(encoded.frames)
        found = search(self._model, encoded, options)
        answers = []
        for hypotheses, frames in zip(found, encoded.lengths.tolist(), strict=True):
            words = words_of(best_of(hypotheses), self._model.tokenizer, self._model.frame_seconds)
            answers.append(Recognition(tuple(hypotheses), tuple(words), int(frames)))
        return answers


def load_recognizer(model: str) -> ModelRecognizer:
    """Load `model` (a folder, a `.nemo` file or a hub id). Raises ModelError."""
    return ModelRecognizer(load_model(model))
