"""A small random phoneme model in hama's file format, and the same network in plain numpy.

    python make_hama.py FOLDER

Tests make the files with this script rather than keep them: nearly all of their bytes are the transform's
matrices. `log_probs` restates the network of hama 1.7.0 from its table of tensors; on the package's own
weights it is within 2.6e-3 of the package's log-probabilities (28 clips; best symbol the same in every
frame). Needs numpy; nothing of Spool.
"""

# ruff: noqa: RUF001 - symbols of the phonetic alphabet

import json
import math
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
Tensors = dict[str, Array]

WIDTH, HEADS, LAYERS, INNER, KERNEL = 16, 4, 2, 24, 7
FFT, HOP, BINS, BANDS = 400, 160, 201, 80
FRONT = ("mel_fb", "stft_real_kernel", "stft_imag_kernel")
PREFIX = "acoustic_model.model"
SYMBOLS = [
    *(
        "<pad>",
        "<sos>",
        "<eos>",
        "<unk>",
        "a",
        "aɪ",
        "aʊ",
        "b",
        "d",
        "d͡ʒ",
        "e",
        "eɪ",
        "f",
        "h",
        "i",
        "j",
        "k",
    ),
    *("l", "m", "n", "o", "oʊ", "p", "s", "t", "t͡ʃ", "u", "v", "w", "z", "æ", "ð", "ŋ", "ɑ", "ɔ", "ɔɪ", "ə"),
    *("ɛ", "ɝ", "ɡ", "ɪ", "ɹ", "ʃ", "ʊ", "ʌ", "ʒ", "θ"),
]


def random_tensors(seed: int = 1, symbols: int = len(SYMBOLS)) -> Tensors:
    """Seeded weights; those of the real file under the same names and in the same layouts."""
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> Array:
        return rng.normal(0, 1 / math.sqrt(max(shape[-1], 4)), shape).astype(np.float32)

    at = np.arange(FFT)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * at / FFT)
    angles = 2 * np.pi * np.outer(np.arange(BINS), at) / FFT
    tensors: Tensors = {
        "mel_fb": np.maximum(rng.normal(0, 0.02, (BINS, BANDS)), 0).astype(np.float32),
        "stft_real_kernel": (np.cos(angles) * window).astype(np.float32)[:, None],
        "stft_imag_kernel": (-np.sin(angles) * window).astype(np.float32)[:, None],
        "onnx::Conv_90": draw(WIDTH, BANDS, 3),
        "onnx::Conv_100": draw(WIDTH),
    }
    for layer in range(LAYERS):
        block = f"{PREFIX}.blocks.{layer}"
        for part in ("ffn1", "ffn2"):
            tensors[f"{block}.{part}.fc1.bias"] = draw(INNER)
            tensors[f"{block}.{part}.fc2.bias"] = draw(WIDTH)
        for norm in ("ffn1.norm", "attn_norm", "conv.norm", "ffn2.norm", "norm"):
            tensors[f"{block}.{norm}.weight"] = 1 + draw(WIDTH)
            tensors[f"{block}.{norm}.bias"] = draw(WIDTH)
        tensors[f"{block}.attn.in_proj_bias"] = draw(3 * WIDTH)
        tensors[f"{block}.attn.out_proj.bias"] = draw(WIDTH)
        tensors[f"{block}.conv.pointwise1.weight"] = draw(2 * WIDTH, WIDTH, 1)
        tensors[f"{block}.conv.pointwise1.bias"] = draw(2 * WIDTH)
        tensors[f"{block}.conv.pointwise2.weight"] = draw(WIDTH, WIDTH, 1)
        tensors[f"{block}.conv.pointwise2.bias"] = draw(WIDTH)
        tensors[f"onnx::Conv_{110 + 2 * layer}"] = draw(WIDTH, 1, KERNEL)
        tensors[f"onnx::Conv_{111 + 2 * layer}"] = draw(WIDTH)
        shapes = (
            (WIDTH, INNER),
            (INNER, WIDTH),
            (WIDTH, 3 * WIDTH),
            (WIDTH, WIDTH),
            (WIDTH, INNER),
            (INNER, WIDTH),
        )
        for number, shape in enumerate(shapes):
            tensors[f"onnx::MatMul_{200 + 10 * layer + number}"] = draw(*shape)
    tensors[f"{PREFIX}.proj.weight"] = 3 * draw(symbols + 2, WIDTH, 1)
    tensors[f"{PREFIX}.proj.bias"] = draw(symbols + 2)
    return {
        name: each if name in FRONT else each.astype(np.float16).astype(np.float32)
        for name, each in tensors.items()
    }


