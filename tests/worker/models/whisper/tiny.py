"""A tiny random Whisper in every layout, with a tokenizer: two layers of two heads, a real vocabulary."""

import io
import json
import struct
import zipfile
from dataclasses import asdict
from functools import cache
from pathlib import Path

import mlx.core as mx
import numpy as np

from ops.testbed.torch_checkpoint import pickled, tensor
from worker.models import HUGGING_FACE_NAMES, SpecialTokens, WhisperDims, byte_table
from worker.models.whisper.network import shapes_of

Tensors = dict[str, np.ndarray]
SUPPRESS = [1, 2, 7, 50361]
HEADS = [[0, 1], [1, 0]]


def make_dims(vocabulary: int = 51865, mels: int = 80) -> WhisperDims:
    return WhisperDims(mels, 1500, 128, 2, 2, vocabulary, 448, 128, 2, 2)


@cache
def make_tensors(dims: WhisperDims, seed: int = 0) -> Tensors:
    """float16 numbers as float32, so that every layout holds them exactly."""
    generator = np.random.default_rng(seed)
    tensors = {}
    for name, shape in shapes_of(dims).items():
        spread = 0.35 if "token_embedding" in name else 1.5 / shape[-1] ** 0.5
        values = generator.normal(size=shape).astype(np.float32) * spread
        if "_ln.weight" in name or name.endswith(("ln.weight", "ln_post.weight")):
            values = 1 + values
        tensors[name] = values.astype(np.float16).astype(np.float32)
    # An end that is likely now and then: searches then end at unlike lengths.
    table, eot = tensors["decoder.token_embedding.weight"], SpecialTokens(dims.n_vocab).eot
    table[eot] = (table[eot] * 1.9).astype(np.float16)
    return tensors


@cache
def tokenizer_text(vocabulary: int) -> str:
    """A byte-level tokenizer of the right size: GPT-2's letters, then pieces that nothing merges to."""
    ids = SpecialTokens(vocabulary)
    letters = list(byte_table())
    vocab = {letter: index for index, letter in enumerate(letters)}
    for index in range(len(vocab), ids.eot):
        vocab[f"Ġx{index}"] = index
    special = {
        "<|endoftext|>": ids.eot,
        "<|startoftranscript|>": ids.sot,
        "<|transcribe|>": ids.transcribe,
        "<|notimestamps|>": ids.no_timestamps,
    }
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{"id": at, "content": name, **flags} for name, at in special.items()],
            "normalizer": None,
            "pre_tokenizer": level,
            "post_processor": None,
            "decoder": level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": "",
                "end_of_word_suffix": "",
                "fuse_unk": False,
                "vocab": vocab,
                "merges": [],
            },
        }
    )


def _finish(folder: Path, dims: WhisperDims, config: dict[str, object]) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(tokenizer_text(dims.n_vocab))
    return folder


def _generation(dims: WhisperDims) -> dict[str, object]:
    return {
        "suppress_tokens": SUPPRESS,
        "begin_suppress_tokens": [220, SpecialTokens(dims.n_vocab).eot],
        "alignment_heads": HEADS,
    }


def hugging_face_name(name: str) -> str:
    for ours, theirs in (
        ("blocks.", "layers."),
        ("cross_attn_ln", "encoder_attn_layer_norm"),
        ("attn_ln", "self_attn_layer_norm"),
        ("mlp_ln", "final_layer_norm"),
        ("mlp.0", "fc1"),
        ("mlp.2", "fc2"),
        (".cross_attn.", ".encoder_attn."),
        (".attn.", ".self_attn."),
        (".query.", ".q_proj."),
        (".key.", ".k_proj."),
        (".value.", ".v_proj."),
        (".out.", ".out_proj."),
        ("positional_embedding", "embed_positions.weight"),
        ("token_embedding", "embed_tokens"),
        ("ln_post.", "layer_norm."),
        ("decoder.ln.", "decoder.layer_norm."),
    ):
        name = name.replace(ours, theirs)
    return "model." + name


def write_hugging_face(folder: Path, dims: WhisperDims, tensors: Tensors) -> Path:
    mx.save_safetensors(
        str(folder / "model.safetensors"),
        {hugging_face_name(name): mx.array(value) for name, value in tensors.items()},
    )
    (folder / "generation_config.json").write_text(json.dumps(_generation(dims)))
    config = {HUGGING_FACE_NAMES[key]: value for key, value in asdict(dims).items()}
    return _finish(folder, dims, {"model_type": "whisper", **config})


def write_openai(folder: Path, dims: WhisperDims, tensors: Tensors) -> Path:
    mx.save_safetensors(
        str(folder / "model.safetensors"), {name: mx.array(value) for name, value in tensors.items()}
    )
    return _finish(folder, dims, {**asdict(dims), **_generation(dims)})


