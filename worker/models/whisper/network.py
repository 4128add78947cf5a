"""Whisper's network: how checkpoints call its tensors, the encoder, and the shared decoder with its weights.

Names here are OpenAI's. Hugging Face has its own, and so has CTranslate2 once its projections are taken apart
(`worker.models.artifacts.ctranslate2`); mlx-community has OpenAI's but for `mlp1` and `mlp2`.
"""

import re
from collections.abc import Sequence

import mlx.core as mx

from kernels.nn.activations import gelu
from worker.models.attention.blocks import AttentionNames, BlockNames, MlpNames, Tensors
from worker.models.attention.decoder import AttentionDecoder, DecoderWeights, tokens_last
from worker.models.attention.layers import Product, arrays_of, attend_full, by_rows, pack, sine_positions
from worker.models.turns import give_way
from worker.models.weights import NameMap, Shape, Weights, norm_shapes, read_named
from worker.models.whisper.config import SpecialTokens, WhisperDims

POSITIONS = "encoder.positional_embedding"
CONVOLUTIONS = ("encoder.conv1", "encoder.conv2")
_WAYS = ("query", "key", "value", "out")
BLOCK = BlockNames(
    AttentionNames("attn_ln", *(f"attn.{way}" for way in _WAYS), key_bias=False),
    AttentionNames("cross_attn_ln", *(f"cross_attn.{way}" for way in _WAYS), key_bias=False),
    MlpNames("mlp_ln", "mlp.0", "mlp.2"),
)
# The output projection is the token table.
DERIVED = re.compile(r"^proj_out\.weight$|^alignment_heads$")
HUGGING_FACE = (
    (r"\.positional_embedding$", ".embed_positions.weight"),
    (r"\.token_embedding\.", ".embed_tokens."),
    (r"\.(ln_post|ln)\.", ".layer_norm."),
    (r"\.blocks\.", ".layers."),
    (r"\.cross_attn_ln\.", ".encoder_attn_layer_norm."),
    (r"\.attn_ln\.", ".self_attn_layer_norm."),
    (r"\.mlp_ln\.", ".final_layer_norm."),
    (r"\.cross_attn\.", ".encoder_attn."),
    (r"\.attn\.", ".self_attn."),
    (r"\.(q)uery\.|\.(k)ey\.|\.(v)alue\.", r".\1\2\3_proj."),
    (r"\.out\.", ".out_proj."),
    (r"\.mlp\.0\.", ".fc1."),
    (r"\.mlp\.2\.", ".fc2."),
    (r"^", "model."),
)
MLX = ((r"\.mlp\.0\.", ".mlp1."), (r"\.mlp\.2\.", ".mlp2."))
NAMES = NameMap(
    DERIVED,
    also=(NameMap(DERIVED, HUGGING_FACE, otherwise=((r"^model\.", ""),)), NameMap(DERIVED, MLX)),
)


def shapes_of(dims: WhisperDims) -> dict[str, Shape]:
    """The tensors of a model."""
    width = dims.n_audio_state
    shapes: dict[str, Shape] = {
        POSITIONS: (dims.n_audio_ctx, width),
        **norm_shapes("encoder.ln_post", width),
        **norm_shapes("decoder.ln", width),
        "decoder.positional_embedding": (dims.n_text_ctx, width),
        "decoder.token_embedding.weight": (dims.n_vocab, width),
    }
    for name, inputs in zip(CONVOLUTIONS, (dims.n_mels, width), strict=True):
        shapes |= {f"{name}.weight": (width, inputs, 3), f"{name}.bias": (width,)}
    for layer in range(dims.n_audio_layer):
        block = f"encoder.blocks.{layer}"
        shapes |= BLOCK.own.shapes(block, width) | BLOCK.mlp.shapes(block, width, 4 * width)
    for layer in range(dims.n_text_layer):
        shapes |= BLOCK.shapes(f"decoder.blocks.{layer}", width, 4 * width)
    return shapes


