"""Spool's models with an attention decoder for `compare.py`, as a worker runs them."""

from worker.machine.blas import preload_blas

preload_blas()

import json  # noqa: E402 - the BLAS is loaded before MLX
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import mlx.core as mx  # noqa: E402
import numpy as np  # noqa: E402

from ops.bench.peers.child import Made, Samples, serve  # noqa: E402
from worker.decode.attention.beam import AttentionSearch, SearchRequest  # noqa: E402
from worker.decode.attention.reading import beams_of  # noqa: E402
from worker.models.front_ends.whisper_mel import whole_log_mel  # noqa: E402
from worker.models.load import load_model  # noqa: E402
from worker.models.qwen3_asr.model import SHORTEST  # noqa: E402
from worker.models.requests import DecodeRequest, SearchOptions  # noqa: E402


class SpoolAttention:
    """See `child.Engine`. Cross keys and values are made with the encoder's frames."""

    def __init__(self, path: str) -> None:
        self.model: Any = load_model(path)
        self.prepared = self.model.prepare(DecodeRequest(language="en", single=True))

    def features(self, samples: list[Samples]) -> Made:
        features, lengths = self.model.frames.features(samples)
        mx.eval(features)
        return features, lengths

    def encode(self, features: Made) -> Made:
        encoded = self.model.frames.encode_features(*features)
        windows = self.model.head.windows(encoded.frames, encoded.lengths, masked=True)
        mx.eval([(window.batch.frames, window.batch.cross) for window in windows])
        return windows

    def search(self, encoded: Made, beam: int | None) -> list[list[int]]:
        options = SearchOptions() if beam is None else SearchOptions(decoder="beam", beam=beam)
        questions = self.model.ask(encoded, [self.prepared] * len(encoded), [None] * len(encoded))
        prompts = [question.prompts[0] for question in questions]
        requests = [
            SearchRequest(row, window, prompt.tokens, prompt.options, prompt.limit)
            for row, (window, prompt) in enumerate(zip(encoded, prompts, strict=True))
        ]
        rule = beams_of(self.model, options)
        search = AttentionSearch(self.model.head, self.model.rules, rule, width=len(encoded))
        tokens = [list(answer.hypotheses[0].tokens) for answer in search.run(requests)]
        for row in tokens:
            self.model.tokenizer.decode(row)
        return tokens


class SpoolQwen(SpoolAttention):
    """See `child.Engine`. An utterance by itself, as a CPU takes it."""

    def features(self, samples: list[Samples]) -> Made:
        mels = self.model.config.audio.num_mel_bins
        return [whole_log_mel(np.asarray(row, np.float32), mels, SHORTEST) for row in samples]

    def encode(self, features: Made) -> Made:
        return [mx.contiguous(self._encode(mel)) for mel in features]

    def _encode(self, mel: Samples) -> mx.array:
        (rows,) = self.model.encoder([mel])
        mx.eval(rows)
        return rows


def make(path: str) -> SpoolAttention:
    """The engine of a folder's model."""
    kind = json.loads((Path(path) / "config.json").read_text())["model_type"]
    return SpoolQwen(path) if kind == "qwen3_asr" else SpoolAttention(path)


if __name__ == "__main__":
    serve(make)
