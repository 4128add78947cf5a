"""Runs a diarization model's network in the engine: steps instead of utterances, outputs instead of words.

Each step is computed by itself, so that its output does not depend on the batch (law 7). `worker.diarization`
defines the steps.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spool.domain.recognition import Recognition
from spool.errors import InvalidRequest
from worker.diarization.base import FRAME_SAMPLES
from worker.diarization.registry import load_diarization, load_network
from worker.engine.protocol import Failure, Recognizer
from worker.models.base import BatchCost, ModelInfo
from worker.models.requests import DecodeRequest, SearchOptions

_STEP_BYTES = 32 << 20


class StepRecognizer:
    """Runs one network. Belongs to the thread that made it."""

    def __init__(self, path: str) -> None:
        """Raises ModelError."""
        self._network = load_network(path)
        name = path.partition(":")[2]
        self.info = ModelInfo(name=name, sha256=load_diarization(name).digest, size=self._network.size)

    def prepare(self, request: DecodeRequest) -> ModelInfo:
        """Refuse to transcribe."""
        if request.step is None:
            raise InvalidRequest(f"{self.info.name}: a diarization model transcribes nothing")
        return self.info

    def read_by(self, reader: Recognizer) -> Recognizer:  # noqa: ARG002 - the engine's protocol
        """Refuse: there are no hypotheses."""
        raise InvalidRequest(f"{self.info.name}: a diarization model transcribes nothing")

    def cost(self, samples: int, options: SearchOptions) -> BatchCost:  # noqa: ARG002 - the engine's protocol
        """A step's cost is its length, since steps are not padded."""
        return BatchCost(samples // FRAME_SAMPLES, _STEP_BYTES)

    def recognize(
        self,
        utterances: Sequence[NDArray[np.float32]],
        requests: Sequence[DecodeRequest],
    ) -> list[Recognition | Failure]:
        """Each step's output."""
        answers: list[Recognition | Failure] = []
        for samples, request in zip(utterances, requests, strict=True):
            if request.step is None:
                # The engine's control sound, which only tests that the model is loaded and answers.
                answers.append(Recognition(frames=len(samples) // FRAME_SAMPLES))
                continue
            output = self._network.run(samples, request.step)
            answers.append(Recognition(frames=self._network.frames(samples, request.step), output=output))
        return answers
