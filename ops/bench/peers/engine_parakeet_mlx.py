"""parakeet-mlx for `peers.py`, in its own environment, with the OpenBLAS that Spool would load.

One utterance at a time: its encoder takes no lengths, and its searches go utterance by utterance anyway.
"""

from worker.machine.blas import preload_blas

report = preload_blas()
assert report.fast, report

import mlx.core as mx  # noqa: E402 - the BLAS is loaded before MLX
from parakeet_mlx import Beam, DecodingConfig, Greedy, from_pretrained  # noqa: E402
from parakeet_mlx.audio import get_logmel  # noqa: E402

from ops.bench.peers.child import Made, Samples, answer_features, serve  # noqa: E402


class ParakeetMlx:
    """See `child.Engine`."""

    def __init__(self, path: str) -> None:
        self.model = from_pretrained(path, dtype=mx.float32)

    def features(self, samples: list[Samples]) -> Made:
        mels = [get_logmel(mx.array(each), self.model.preprocessor_config) for each in samples]
        mx.eval(mels)
        return mels

    def encode(self, features: Made) -> Made:
        encoded = [self.model.encoder(mel) for mel in features]
        mx.eval(encoded)
        return encoded

    def search(self, encoded: Made, beam: int | None) -> list[list[int]]:
        config = DecodingConfig(decoding=Greedy() if beam is None else Beam(beam_size=beam))
        found = []
        for frames, lengths in encoded:
            tokens, _ = self.model.decode(frames, lengths, config=config)
            found.append([int(token.id) for token in tokens[0]])
        return found

    def given(self, features: Samples) -> Made:
        return [mx.array(features)[None]]


if __name__ == "__main__":
    serve(ParakeetMlx, {"features": answer_features})
