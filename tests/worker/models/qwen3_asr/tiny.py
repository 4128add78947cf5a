"""A tiny random Qwen3-ASR in every layout that its folders have: transformers' names and the original's, one
file and shards, tokenizer.json and vocab.json with merges.txt."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from worker.models import parse_qwen
from worker.models.attention.audio_tower import tower_shapes
from worker.models.qwen3_asr import decoder
from worker.models.qwen3_asr.tokenizer import SPLIT
from worker.models.tokenizers.bytes import byte_table

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_end|>", "<|audio_pad|>")
PLAIN = ("<asr_text>", "<timestamp>")
MERGES = [("Ġ", "t"), ("h", "e"), ("Ġt", "he")]
WORDS = [*byte_table(), *("".join(pair) for pair in MERGES)]
ADDED = {content: len(WORDS) + at for at, content in enumerate((*SPECIAL, *PLAIN))}
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ASRForConditionalGeneration"],
    "model_type": "qwen3_asr",
    "audio_config": {
        "num_mel_bins": 128,
        "d_model": 16,
        "encoder_layers": 1,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 24,
        "output_dim": 20,
        "n_window_infer": 200,
        "downsample_hidden_size": 4,
    },
    "text_config": {
        "vocab_size": 272,
        "hidden_size": 20,
        "intermediate_size": 28,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 10,
        "max_position_embeddings": 2048,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    },
    "audio_token_id": ADDED["<|audio_pad|>"],
    "timestamp_token_id": ADDED["<timestamp>"],
    "eos_token_id": [ADDED["<|endoftext|>"], ADDED["<|im_end|>"]],
    "tie_word_embeddings": True,
}
GENERATION = {"eos_token_id": CONFIG["eos_token_id"], "max_new_tokens": 12}
ORIGINAL = (
    ("model.multi_modal_projector.linear_", "thinker.audio_tower.proj"),
    ("model.language_model.", "thinker.model."),
    ("model.", "thinker."),
    ("lm_head.", "thinker.lm_head."),
    ("score.", "thinker.lm_head."),
)


def weights(config: dict[str, Any] = CONFIG, seed: int = 1) -> dict[str, mx.array]:
    """Random tensors by transformers' names."""
    parsed, random = parse_qwen(config, GENERATION), np.random.default_rng(seed)
    shapes = tower_shapes(parsed.audio) | decoder.shapes_of(parsed, {})
    return {
        name: mx.array(
            (random.standard_normal(shape) / np.sqrt(shape[-1] if len(shape) > 1 else 4)).astype(np.float32)
            + (name.endswith(("norm.weight", "ln_post.weight")))
        )
        for name, shape in shapes.items()
    }


def make_tokenizer() -> tokenizers.Tokenizer:
    """Bytes and three merges, with Qwen's split."""
    tokenizer = tokenizers.Tokenizer(models.BPE({word: at for at, word in enumerate(WORDS)}, MERGES))
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(tokenizers.Regex(SPLIT), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.add_tokens(list(PLAIN))
    return tokenizer


def write_folder(
    folder: Path,
    config: dict[str, Any] = CONFIG,
    tensors: dict[str, mx.array] | None = None,
    *,
    shards: int = 1,
    original: bool = False,
    slow: bool = False,
) -> Path:
    """A model's folder. original: the names of the makers' own files; slow: an older folder's tokenizer."""
    folder.mkdir(exist_ok=True)
    tensors = weights(config) if tensors is None else tensors
    if original:
        nested = {key: value for key, value in config.items() if key not in ("architectures", "model_type")}
        config = {
            "architectures": config["architectures"],
            "model_type": "qwen3_asr",
            "thinker_config": nested,
        }
        tensors = {_original_name(name): value for name, value in tensors.items()}
    write(folder / "config.json", config)
    write(folder / "generation_config.json", GENERATION)
    if slow:
        write(folder / "vocab.json", {word: at for at, word in enumerate(WORDS)})
        (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in MERGES))
        added = {str(at): {"content": name, "special": name in SPECIAL} for name, at in ADDED.items()}
        write(folder / "tokenizer_config.json", {"added_tokens_decoder": added})
    else:
        make_tokenizer().save(str(folder / "tokenizer.json"))
    if shards == 1:
        mx.save_safetensors(str(folder / "model.safetensors"), tensors)
        return folder
    places: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        own = {name: tensors[name] for name in sorted(tensors)[shard::shards]}
        mx.save_safetensors(str(folder / file), own)
        places |= dict.fromkeys(own, file)
    write(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": places})
    return folder


def write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def _original_name(name: str) -> str:
    for prefix, replacement in ORIGINAL:
        if name.startswith(prefix):
            return replacement + name[len(prefix) :]
    return name
