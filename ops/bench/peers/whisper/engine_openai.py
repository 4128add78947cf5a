"""openai-whisper for `compare.py`, in its own environment: its encoder and its `decode`."""

import json
import os
from pathlib import Path

import numpy as np
import torch
import whisper
from whisper.audio import N_FRAMES, log_mel_spectrogram, pad_or_trim
from whisper.model import ModelDimensions, Whisper

from ops.bench.peers.child import Made, Samples, serve


class OpenAiWhisper:
    """See `child.Engine`. The model is the `openai` folder beside that of the others."""

    def __init__(self, path: str) -> None:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        folder = Path(path)
        self.model = Whisper(ModelDimensions(**json.loads((folder / "dims.json").read_text())))
        with np.load(folder / "weights.npz") as stored:
            self.model.load_state_dict({name: torch.from_numpy(stored[name]) for name in stored.files})
        self.model.eval()

    @torch.inference_mode()
    def features(self, samples: list[Samples]) -> Made:
        mels = [log_mel_spectrogram(each, n_mels=self.model.dims.n_mels) for each in samples]
        return torch.stack([pad_or_trim(mel, N_FRAMES) for mel in mels])

    @torch.inference_mode()
    def encode(self, features: Made) -> Made:
        return self.model.encoder(features)

    def search(self, encoded: Made, beam: int | None) -> list[list[int]]:
        options = whisper.DecodingOptions(language="en", without_timestamps=True, fp16=False, beam_size=beam)
        # Its beam takes one window at a time: it does not repeat a batch's frames for the hypotheses.
        parts = [encoded] if beam is None else encoded.split(1)
        return [list(answer.tokens) for part in parts for answer in whisper.decode(self.model, part, options)]


if __name__ == "__main__":
    serve(OpenAiWhisper)
