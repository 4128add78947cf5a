"""faster-whisper for `compare.py`, in its own environment: the calls of its batched pipeline
(`BatchedInferencePipeline.generate_segment_batched`), with the clock between them."""

import os

import numpy as np
from faster_whisper import WhisperModel
from faster_whisper.audio import pad_or_trim
from faster_whisper.tokenizer import Tokenizer
from faster_whisper.transcribe import get_suppressed_tokens

from ops.bench.peers.child import Made, Samples, serve

LONGEST = 448


class FasterWhisper:
    """See `child.Engine`."""

    def __init__(self, path: str) -> None:
        threads = int(os.environ["OMP_NUM_THREADS"])
        self.model = WhisperModel(
            path, device="cpu", compute_type="float32", cpu_threads=threads, num_workers=1
        )
        tokenizer = self.model.hf_tokenizer
        self.tokenizer = Tokenizer(
            tokenizer, self.model.model.is_multilingual, task="transcribe", language="en"
        )
        self.suppressed = get_suppressed_tokens(self.tokenizer, [-1])

    def features(self, samples: list[Samples]) -> Made:
        return np.stack([pad_or_trim(self.model.feature_extractor(each)[:, :3000]) for each in samples])

    def encode(self, features: Made) -> Made:
        return self.model.encode(features)

    def search(self, encoded: Made, beam: int | None) -> list[list[int]]:
        prompt = self.model.get_prompt(self.tokenizer, previous_tokens=[], without_timestamps=True)
        answers = self.model.model.generate(
            encoded,
            [prompt] * encoded.shape[0],
            beam_size=beam or 1,
            patience=1,
            length_penalty=1,
            max_length=LONGEST,
            suppress_blank=True,
            suppress_tokens=self.suppressed,
            return_scores=True,
            return_no_speech_prob=True,
            sampling_temperature=0.0,
        )
        tokens = [list(answer.sequences_ids[0]) for answer in answers]
        for row in tokens:
            self.tokenizer.decode(row)
        return tokens


if __name__ == "__main__":
    serve(FasterWhisper)
