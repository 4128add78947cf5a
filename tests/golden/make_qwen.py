"""Makes `qwen3_asr.npz` by transformers 5.24.0 (torch, CPU, float32) of a small model in the hub's layout.

    OMP_NUM_THREADS=1 python tests/golden/make_qwen.py FOLDER RECORDING.flac ...

FOLDER holds a Qwen3-ASR of few and narrow layers, its language model trained for some seconds on made-up
transcripts, so that its answers end and its beams have rivals. Its weights are rounded to bfloat16, as the
published ones are. Every recording is heard alone: in a batch the reference's answers depend on it.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
import transformers
from safetensors.torch import load_file, save_file

OUT = Path(__file__).with_name("qwen3_asr.npz")
REQUESTS = {"auto": {}, "es": {"language": "es"}, "context": {"prompt": "lamp, stones"}}
FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
BEAM = 4


def main(source: Path, recordings: list[str]) -> None:
    kept: dict[str, np.ndarray] = {"requests": np.array(json.dumps(REQUESTS))}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for path in source.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        rounded = {name: value.bfloat16() for name, value in load_file(source / "model.safetensors").items()}
        save_file(rounded, folder / "model.safetensors", {"format": "pt"})
        for name in (*FILES, "model.safetensors"):
            kept[f"file/{name}"] = np.frombuffer((folder / name).read_bytes(), np.uint8)
        model = transformers.Qwen3ASRForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        processor = transformers.AutoProcessor.from_pretrained(folder)
    model.eval()
    for at, recording in enumerate(recordings):
        kept[f"wav.{at}"], _ = soundfile.read(recording, dtype="int16")
        for name, request in REQUESTS.items():
            kept |= answer(
                model, processor, kept[f"wav.{at}"].astype(np.float32) / 32768, request, f"{at}.{name}"
            )
    np.savez_compressed(OUT, allow_pickle=False, **kept)


@torch.no_grad()
def answer(
    model: Any,
    processor: Any,
    samples: np.ndarray,
    request: dict[str, str],
    key: str,
) -> dict[str, np.ndarray]:
    """Embedded sound, prompt, greedy answer with its text, and the beam's list with sums of its tokens'
    log-probabilities."""
    given = dict(processor.apply_transcription_request(samples, sampling_rate=16000, **request))
    given.pop("num_audio_tokens", None)
    ends, prompt = model.generation_config.eos_token_id, given["input_ids"][0].tolist()
    sound = model.get_audio_features(given["input_features"], given["input_features_mask"]).pooler_output

    def cut(row: torch.Tensor) -> tuple[list[int], list[int]]:
        tokens = row.tolist()[len(prompt) :]
        last = next((at for at, token in enumerate(tokens) if token in ends), len(tokens))
        return tokens[:last], tokens[last : last + 1]

    def total(tokens: list[int]) -> float:
        """Of what is forced behind the prompt."""
        forced = {**given, "input_ids": torch.tensor([prompt + tokens])}
        forced.pop("attention_mask", None)
        logs = model(**forced).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        return float(logs[range(len(tokens)), tokens].double().sum())

    greedy = cut(model.generate(**given, do_sample=False)[0])[0]
    listed = [
        cut(row)
        for row in model.generate(**given, do_sample=False, num_beams=BEAM, num_return_sequences=BEAM)
    ]
    said = processor.parse_output(processor.tokenizer.decode(greedy, skip_special_tokens=True))
    return {
        f"sound.{key}": sound.numpy(),
        f"prompt.{key}": np.array(prompt, np.int32),
        f"greedy.{key}": np.array(greedy, np.int32),
        f"said.{key}": np.array(json.dumps(said, ensure_ascii=False)),
        f"beam.{key}": np.array(json.dumps([tokens for tokens, _ in listed])),
        f"sums.{key}": np.array([total(tokens + end) for tokens, end in listed]),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2:])
