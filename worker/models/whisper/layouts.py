"""How CTranslate2, Hugging Face and mlx-community call Whisper's tensors, as OpenAI's names.

Keys have no bias in Whisper, so their third of CTranslate2's fused bias must be zero.
"""

import re
from collections.abc import Mapping

import mlx.core as mx
import numpy as np

from spool.errors import WeightsMismatch
from worker.models.artifacts.ctranslate2 import Array
from worker.models.attention.blocks import AttentionNames, BlockNames, MlpNames
from worker.models.whisper.config import WhisperDims, check_dims

BLOCK = BlockNames(
    AttentionNames("attn_ln", "attn.query", "attn.key", "attn.value", "attn.out", key_bias=False),
    AttentionNames(
        "cross_attn_ln",
        "cross_attn.query",
        "cross_attn.key",
        "cross_attn.value",
        "cross_attn.out",
        key_bias=False,
    ),
    MlpNames("mlp_ln", "mlp.0", "mlp.2"),
)
"""OpenAI's names of a block's tensors. Keys have no bias."""
TIED = "decoder/projection/weight"  # the token table, under another name

TOP_NAMES = {
    ("encoder", "conv1"): "encoder.conv1",
    ("encoder", "conv2"): "encoder.conv2",
    ("encoder", "layer_norm"): "encoder.ln_post",
    ("decoder", "layer_norm"): "decoder.ln",
    ("decoder", "embeddings"): "decoder.token_embedding",
}
BLOCKS = {"self_attention": "attn", "attention": "cross_attn", "ffn": "mlp"}
FUSED = {
    ("attn", 0): ("query", "key", "value"),
    ("attn", 1): ("out",),
    ("cross_attn", 0): ("query",),
    ("cross_attn", 1): ("key", "value"),
    ("cross_attn", 2): ("out",),
    ("mlp", 0): ("0",),
    ("mlp", 1): ("2",),
}
KINDS = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias", "encodings": "weight"}
LAYER = re.compile(r"layer_(\d+)")

HUGGING_FACE = (
    (r"^model\.", ""),
    (r"\.embed_positions\.weight$", ".positional_embedding"),
    (r"\.embed_tokens\.", ".token_embedding."),
    (r"^encoder\.layer_norm\.", "encoder.ln_post."),
    (r"^decoder\.layer_norm\.", "decoder.ln."),
    (r"\.layers\.", ".blocks."),
    (r"\.self_attn_layer_norm\.", ".attn_ln."),
    (r"\.encoder_attn_layer_norm\.", ".cross_attn_ln."),
    (r"\.final_layer_norm\.", ".mlp_ln."),
    (r"\.self_attn\.", ".attn."),
    (r"\.encoder_attn\.", ".cross_attn."),
    (r"\.q_proj\.", ".query."),
    (r"\.k_proj\.", ".key."),
    (r"\.v_proj\.", ".value."),
    (r"\.out_proj\.", ".out."),
    (r"\.fc1\.", ".mlp.0."),
    (r"\.fc2\.", ".mlp.2."),
)
MLX = ((r"\.mlp1\.", ".mlp.0."), (r"\.mlp2\.", ".mlp.2."))


def openai_names(tensors: Mapping[str, mx.array]) -> dict[str, mx.array]:
    """Hugging Face's or mlx-community's names and layouts as OpenAI's. Names that are none of Whisper's come
    back as they are or nearly so, and are refused as surplus."""
    renames: tuple[tuple[str, str], ...] = ()
    if any(".layers." in name for name in tensors):
        renames = HUGGING_FACE
    elif any(re.search(r"\.mlp[12]\.", name) for name in tensors):
        renames = MLX
        # Channels last here, second in OpenAI's.
        tensors = {
            name: mx.swapaxes(value, 1, 2) if re.search(r"\.conv[12]\.weight$", name) else value
            for name, value in tensors.items()
        }
    named = {}
    for name, value in tensors.items():
        for pattern, replacement in renames:
            name = re.sub(pattern, replacement, name)
        named[name] = value
    return named


def dims_of(variables: dict[str, Array], source: str) -> WhisperDims:
    """The dimensions, from shapes and settings."""

    def shape(name: str, rank: int) -> tuple[int, ...]:
        value = variables.get(name)
        if value is None or value.ndim != rank:
            raise WeightsMismatch(f"{source}: {name} is missing or has another rank than {rank}")
        return value.shape

    def layers(side: str) -> int:
        parts = (name.split("/") for name in variables)
        numbers = [
            int(match[1]) for p in parts if p[0] == side and len(p) > 1 and (match := LAYER.fullmatch(p[1]))
        ]
        return 1 + max(numbers, default=-1)

    tokens, width = shape("decoder/embeddings/weight", 2)
    audio = shape("encoder/position_encodings/encodings", 2)
    text = shape("decoder/position_encodings/encodings", 2)
    heads = {}
    for side in ("encoder", "decoder"):
        shape(f"{side}/num_heads", 0)
        heads[side] = int(np.asarray(variables[f"{side}/num_heads"]).astype(np.int64))
    return check_dims(
        WhisperDims(
            n_mels=shape("encoder/conv1/weight", 3)[1],
            n_audio_ctx=audio[0],
            n_audio_state=audio[1],
            n_audio_head=heads["encoder"],
            n_audio_layer=layers("encoder"),
            n_vocab=tokens,
            n_text_ctx=text[0],
            n_text_state=width,
            n_text_head=heads["decoder"],
            n_text_layer=layers("decoder"),
        ),
        source,
    )


def binary_names(variables: dict[str, Array], source: str) -> dict[str, Array]:
    """Fused projections taken apart, under OpenAI's names. Raises WeightsMismatch for what has no such
    name."""
    out: dict[str, Array] = {}
    for name, value in variables.items():
        if value.ndim == 0 or name == TIED:
            continue
        try:
            out.update(_rename_tensor(name, value, source))
        except (KeyError, IndexError, ValueError) as cause:
            raise WeightsMismatch(
                f"{source}: {name} {list(value.shape)} is no tensor of a Whisper"
            ) from cause
    return out


def _rename_tensor(name: str, value: Array, source: str) -> dict[str, Array]:
    side, *path, last = name.split("/")
    kind = KINDS[last]
    if last == "encodings":
        return {f"{side}.positional_embedding": value}
    layer = LAYER.fullmatch(path[0])
    if layer is None:
        return {f"{TOP_NAMES[side, path[0]]}.{kind}": value}
    prefix, block = f"{side}.blocks.{layer[1]}", BLOCKS[path[1]]
    if path[2] == "layer_norm":
        return {f"{prefix}.{block}_ln.{kind}": value}
    pieces = FUSED[block, int(path[2].removeprefix("linear_"))]
    out = {}
    for piece, part in zip(pieces, np.split(value, len(pieces)), strict=True):
        if piece == "key" and kind == "bias":
            if np.any(part):
                raise WeightsMismatch(f"{source}: {name} has a bias on keys, which Whisper has not")
            continue
        out[f"{prefix}.{block}.{piece}.{kind}"] = part
    return out
