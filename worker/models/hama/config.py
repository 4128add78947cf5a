"""What a hama file says of its network, and what its tensors are called. No MLX.

Sizes follow from the tensors' shapes. What the ONNX exporter named (`onnx::Conv_801`) is told apart by its
number alone: the stem, then the depthwise convolution of each block; six matrices of each block.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from spool.errors import ModelUnreadable, WeightsMismatch
from worker.models.configuration import read_json, require_size
from worker.models.conformer.config import EncoderConfig

WEIGHTS, SYMBOLS = "asr_waveform.hama", "g2p_vocab.json"
"""The files of a model's folder."""
BANDS, BINS, WINDOW = 80, 201, 400
HEADS = 4
"""No tensor's shape tells it."""
WORD_BOUNDARY = "<wb>"
BLOCKS = "acoustic_model.model.blocks"
OUTPUT = "acoustic_model.model.proj"
FRONT = {
    "stft_real_kernel": (BINS, 1, WINDOW),
    "stft_imag_kernel": (BINS, 1, WINDOW),
    "mel_fb": (BINS, BANDS),
}
MATRICES = ("ffn1.fc1", "ffn1.fc2", "attn.qkv", "attn.out", "ffn2.fc1", "ffn2.fc2")
"""Of a block, in the exporter's order; stored as inputs times outputs."""

Shape = tuple[int, ...]


def read_symbols(path: Path) -> tuple[str, ...]:
    """The labels of the CTC head, of the package's `g2p_vocab.json`. Raises ModelUnreadable."""
    symbols = read_json(path).get("decoder")
    if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
        raise ModelUnreadable(f"{path}: has no list of symbols called `decoder`")
    return (*symbols, WORD_BOUNDARY)


def encoder_of(shapes: Mapping[str, Shape], source: str) -> EncoderConfig:
    """The encoder of these tensors. Raises WeightsMismatch, ModelUnreadable."""
    numbers = {int(name.split(".")[3]) for name in shapes if re.match(rf"{re.escape(BLOCKS)}\.\d+\.", name)}
    filters = [shapes[name] for name in find_exported(shapes, "Conv") if len(shapes[name]) == 3]
    output = shapes.get(f"{OUTPUT}.weight", ())
    wide = shapes.get(f"{BLOCKS}.0.ffn1.fc1.bias", ())
    if len(output) != 3 or len(wide) != 1 or len(filters) < 2 or numbers != set(range(len(numbers))):
        raise WeightsMismatch(f"{source}: not the tensors of hama's recogniser")
    width, kernel = output[1], filters[1][2]
    require_size("d_model", width)
    if width % HEADS or kernel % 2 == 0:
        raise ModelUnreadable(f"{source}: a width of {width} and a kernel of {kernel} are not computed")
    return EncoderConfig(
        feat_in=BANDS,
        n_layers=len(numbers),
        d_model=width,
        n_heads=HEADS,
        subsampling="conv1d",
        subsampling_factor=2,
        self_attention_model="no_pos",
        xscaling=False,
        conv_kernel_size=kernel,
        conv_norm_type="folded",
        inner=wide[0],
    )


def find_exported(shapes: Mapping[str, Shape], kind: str) -> list[str]:
    """The tensors that the exporter named, in order."""
    found = [name for name in shapes if re.fullmatch(rf"onnx::{kind}_\d+", name)]
    return sorted(found, key=lambda name: int(name.rpartition("_")[2]))


def friendly_names(shapes: Mapping[str, Shape], layers: int) -> dict[str, str]:
    """Every tensor's own name by one that says what it is."""
    convolutions = [f"{part}.{kind}" for part in _list_convolutions(layers) for kind in ("weight", "bias")]
    matrices = [f"{BLOCKS}.{layer}.{part}.weight" for layer in range(layers) for part in MATRICES]
    names = {name: name for name in shapes if not name.startswith("onnx::")}
    names |= dict(zip(convolutions, find_exported(shapes, "Conv"), strict=False))
    return names | dict(zip(matrices, find_exported(shapes, "MatMul"), strict=False))


def _list_convolutions(layers: int) -> list[str]:
    return ["stem", *(f"{BLOCKS}.{layer}.conv.depthwise" for layer in range(layers))]


def expected_shapes(config: EncoderConfig, labels: int) -> dict[str, Shape]:
    """The tensors of such a file, by their friendly names; labels: those of the head, with blank."""
    width, inner = config.d_model, config.feed_forward_size
    shapes: dict[str, Shape] = {**FRONT, "stem.weight": (width, BANDS, 3), "stem.bias": (width,)}
    for layer in range(config.n_layers):
        block = f"{BLOCKS}.{layer}"
        for part in ("ffn1", "ffn2"):
            shapes[f"{block}.{part}.fc1.weight"] = (width, inner)
            shapes[f"{block}.{part}.fc1.bias"] = (inner,)
            shapes[f"{block}.{part}.fc2.weight"] = (inner, width)
            shapes[f"{block}.{part}.fc2.bias"] = (width,)
        for norm in ("ffn1.norm", "attn_norm", "conv.norm", "ffn2.norm", "norm"):
            shapes |= {f"{block}.{norm}.{kind}": (width,) for kind in ("weight", "bias")}
        shapes[f"{block}.attn.qkv.weight"] = (width, 3 * width)
        shapes[f"{block}.attn.in_proj_bias"] = (3 * width,)
        shapes[f"{block}.attn.out.weight"] = (width, width)
        shapes[f"{block}.attn.out_proj.bias"] = (width,)
        shapes[f"{block}.conv.pointwise1.weight"] = (2 * width, width, 1)
        shapes[f"{block}.conv.pointwise1.bias"] = (2 * width,)
        shapes[f"{block}.conv.depthwise.weight"] = (width, 1, config.conv_kernel_size)
        shapes[f"{block}.conv.depthwise.bias"] = (width,)
        shapes[f"{block}.conv.pointwise2.weight"] = (width, width, 1)
        shapes[f"{block}.conv.pointwise2.bias"] = (width,)
    return {**shapes, f"{OUTPUT}.weight": (labels, width, 1), f"{OUTPUT}.bias": (labels,)}
