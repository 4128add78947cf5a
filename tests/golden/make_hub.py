"""What transformers says of models in the hub's layout -> tests/golden/hub/NAME/: its weights in bfloat16,
and its answers to utterances of `audio.npz` in `answers.npz`.

    OMP_NUM_THREADS=1 python tests/golden/make_hub.py MODELS parakeet_rnnt canary cohere

MODELS holds folders as `save_pretrained` writes them, random or briefly trained. Needs transformers 5.24.0,
torch 2.13.0, tokenizers. Each utterance is answered alone, in float32 from the rounded weights.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

GOLDEN = Path(__file__).parent
UTTERANCES = (0, 1, 2)
BEAM, TOKENS = 4, 40
REQUESTS: dict[str, dict[str, dict[str, Any]]] = {
    "cohere": {"en": {"language": "en"}, "fr_nopnc": {"language": "fr", "punctuation": False}},
    "canary": {
        "en": {"source_language": "en"},
        "en_de_nopnc": {"source_language": "en", "target_language": "de", "punctuation": False},
    },
}


def copy_model(source: Path, target: Path) -> None:
    """A folder with its weights in bfloat16, and answers of 40 tokens at most."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    for path in target.iterdir():
        path.chmod(0o644)
    weights = load_file(str(target / "model.safetensors"))
    rounded = {
        name: value.to(torch.bfloat16) if value.is_floating_point() else value
        for name, value in weights.items()
        if not name.endswith("num_batches_tracked")
    }
    save_file(rounded, str(target / "model.safetensors"), {"format": "pt"})
    path = target / "generation_config.json"
    settings = json.loads(path.read_text())
    if "max_new_tokens" in settings:
        path.write_text(json.dumps(settings | {"max_new_tokens": TOKENS}))


def trim(row: torch.Tensor, ends: list[int]) -> tuple[list[int], bool]:
    """Tokens before the end, and whether there is one."""
    tokens = row.tolist()
    at = next((place for place, token in enumerate(tokens) if token in ends), None)
    return (tokens, False) if at is None else (tokens[:at], True)


def answer_transducer(model: Any, processor: Any, samples: np.ndarray, number: int) -> dict[str, np.ndarray]:
    inputs = processor(samples, sampling_rate=16_000, return_tensors="pt")
    encoded = model.encoder(inputs["input_features"], attention_mask=inputs["attention_mask"])
    found = model.generate(**inputs)
    labels, waits = found.sequences[0], found.durations[0]
    kept = [at for at, token in enumerate(labels.tolist()) if token != model.config.blank_token_id]
    frames = waits.cumsum(0) - waits
    return {
        f"encoder.{number}": encoded.last_hidden_state[0][encoded.attention_mask[0].bool()].numpy(),
        f"tokens.{number}": labels[kept].numpy().astype(np.int32),
        f"frames.{number}": frames[kept].numpy().astype(np.int32),
        f"text.{number}": np.array(processor.decode(labels, skip_special_tokens=True)),
    }


def answer_decoder(
    model: Any,
    processor: Any,
    samples: np.ndarray,
    key: str,
    request: dict[str, Any],
) -> dict[str, np.ndarray]:
    if "language" in request:
        inputs = processor(samples, sampling_rate=16_000, **request)
        inputs.pop("audio_chunk_index")
    else:
        inputs = processor.apply_transcription_request(samples, sampling_rate=16_000, **request)
    prompt, ends = inputs["decoder_input_ids"], np.atleast_1d(model.generation_config.eos_token_id).tolist()
    mask = inputs["attention_mask"]
    encoded = model.model.encoder(inputs["input_features"], attention_mask=mask)
    answers = {
        f"prompt.{key}": prompt[0].numpy().astype(np.int32),
        f"encoder.{key}": encoded.last_hidden_state[0][encoded.attention_mask[0].bool()].numpy(),
        f"greedy.{key}": np.array(trim(model.generate(**inputs)[0, prompt.shape[1] :], ends)[0], np.int32),
    }
    found = model.generate(
        **inputs,
        num_beams=BEAM,
        num_return_sequences=BEAM,
        output_scores=True,
        return_dict_in_generate=True,
    )
    lists = [trim(row, ends) for row in found.sequences[:, prompt.shape[1] :]]
    longest = max(1, *(len(tokens) for tokens, _ in lists))
    table = np.full((BEAM, longest), -1, np.int32)
    for row, (tokens, _) in zip(table, lists, strict=True):
        row[: len(tokens)] = tokens
    lengths = np.array([len(tokens) + ended for tokens, ended in lists])
    answers[f"beam.{key}"] = table
    answers[f"beam_score.{key}"] = found.sequences_scores.numpy() * lengths
    return answers


def main(models: Path, names: list[str]) -> None:
    stored = np.load(GOLDEN / "audio.npz")
    audio = [stored["audio"][at, : stored["lengths"][at]].astype(np.float32) / 32768 for at in UTTERANCES]
    for name in names:
        target, answers = GOLDEN / "hub" / name, dict[str, Any]()
        copy_model(models / name, target)
        kind = json.loads((target / "config.json").read_text())["architectures"][0]
        model = getattr(transformers, kind).from_pretrained(target, dtype=torch.float32).eval()
        processor = transformers.AutoProcessor.from_pretrained(target)
        for number, samples in enumerate(audio):
            with torch.no_grad():
                if name not in REQUESTS:
                    answers |= answer_transducer(model, processor, samples, number)
                for key, request in REQUESTS.get(name, {}).items():
                    answers |= answer_decoder(model, processor, samples, f"{number}.{key}", request)
        if name in REQUESTS:
            answers["requests"] = np.array(json.dumps(REQUESTS[name]))
        np.savez_compressed(target / "answers.npz", **answers)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