def pack(tensors: Mapping[str, Array]) -> bytes:
    """The file of these tensors: the front end's in 32 bit, the others in 16."""
    head, data = b"HAMAPK\x01\x02" + struct.pack("<I", len(tensors)), b""
    for name, tensor in tensors.items():
        wide = name in FRONT
        raw = tensor.astype("<f4" if wide else "<f2").tobytes()
        head += struct.pack("<H", len(name.encode())) + name.encode() + bytes([0 if wide else 1, tensor.ndim])
        head += struct.pack(f"<{tensor.ndim}I", *tensor.shape) + struct.pack("<QQ", len(data), len(raw))
        data += raw
    return head + b"\0" * (-len(head) % 16) + data


def write_model(folder: Path, tensors: Mapping[str, Array] | None = None) -> Path:
    """A folder as the catalogue installs it, without a dictionary."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "asr_waveform.hama").write_bytes(pack(tensors or random_tensors()))
    (folder / "g2p_vocab.json").write_text(json.dumps({"encoder": [], "decoder": SYMBOLS}))
    return folder


def features(tensors: Tensors, wave: Array) -> Array:
    """Samples [N] -> [N // 160 + 1, 80]."""
    padded = np.pad(wave, FFT // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, FFT)[::HOP][: len(wave) // HOP + 1]
    real, imaginary = (frames @ tensors[f"stft_{part}_kernel"][:, 0].T for part in ("real", "imag"))
    mel = np.log(np.maximum((real**2 + imaginary**2) @ tensors["mel_fb"], 1e-10))
    return mel.astype(np.float16).astype(np.float32)


def log_probs(tensors: Tensors, wave: Array) -> Array:
    """Samples [N] float32 at 16 kHz -> [T, symbols + 2], the word boundary and blank last."""
    filters, matrices = (_exported(tensors, kind) for kind in ("Conv", "MatMul"))
    mel = np.pad(features(tensors, wave), ((1, 1), (0, 0)))
    count = (len(mel) - 3) // 2 + 1
    x = sum(mel[k : k + 2 * count : 2][:count] @ filters[0][:, :, k].T for k in range(3)) + filters[1]
    x = 0.5 * x * (1 + np.vectorize(math.erf)(x / 1.4140625))
    for layer in range(sum(name.endswith(".attn_norm.weight") for name in tensors)):
        own = {k.split(f"blocks.{layer}.")[1]: v for k, v in tensors.items() if f"blocks.{layer}." in k}
        m = matrices[6 * layer : 6 * layer + 6]
        x = x + 0.5 * _feed_forward(own, "ffn1", x, m[0], m[1])
        x = x + _attention(own, x, m[2], m[3])
        x = x + _convolution(own, x, filters[2 + 2 * layer], filters[3 + 2 * layer])
        x = x + 0.5 * _feed_forward(own, "ffn2", x, m[4], m[5])
        x = _norm(own, "norm", x)
    logits = x @ tensors[f"{PREFIX}.proj.weight"][:, :, 0].T + tensors[f"{PREFIX}.proj.bias"]
    logits = logits - logits.max(-1, keepdims=True)
    return np.asarray(logits - np.log(np.exp(logits).sum(-1, keepdims=True)), np.float32)


def _exported(tensors: Tensors, kind: str) -> list[Array]:
    names = [name for name in tensors if name.startswith(f"onnx::{kind}_")]
    return [tensors[name] for name in sorted(names, key=lambda name: int(name.rpartition("_")[2]))]


def _norm(own: Tensors, name: str, x: Array) -> Array:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * own[f"{name}.weight"] + own[f"{name}.bias"]


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _feed_forward(own: Tensors, part: str, x: Array, wide: Array, narrow: Array) -> Array:
    y = _norm(own, f"{part}.norm", x) @ wide + own[f"{part}.fc1.bias"]
    return (y * _sigmoid(y)) @ narrow + own[f"{part}.fc2.bias"]


def _attention(own: Tensors, x: Array, fused: Array, out: Array) -> Array:
    y = _norm(own, "attn_norm", x) @ fused + own["attn.in_proj_bias"]
    q, k, v = (part.reshape(len(x), HEADS, -1).transpose(1, 0, 2) for part in np.split(y, 3, -1))
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    heard = (weights / weights.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(len(x), -1)
    return heard @ out + own["attn.out_proj.bias"]


def _convolution(own: Tensors, x: Array, weight: Array, bias: Array) -> Array:
    y = _norm(own, "conv.norm", x) @ own["conv.pointwise1.weight"][:, :, 0].T + own["conv.pointwise1.bias"]
    width, half = y.shape[1] // 2, weight.shape[2] // 2
    gated = np.pad(y[:, :width] * _sigmoid(y[:, width:]), ((half, half), (0, 0)))
    z = sum(gated[k : k + len(x)] * weight[:, 0, k] for k in range(weight.shape[2])) + bias
    return (z * _sigmoid(z)) @ own["conv.pointwise2.weight"][:, :, 0].T + own["conv.pointwise2.bias"]


if __name__ == "__main__":
    write_model(Path(sys.argv[1]))