def write_checkpoint(folder: Path, dims: WhisperDims, tensors: Tensors) -> Path:
    """OpenAI's `.pt`: sizes and float16 tensors in one pickle, and no configuration."""
    sizes = b"}(" + b"".join(pickled(key) + pickled(value) for key, value in asdict(dims).items()) + b"u"
    state, out = b"}(", io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for key, (name, value) in enumerate(tensors.items()):
            stride = tuple(step // value.itemsize for step in value.strides)
            state += pickled(name) + tensor("HalfStorage", str(key), value.size, 0, value.shape, stride)
            archive.writestr(f"tiny/data/{key}", value.astype(np.float16).tobytes())
        index = b"\x80\x02}(" + pickled("dims") + sizes + pickled("model_state_dict") + state + b"uu."
        archive.writestr("tiny/data.pkl", index)
    (folder / "tiny.pt").write_bytes(out.getvalue())
    (folder / "tokenizer.json").write_text(tokenizer_text(dims.n_vocab))
    return folder


def write_mlx(folder: Path, dims: WhisperDims, tensors: Tensors, bits: int = 0) -> Path:
    """bits: the matrices are quantised in groups of 64, as mlx-whisper's converter does; 0: none is."""
    named = {}
    for name, value in tensors.items():
        if name == "encoder.positional_embedding":
            continue
        moved = value.swapaxes(1, 2) if ".conv" in name and value.ndim == 3 else value
        new = name.replace(".mlp.0.", ".mlp1.").replace(".mlp.2.", ".mlp2.")
        if bits and moved.ndim == 2 and name.endswith(".weight"):
            parts = mx.quantize(mx.array(moved), group_size=64, bits=bits)
            for kind, part in zip(("weight", "scales", "biases"), parts, strict=True):
                named[f"{new.removesuffix('weight')}{kind}"] = np.array(part)
        else:
            named[new] = moved
    np.savez(folder / "weights.npz", allow_pickle=True, **named)
    quantization = {"quantization": {"group_size": 64, "bits": bits}} if bits else {}
    return _finish(folder, dims, {**asdict(dims), **_generation(dims), **quantization})


def _ctranslate2_variables(tensors: Tensors) -> Tensors:
    out: Tensors = {}
    fused: dict[str, dict[str, np.ndarray]] = {}
    for name, value in tensors.items():
        side, *rest = name.split(".")
        kind = {"weight": "weight", "bias": "bias"}.get(rest[-1], "")
        if rest[0] == "positional_embedding":
            out[f"{side}/position_encodings/encodings"] = value
        elif rest[0] == "token_embedding":
            out["decoder/embeddings/weight"] = value
        elif rest[0] in ("ln", "ln_post"):
            out[f"{side}/layer_norm/{'gamma' if kind == 'weight' else 'beta'}"] = value
        elif rest[0].startswith("conv"):
            out[f"{side}/{rest[0]}/{kind}"] = value
        else:
            layer = f"{side}/layer_{rest[1]}"
            block = {"attn": "self_attention", "cross_attn": "attention", "mlp": "ffn"}[
                rest[2].removesuffix("_ln")
            ]
            if rest[2].endswith("_ln"):
                out[f"{layer}/{block}/layer_norm/{'gamma' if kind == 'weight' else 'beta'}"] = value
            elif block == "ffn":
                out[f"{layer}/ffn/linear_{int(rest[3]) // 2}/{kind}"] = value
            else:
                fused.setdefault(f"{layer}/{block}/{kind}", {})[rest[3]] = value
    for path, ways in fused.items():
        prefix, kind = path.rsplit("/", 1)
        ways.setdefault("key", np.zeros_like(ways["value"]))
        groups = (
            (("query", "key", "value"), ("out",))
            if "self" in prefix
            else (("query",), ("key", "value"), ("out",))
        )
        for index, group in enumerate(groups):
            out[f"{prefix}/linear_{index}/{kind}"] = np.concatenate([ways[way] for way in group])
    return out


def write_ctranslate2(folder: Path, dims: WhisperDims, tensors: Tensors, kind: str = "float16") -> Path:
    """kind: float16, float32, int8 (matrices by rows) or int16 (by matrix)."""
    variables: Tensors = {}
    for name, value in _ctranslate2_variables(tensors).items():
        matrix = value.ndim == 2 and "linear" in name
        if kind == "int8" and matrix:
            scale = 127 / np.abs(value).max(axis=1)
            variables[name] = np.rint(value * scale[:, None]).astype(np.int8)
            variables[name + "_scale"] = scale.astype(np.float32)
        elif kind == "int16" and matrix:
            scale = np.float32(32767 / np.abs(value).max())
            variables[name] = np.rint(value * scale).astype(np.int16)
            variables[name + "_scale"] = np.array(scale)
        else:
            variables[name] = value.astype(np.float32 if kind == "float32" else np.float16)
    for side in ("encoder", "decoder"):
        variables[f"{side}/num_heads"] = np.array(2, np.int16)
    codes = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}

    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    data = [struct.pack("<I", 6), text("WhisperSpec"), struct.pack("<II", 3, len(variables))]
    for name, value in variables.items():
        data += [text(name), struct.pack("<B", value.ndim), struct.pack(f"<{value.ndim}I", *value.shape)]
        data += [struct.pack("<BI", codes[value.dtype.name], value.nbytes), value.tobytes()]
    data += [struct.pack("<I", 1), text("decoder/projection/weight"), text("decoder/embeddings/weight")]
    (folder / "model.bin").write_bytes(b"".join(data))
    ids = SpecialTokens(dims.n_vocab)
    settings = {"suppress_ids": SUPPRESS, "suppress_ids_begin": [220, ids.eot], "alignment_heads": HEADS}
    return _finish(folder, dims, settings)


def tone(seconds: float, seed: int = 0) -> np.ndarray:
    """A sound that changes: two tones that glide, and noise."""
    time = np.arange(int(seconds * 16_000)) / 16_000
    noise = np.random.default_rng(seed).normal(size=len(time)) * 0.02
    wave = np.sin(2 * np.pi * (300 + 40 * seed + 200 * time) * time) + np.sin(2 * np.pi * 900 * time * time)
    return (0.2 * wave * (1 + np.sin(5 * time)) + noise).astype(np.float32)
