"""How Hugging Face, CTranslate2 and mlx-community call Whisper's tensors, as OpenAI's names."""

import re
from collections.abc import Mapping

import mlx.core as mx

from spool.errors import WeightsMismatch
from worker.models.artifacts.tensors import Renames, rename
from worker.models.attention.blocks import AttentionNames, BlockNames, MlpNames
from worker.models.weights import Shape, norm_shapes
from worker.models.whisper.config import WhisperDims, check_dims

POSITIONS = "encoder.positional_embedding"
_WAYS = ("query", "key", "value", "out")
BLOCK = BlockNames(
    AttentionNames("attn_ln", *(f"attn.{way}" for way in _WAYS), key_bias=False),
    AttentionNames("cross_attn_ln", *(f"cross_attn.{way}" for way in _WAYS), key_bias=False),
    MlpNames("mlp_ln", "mlp.0", "mlp.2"),
)
"""OpenAI's names of a block's tensors. Keys have no bias."""
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
    renames: Renames = ()
    if any(".layers." in name for name in tensors):
        renames = HUGGING_FACE
    elif any(re.search(r"\.mlp[12]\.", name) for name in tensors):
        renames = MLX
        # Channels last here, second in OpenAI's.
        tensors = {
            name: mx.swapaxes(value, 1, 2) if re.search(r"\.conv[12]\.weight$", name) else value
            for name, value in tensors.items()
        }
    return {rename(name, renames): value for name, value in tensors.items()}


def shapes_of(dims: WhisperDims) -> dict[str, Shape]:
    """The tensors of a model under OpenAI's names."""
    width = dims.n_audio_state
    shapes: dict[str, Shape] = {
        POSITIONS: (dims.n_audio_ctx, width),
        "encoder.conv1.weight": (width, dims.n_mels, 3),
        "encoder.conv1.bias": (width,),
        "encoder.conv2.weight": (width, width, 3),
        "encoder.conv2.bias": (width,),
        **norm_shapes("encoder.ln_post", width),
        **norm_shapes("decoder.ln", width),
        "decoder.positional_embedding": (dims.n_text_ctx, width),
        "decoder.token_embedding.weight": (dims.n_vocab, width),
    }
    for layer in range(dims.n_audio_layer):
        block = f"encoder.blocks.{layer}"
        shapes |= BLOCK.own.shapes(block, width) | BLOCK.mlp.shapes(block, width, 4 * width)
    for layer in range(dims.n_text_layer):
        shapes |= BLOCK.shapes(f"decoder.blocks.{layer}", width, 4 * width)
    return shapes


def dims_of(tensors: Mapping[str, mx.array], heads: Mapping[str, int], source: str) -> WhisperDims:
    """The dimensions, from tensors under OpenAI's names. heads: of each side."""

    def shape(name: str, rank: int) -> Shape:
        value = tensors.get(name)
        if value is None or value.ndim != rank:
            raise WeightsMismatch(f"{source}: {name} is missing or has another rank than {rank}")
        return tuple(value.shape)

    def layers(side: str) -> int:
        numbers = (re.match(rf"{side}\.blocks\.(\d+)\.", name) for name in tensors)
        return 1 + max((int(number[1]) for number in numbers if number), default=-1)

    tokens, width = shape("decoder.token_embedding.weight", 2)
    frames, audio_width = shape(POSITIONS, 2)
    dims = WhisperDims(
        n_mels=shape("encoder.conv1.weight", 3)[1],
        n_audio_ctx=frames,
        n_audio_state=audio_width,
        n_audio_head=heads["encoder"],
        n_audio_layer=layers("encoder"),
        n_vocab=tokens,
        n_text_ctx=shape("decoder.positional_embedding", 2)[0],
        n_text_state=width,
        n_text_head=heads["decoder"],
        n_text_layer=layers("decoder"),
    )
    return check_dims(dims, source)
