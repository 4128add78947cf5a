"""Spool's Whisper for `compare.py`: encoder, search and tokenizer as a worker runs them, one answer
a window."""

from worker.machine.blas import preload_blas

preload_blas()

import time  # noqa: E402 - the BLAS is loaded before MLX
from typing import Any  # noqa: E402

import mlx.core as mx  # noqa: E402

from ops.bench.peers.child import Made, Samples, serve  # noqa: E402
from spool.planning.shapes import WINDOW_FRAMES  # noqa: E402
from worker.decode.attention.beam import AttentionSearch, BeamSettings, SearchRequest  # noqa: E402
from worker.models.front_ends.whisper_mel import log_mel  # noqa: E402
from worker.models.whisper.config import SAMPLES_A_FRAME  # noqa: E402
from worker.models.whisper.model import load_whisper  # noqa: E402
from worker.models.whisper.rules import WhisperOptions  # noqa: E402


class SpoolWhisper:
    """See `child.Engine`."""

    def __init__(self, path: str) -> None:
        self.model = load_whisper(path)
        self.prompt = tuple(self.model.ids.prompt("en", "transcribe", timestamps=False))

    def features(self, samples: list[Samples]) -> Made:
        mels = [log_mel(each, self.model.dims.n_mels) for each in samples]
        return mels, [len(each) // SAMPLES_A_FRAME for each in samples]

    def encode(self, features: Made) -> Made:
        return self.model.encode_mels(*features)

    def search(self, encoded: Made, beam: int | None) -> list[list[int]]:
        head = self.model.heads["attention"]
        search = AttentionSearch(head, self.model.rules, BeamSettings(beam or 1), width=len(encoded))
        requests = [
            SearchRequest(row, each, self.prompt, WhisperOptions(timestamps=False))
            for row, each in enumerate(encoded)
        ]
        tokens = [list(answer.hypotheses[0].tokens) for answer in search.run(requests)]
        for row in tokens:
            self.model.tokenizer.decode(row)
        return tokens


def answer_product(engine: SpoolWhisper, rounds: int) -> dict[str, Any]:
    """Processor seconds of the fastest product as large as the encoder's, and its operations."""
    width = engine.model.dims.n_audio_state
    x, w = mx.random.normal((WINDOW_FRAMES, 4 * width)), mx.random.normal((4 * width, 4 * width))
    mx.eval(x, w)
    best = float("inf")
    for _ in range(rounds):
        begun = time.process_time()
        mx.eval(x @ w)
        best = min(best, time.process_time() - begun)
    return {"seconds": best, "operations": 2 * WINDOW_FRAMES * 16 * width * width}


if __name__ == "__main__":
    serve(SpoolWhisper, {"product": answer_product})
