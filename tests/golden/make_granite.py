"""Writes granite/: two small random models of Granite Speech 5 TurboCTC in unusual sizes, and what
transformers answers for ten utterances.

    python tests/golden/make_granite.py

Needs transformers 5.24.0, PyTorch 2.13.0 and torchaudio's Python part (its compiled part is not needed).
`wide` has a head of its own, features of other sizes and few settings in its configuration; `first` is stored
in bfloat16, in two shards, under the names of the first release's code. Utterances are those of audio.npz,
each alone, and cuts of the third of them that end at edges: one encoder frame, an odd number of frames in
each layer, a short last block.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import (
    GraniteSpeech5CTCConfig,
    GraniteSpeech5EncoderConfig,
    GraniteSpeech5FeatureExtractor,
    GraniteSpeech5ForCTC,
    GraniteSpeech5Processor,
    ParakeetTokenizer,
)

GOLDEN = Path(__file__).parent
OUT = GOLDEN / "granite"
CUTS = (1_400, 1_679, 2_719, 4_000, 9_601)
KINDS: dict[str, dict[str, Any]] = {
    "wide": {
        "encoder": {
            "num_hidden_layers": 5,
            "hidden_size": 20,
            "num_attention_heads": 2,
            "head_dim": 12,
            "intermediate_size": 36,
            "num_mel_bins": 24,
            "context_size": 7,
            "max_position_embeddings": 9,
            "conv_kernel_size": 3,
            "conv_expansion_factor": 1,
            "subsample_layers": [1, 3],
            "attention_bias": False,
        },
        "features": {"num_mel_bins": 24, "win_length": 320, "hop_length": 200, "delta_win_length": 5},
        "tied": False,
    },
    # Without the keys whose values are transformers' own.
    "first": {
        "encoder": {
            "num_hidden_layers": 4,
            "hidden_size": 16,
            "num_attention_heads": 2,
            "intermediate_size": 24,
            "context_size": 24,
        },
        "features": {},
        "tied": True,
    },
}
NAMES = (
    ("norm_feed_forward1", "ff1.pre_norm"),
    ("norm_feed_forward2", "ff2.pre_norm"),
    ("feed_forward1.linear1", "ff1.up_proj"),
    ("feed_forward1.linear2", "ff1.down_proj"),
    ("feed_forward2.linear1", "ff2.up_proj"),
    ("feed_forward2.linear2", "ff2.down_proj"),
    ("norm_self_att", "attn.pre_norm"),
    ("self_attn.q_proj", "attn.to_q"),
    ("self_attn.o_proj", "attn.to_out"),
    ("self_attn.rel_pos_emb", "attn.rel_pos_emb"),
    ("conv.norm.", "conv.batch_norm."),
    ("norm_conv", "conv.norm"),
    ("conv.depthwise_conv", "conv.depth_conv.conv"),
    ("conv.pointwise_lin1", "conv.up_conv"),
    ("conv.pointwise_lin2", "conv.down_conv"),
    ("norm_out", "post_norm"),
)


def make_tokenizer() -> ParakeetTokenizer:
    """A byte-level BPE of 270 tokens: blank, the bytes, and what a few merges make."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [
        ("t", "h"),
        ("Ġ", "th"),
        ("Ġth", "e"),
        ("i", "n"),
        ("in", "g"),
        ("Ġ", "a"),
        ("e", "r"),
        ("o", "u"),
    ]
    merges += [("Ġ", "w"), ("Ã", "©"), ("Ġ", "s"), ("r", "e"), ("o", "n")]
    pieces = ["<|blank|>", *letters, *(left + right for left, right in merges)]
    tokens = Tokenizer(models.BPE({piece: token for token, piece in enumerate(pieces)}, merges))
    tokens.normalizer = normalizers.NFC()
    tokens.pre_tokenizer, tokens.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
    tokens.add_special_tokens([AddedToken("<|blank|>", special=True)])
    return ParakeetTokenizer(tokenizer_object=tokens, pad_token="<|blank|>")


@torch.no_grad()
def randomise(model: torch.nn.Module, seed: int) -> None:
    """Weights that let a signal pass, with every norm and statistic moved."""
    generator = torch.Generator().manual_seed(seed)

    def draw(like: torch.Tensor) -> torch.Tensor:
        return torch.randn(like.shape, generator=generator)

    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.copy_(0.2 * draw(module.running_mean))
            module.running_var.copy_(torch.exp(0.3 * draw(module.running_var)))
        if isinstance(module, torch.nn.BatchNorm1d | torch.nn.LayerNorm):
            module.weight.copy_(1 + 0.2 * draw(module.weight))
            module.bias.copy_(0.1 * draw(module.bias))
        elif isinstance(module, torch.nn.Embedding):
            module.weight.copy_(draw(module.weight))
        elif isinstance(module, torch.nn.Linear | torch.nn.Conv1d):
            module.weight.copy_(draw(module.weight) / module.weight[0].numel() ** 0.5)
            if module.bias is not None:
                module.bias.copy_(0.1 * draw(module.bias))