def read_weights(weights: Weights, dims: WhisperDims, source: str) -> dict[str, mx.array]:
    """The tensors of a model, as stored, convolutions [out, in, 3]. mlx-community has these channels last,
    and leaves out the encoder's positions. Raises WeightsMismatch that names what does not fit."""
    shapes = shapes_of(dims)
    is_mlx = any(".mlp1." in name for name in weights.shapes)
    turned = [f"{name}.weight" for name in CONVOLUTIONS if is_mlx]
    for name in turned:
        outputs, inputs, frames = shapes[name]
        shapes[name] = (outputs, frames, inputs)
    if NAMES.find(POSITIONS, weights.shapes) is None:
        del shapes[POSITIONS]
    tensors = read_named(weights, shapes, source, NAMES)
    tensors |= {name: mx.swapaxes(tensors[name], 1, 2) for name in turned}
    # What is stored is rounded as the weights are.
    return {POSITIONS: sine_positions(dims.n_audio_ctx, dims.n_audio_state)} | tensors


class WhisperEncoder:
    """Two convolutions as matrix products, sinusoids, pre-norm blocks, a norm (Radford et al. 2022, 2.2).

    The windows of a batch are of one length, so there is no mask and no padding, and a window never sees its
    neighbours.
    """

    def __init__(self, dims: WhisperDims, tensors: dict[str, mx.array], dtype: mx.Dtype) -> None:
        """tensors: those of `read_weights`; the encoder's are taken out of it."""
        self.heads, self.dtype = dims.n_audio_head, dtype
        source = Tensors(tensors, dtype)
        self.convolutions = [
            (pack(Product(_rows(source.array(f"{name}.weight")))), source.array(f"{name}.bias"))
            for name in CONVOLUTIONS
        ]
        self.positions = source.array(POSITIONS)
        self.layers = [
            source.encoder_block(f"encoder.blocks.{layer}", BLOCK.own, BLOCK.mlp, self.heads)
            for layer in range(dims.n_audio_layer)
        ]
        self.norm = source.norm("encoder.ln_post")

    @property
    def parameters(self) -> list[mx.array]:
        """Every array, to evaluate or to count."""
        return arrays_of(self.convolutions, self.positions, self.norm, self.layers)

    def __call__(self, mel: mx.array) -> mx.array:
        """[B, 2 T, mels] float32, T at most 1500 -> [B, T, d] in the model's dtype, 50 a second."""
        x = mel.astype(self.dtype)
        for (product, bias), stride in zip(self.convolutions, (1, 2), strict=True):
            x = gelu(product(_windows(x, stride)), bias)
        x = x + self.positions[: x.shape[1]]
        for attention, mlp in self.layers:
            x = x + attention.out(attend_full(attention.fused(attention.norm(x)), self.heads))
            x = x + by_rows(mlp, x)
            give_way(x)
        return self.norm(x)


def _rows(weight: mx.array) -> mx.array:
    """[out, in, 3] as [out, 3 * in]: three frames lie side by side in a row."""
    return mx.contiguous(weight.swapaxes(1, 2).reshape(weight.shape[0], -1))


def _windows(x: mx.array, stride: int) -> mx.array:
    """[B, T, d] -> [B, T / stride, 3 d]: each frame between its neighbours, zeros beyond the ends."""
    batch, length, width = x.shape
    padded = mx.contiguous(mx.pad(x, [(0, 0), (1, 1), (0, 0)]))
    return mx.as_strided(
        padded, (batch, length // stride, 3 * width), ((length + 2) * width, stride * width, 1)
    )


def decoder_of(
    dims: WhisperDims,
    tensors: dict[str, mx.array],
    dtype: mx.Dtype,
    alignment_heads: Sequence[tuple[int, int]],
) -> AttentionDecoder:
    """tensors: those of `read_weights`; the decoder's are taken out of it."""
    source, heads = Tensors(tensors, dtype), dims.n_text_head
    weights = DecoderWeights(
        table=tokens_last(source.array("decoder.token_embedding.weight")),
        positions=source.array("decoder.positional_embedding"),
        blocks=tuple(
            source.block(f"decoder.blocks.{layer}", BLOCK, heads) for layer in range(dims.n_text_layer)
        ),
        norm=source.norm("decoder.ln"),
        heads=heads,
    )
    return AttentionDecoder(weights, dtype, SpecialTokens(dims.n_vocab).eot, alignment_heads)
