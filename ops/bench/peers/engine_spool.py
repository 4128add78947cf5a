"""Spool's engine for `peers.py`: the model and the searches as a worker runs them."""

from typing import Any

from worker.machine.blas import preload_blas

preload_blas()

import mlx.core as mx  # noqa: E402 - the BLAS is loaded before MLX
import numpy as np  # noqa: E402

from ops.bench.peers.child import Made, Samples, answer_features, serve  # noqa: E402
from worker.decode.answer import best_of  # noqa: E402
from worker.decode.search import search  # noqa: E402
from worker.decode.words import words_of  # noqa: E402
from worker.models.conformer.frames import EncodedFrames  # noqa: E402
from worker.models.load import load_model  # noqa: E402
from worker.models.requests import SearchOptions  # noqa: E402


class SpoolEngine:
    """See `child.Engine`."""

    def __init__(self, path: str) -> None:
        self.model: Any = load_model(path)

    def features(self, samples: list[Samples]) -> Made:
        features, lengths = self.model.features(samples)
        mx.eval(features)
        return features, lengths

    def encode(self, features: Made) -> EncodedFrames:
        encoded = self.model.encode_features(*features)
        mx.eval(encoded.frames)
        return encoded

    def search(self, encoded: Made, beam: int | None) -> list[list[int]]:
        options = SearchOptions() if beam is None else SearchOptions(decoder="beam", beam=beam)
        best = [best_of(found) for found in search(self.model, encoded, options)]
        for hypothesis in best:
            words_of(hypothesis, self.model.tokenizer, self.model.frame_seconds)
        return [list(hypothesis.tokens) for hypothesis in best]

    def given(self, features: Samples) -> Made:
        return mx.array(features)[None], np.array([len(features)], np.int32)


if __name__ == "__main__":
    serve(SpoolEngine, {"features": answer_features})