@torch.inference_mode()
def sharpen(model: Any, hidden: torch.Tensor) -> None:
    """Makes the head sure enough for a text: its spread, and blank on about half of the frames."""
    head = model.ctc_head
    head.weight *= 4.0
    logits = head(hidden)
    head.bias[0] += (logits[:, 1:].max(-1).values - logits[:, 0]).quantile(0.5) + 0.01


def first_names(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Under the names of the first release's code: keys and values as one, pointwise convolutions."""
    renamed = {}
    for name, tensor in tensors.items():
        if name.endswith("self_attn.v_proj.weight"):
            continue
        if name.endswith("self_attn.k_proj.weight"):
            values = tensors[name.replace("k_proj", "v_proj")]
            renamed[name.replace("self_attn.k_proj", "attn.to_kv")] = torch.cat([tensor, values])
            continue
        is_point = ".pointwise_lin" in name and name.endswith("weight")
        for ours, theirs in NAMES:
            name = name.replace(ours, theirs)
        renamed[name] = tensor[..., None].contiguous() if is_point else tensor
    return renamed


def write_shards(folder: Path) -> None:
    """The tensors of a folder in two files, and the index that names them."""
    tensors = first_names(load_file(folder / "model.safetensors"))
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    places: dict[str, str] = {}
    for number, part in enumerate((names[: len(names) // 2], names[len(names) // 2 :]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file, {"format": "pt"})
        places |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def drop_defaults(folder: Path, kept: set[str]) -> None:
    """Leaves the settings that the kind names, and what a folder needs to be known."""
    config = json.loads((folder / "config.json").read_text())
    encoder = {key: value for key, value in config["encoder_config"].items() if key in kept | {"vocab_size"}}
    own = {key: config[key] for key in ("model_type", "vocab_size", "dtype") if key in config}
    own["tie_word_embeddings"] = config["tie_word_embeddings"]
    (folder / "config.json").write_text(json.dumps(own | {"encoder_config": encoder}, indent=1) + "\n")


def utterances() -> list[np.ndarray]:
    with np.load(GOLDEN / "audio.npz") as stored:
        rows = zip(stored["audio"], stored["lengths"], strict=True)
        whole = [row[:length].astype(np.float32) / 32768 for row, length in rows]
    return [*whole, *(whole[2][:cut] for cut in CUTS)]


@torch.inference_mode()
def make(name: str, seed: int) -> None:
    kind, folder, tokenizer = KINDS[name], OUT / name, make_tokenizer()
    shutil.rmtree(folder, ignore_errors=True)
    encoder = GraniteSpeech5EncoderConfig(vocab_size=270, **kind["encoder"])
    config = GraniteSpeech5CTCConfig(encoder_config=encoder, vocab_size=270, tie_word_embeddings=kind["tied"])
    model = GraniteSpeech5ForCTC(config).eval()
    extractor = GraniteSpeech5FeatureExtractor(**kind["features"])
    randomise(model, seed)
    model.tie_weights()
    heard = [extractor(each, sampling_rate=16_000, return_tensors="pt") for each in utterances()]
    sharpen(model, torch.cat([model.encoder(**each).last_hidden_state[0] for each in heard]))
    if name == "first":
        model = model.to(torch.bfloat16)
    model.save_pretrained(folder)
    GraniteSpeech5Processor(extractor, tokenizer).save_pretrained(folder)
    model = GraniteSpeech5ForCTC.from_pretrained(folder, dtype=torch.float32).eval()
    if name == "first":
        write_shards(folder)
    drop_defaults(folder, set(kind["encoder"]))
    for file in ("generation_config.json", "tokenizer_config.json"):
        (folder / file).unlink(missing_ok=True)
    answers: dict[str, Any] = {}
    for number, features in enumerate(heard):
        encoded = model.encoder(**features)
        frames = encoded.last_hidden_state[0][encoded.attention_mask[0].bool()]
        logits = model.ctc_head(frames).log_softmax(-1)
        labels = logits.argmax(-1)
        answers[f"features.{number}"] = features["input_features"][0, ::40].numpy()
        answers[f"encoder.{number}"] = frames.numpy()
        answers[f"labels.{number}"] = labels.numpy().astype(np.int16)
        answers[f"text.{number}"] = tokenizer.decode(labels, skip_special_tokens=True)
        if len(frames):
            answers[f"log_probs.{number}"] = logits[[0, -1]].numpy()
    np.savez_compressed(OUT / f"{name}.npz", **answers)


def main() -> None:
    torch.set_num_threads(1)
    for seed, name in enumerate(sys.argv[1:] or KINDS, 5):
        make(name, seed)


if __name__ == "__main__":
    main()
