"""transformers for `compare.py`, in its own environment: processor and model as its documentation has it."""

import os
from collections.abc import Callable
from typing import Any

import torch
from transformers import (
    AutoModelForCTC,
    AutoProcessor,
    CohereAsrForConditionalGeneration,
    Qwen3ASRForConditionalGeneration,
)

from ops.bench.peers.child import Engine, Made, Samples, serve


class Granite:
    """See `child.Engine`."""

    def __init__(self, path: str) -> None:
        self.processor = AutoProcessor.from_pretrained(path)
        self.model: Any = AutoModelForCTC.from_pretrained(path, dtype=torch.float32).eval()

    @torch.inference_mode()
    def features(self, samples: list[Samples]) -> Made:
        return self.processor(samples, sampling_rate=16_000)

    @torch.inference_mode()
    def encode(self, features: Made) -> Made:
        return self.model.encoder(features["input_features"], attention_mask=features["attention_mask"])

    @torch.inference_mode()
    def search(self, encoded: Made, beam: int | None) -> list[list[int]]:
        assert beam is None
        labels = self.model.ctc_head(encoded.last_hidden_state).argmax(-1)
        labels = labels.masked_fill(~encoded.attention_mask.bool(), 0)
        self.processor.batch_decode(labels, skip_special_tokens=True)
        return [[token for token in torch.unique_consecutive(row).tolist() if token] for row in labels]


class Cohere:
    """See `child.Engine`."""

    def __init__(self, path: str) -> None:
        self.processor = AutoProcessor.from_pretrained(path)
        model = CohereAsrForConditionalGeneration.from_pretrained(path, dtype=torch.float32)
        self.model: Any = model.eval()

    @torch.inference_mode()
    def features(self, samples: list[Samples]) -> Made:
        return self.processor(samples, sampling_rate=16_000, language="en")

    @torch.inference_mode()
    def encode(self, features: Made) -> Made:
        inputs, mask = features["input_features"], features["attention_mask"]
        return self.model.model.encoder(inputs, attention_mask=mask), features["decoder_input_ids"]

    @torch.inference_mode()
    def search(self, encoded: Made, beam: int | None) -> list[list[int]]:
        frames, prompt = encoded
        found = self.model.generate(
            encoder_outputs=frames, decoder_input_ids=prompt, num_beams=beam or 1, do_sample=False
        )[:, prompt.shape[1] :]
        self.processor.batch_decode(found, skip_special_tokens=True)
        special = (self.model.generation_config.eos_token_id, self.model.generation_config.pad_token_id)
        return [[token for token in row.tolist() if token not in special] for row in found]


PROMPT = (
    "<|im_start|>system\n<|im_end|>\n<|im_start|>user\n<|audio_start|><|audio_pad|><|audio_end|><|im_end|>\n"
    "<|im_start|>assistant\nlanguage English<asr_text>"
)


class Qwen:
    """See `child.Engine`."""

    def __init__(self, path: str) -> None:
        self.processor = AutoProcessor.from_pretrained(path)
        model = Qwen3ASRForConditionalGeneration.from_pretrained(path, dtype=torch.float32)
        self.model: Any = model.eval()
        self.listen = self.model.model.get_audio_features

    @torch.inference_mode()
    def features(self, samples: list[Samples]) -> Made:
        return self.processor(text=[PROMPT] * len(samples), audio=samples)

    @torch.inference_mode()
    def encode(self, features: Made) -> Made:
        return features, self.listen(features["input_features"], features["input_features_mask"])

    @torch.inference_mode()
    def search(self, encoded: Made, beam: int | None) -> list[list[int]]:
        features, heard = encoded
        self.model.model.get_audio_features = lambda *_, **__: heard
        asked = {key: value for key, value in features.items() if key != "num_audio_tokens"}
        found = self.model.generate(**asked, num_beams=beam or 1, do_sample=False)
        found = found[:, features["input_ids"].shape[1] :]
        self.processor.batch_decode(found, skip_special_tokens=True)
        return [row.tolist() for row in found]


ENGINES: dict[str, Callable[[str], Engine]] = {
    "cohere_asr": Cohere,
    "granite_speech5_ctc": Granite,
    "qwen3_asr": Qwen,
}


def make(path: str) -> Engine:
    """The engine of a folder's `model_type`."""
    from transformers import AutoConfig

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    return ENGINES[AutoConfig.from_pretrained(path).model_type](path)


if __name__ == "__main__":
    serve(make)
