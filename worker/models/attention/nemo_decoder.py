"""NeMo's attention decoder as the shared one: its tensors by name and shape, fused where one product does for
several. Canary has it, and Cohere Transcribe; transformers stores both under names of its own.

NeMo divides queries and keys by the fourth root of a head's width each; here the query's weights are divided
by its square root.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import mlx.core as mx
import numpy as np

from spool.errors import ModelUnreadable
from worker.models.attention.blocks import AttentionNames, BlockNames, MlpNames, Tensors
from worker.models.attention.decoder import AttentionDecoder, DecoderWeights, tokens_last
from worker.models.attention.layers import arrays_of
from worker.models.configuration import require, require_size
from worker.models.weights import Shape, linear_shapes, norm_shapes

TOP = "transf_decoder._embedding"
LAYERS = "transf_decoder._decoder.layers"
FINAL = "transf_decoder._decoder.final_layer_norm"
HEAD = "log_softmax.mlp.layer0"
ROWS, TABLE = f"{TOP}.token_embedding.weight", f"{HEAD}.weight"
POSITIONS = f"{TOP}.position_embedding.pos_enc"
PROJECTION = "encoder_decoder_proj"
WAYS = ("query_net", "key_net", "value_net", "out_projection")
# From NeMo's names to those of transformers (5.24), without what stands in front of them.
DECODER_RENAMES = (
    (r"^transf_decoder\._embedding\.token_embedding\.", "decoder.embed_tokens."),
    (r"^transf_decoder\._embedding\.layer_norm\.", "decoder.embedding_layernorm."),
    (r"^transf_decoder\._embedding\.position_embedding\.pos_enc$", "decoder.pos_emb.weight"),
    (r"^transf_decoder\._decoder\.layers\.", "decoder.layers."),
    (r"^transf_decoder\._decoder\.final_layer_norm\.", "decoder.norm."),
    (r"^(decoder\..*)\.first_sub_layer\.(q|k|v)[a-z]+_net\.", r"\1.self_attn.\2_proj."),
    (r"^(decoder\..*)\.second_sub_layer\.(q|k|v)[a-z]+_net\.", r"\1.encoder_attn.\2_proj."),
    (r"^(decoder\..*)\.first_sub_layer\.out_projection\.", r"\1.self_attn.o_proj."),
    (r"^(decoder\..*)\.second_sub_layer\.out_projection\.", r"\1.encoder_attn.o_proj."),
    (r"^(decoder\..*)\.third_sub_layer\.dense_in\.", r"\1.mlp.fc1."),
    (r"^(decoder\..*)\.third_sub_layer\.dense_out\.", r"\1.mlp.fc2."),
    (r"^(decoder\..*)\.layer_norm_1\.", r"\1.input_layernorm."),
    (r"^(decoder\..*)\.layer_norm_2\.", r"\1.post_attention_layernorm."),
    (r"^(decoder\..*)\.layer_norm_3\.", r"\1.final_layernorm."),
    (r"^encoder_decoder_proj\.", "decoder.proj."),
    (r"^log_softmax\.mlp\.layer0\.", "proj_out."),
)
HUB_DEFAULTS: Mapping[str, Any] = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "max_position_embeddings": 1024,
    "vocab_size": 16384,
}


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """NeMo's transformer decoder: pre-norm, fixed positions. Fields have NeMo's names."""

    hidden_size: int
    inner_size: int
    num_layers: int
    num_attention_heads: int
    max_sequence_length: int


@dataclass(frozen=True, slots=True)
class DecoderParts:
    """What a file holds of a decoder. rows: tokens, those that round the vocabulary up among them.
    head_width: of an attention. projected: width of the encoder frames that are projected, 0 where they are
    not. tied: the head's weights are the embedding's. stored_positions: the table is in the file."""

    config: DecoderConfig
    rows: int
    head_width: int
    projected: int = 0
    bias: bool = True
    tied: bool = False
    stored_positions: bool = True
    activation: Literal["relu", "gelu"] = "relu"

    @property
    def block(self) -> BlockNames:
        """The names of a layer's tensors."""
        own, source = (
            AttentionNames(norm, *(f"{part}.{way}" for way in WAYS), bias=self.bias)
            for norm, part in (("layer_norm_1", "first_sub_layer"), ("layer_norm_2", "second_sub_layer"))
        )
        feed_forward = ("third_sub_layer.dense_in", "third_sub_layer.dense_out")
        return BlockNames(own, source, MlpNames("layer_norm_3", *feed_forward, self.activation))

    @property
    def shapes(self) -> dict[str, Shape]:
        """The tensors by NeMo's names."""
        config, rows, width = self.config, self.rows, self.config.hidden_size
        shapes: dict[str, Shape] = {
            ROWS: (rows, width),
            **norm_shapes(f"{TOP}.layer_norm", width),
            **norm_shapes(FINAL, width),
            **linear_shapes(HEAD, rows, width),
        }
        if self.stored_positions:
            shapes[POSITIONS] = (config.max_sequence_length, width)
        if self.tied:
            del shapes[TABLE]
        inside = self.head_width * config.num_attention_heads
        for layer in range(config.num_layers):
            shapes |= self.block.shapes(f"{LAYERS}.{layer}", width, config.inner_size, inside)
        return shapes | (linear_shapes(PROJECTION, width, self.projected) if self.projected else {})


def decoder_of_hub(
    tree: Mapping[str, Any],
    name: str,
    *,
    tied: bool,
    head_dim: int | None = None,
    projected: int = 0,
    stored_positions: bool = True,
) -> DecoderParts:
    """A decoder from a section of a config.json, `name` the section and a dot or nothing. A missing key has
    transformers' default. head_dim: the default, None for a head's share of the width. Raises
    ModelUnreadable for what is not computed."""
    given = {key: tree.get(key, default) for key, default in HUB_DEFAULTS.items()}
    sizes = {key: require_size(f"{name}{key}", value) for key, value in given.items()}
    heads, width = sizes["num_attention_heads"], sizes["hidden_size"]
    groups = tree.get("num_key_value_heads")
    require(f"{name}num_key_value_heads", heads if groups is None else groups, heads)
    require(f"{name}hidden_act", tree.get("hidden_act", "relu"), "relu", "gelu")
    require(f"{name}attention_bias", tree.get("attention_bias", True), True, False)
    if width % heads:
        raise ModelUnreadable(f"{name}hidden_size {width} is no multiple of num_attention_heads {heads}")
    head_width = tree.get("head_dim", head_dim)
    config = DecoderConfig(
        width,
        sizes["intermediate_size"],
        sizes["num_hidden_layers"],
        heads,
        sizes["max_position_embeddings"],
    )
    return DecoderParts(
        config,
        sizes["vocab_size"],
        width // heads if head_width is None else require_size(f"{name}head_dim", head_width),
        projected=projected,
        bias=bool(tree.get("attention_bias", True)),
        tied=tied,
        stored_positions=stored_positions,
        activation=tree.get("hidden_act", "relu"),
    )


def halve_positions(config: DecoderConfig) -> mx.array:
    """Positions as transformers computes them for Canary (modular_canary.py, CanaryPositionalEmbedding): all
    sines, then all cosines, over the root of the width, float32 [most tokens, d]."""
    width, count = config.hidden_size, config.hidden_size // 2
    # In 32 bit where it is so there.
    step = np.log(10_000.0 ** ((width - 2) / width)) / max(count - 1, 1)
    rates = np.exp(np.float32(-step) * np.arange(count, dtype=np.float32))
    angles = np.arange(config.max_sequence_length, dtype=np.float32)[:, None] * rates
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1) / np.float32(np.sqrt(width))
    return mx.array(table.astype(np.float32))


class NemoDecoder(AttentionDecoder):
    """An `AttentionHead`, and the projection of encoder frames in front of it."""

    def __init__(self, parts: DecoderParts, tensors: dict[str, mx.array], dtype: mx.Dtype, eos: int) -> None:
        """tensors: those of `parts.shapes`, and the positions where these are not stored; all are taken out
        of it."""
        source, heads = Tensors(tensors, dtype), parts.config.num_attention_heads
        rows = tensors.pop(ROWS)
        table = tensors.pop(TABLE, rows)
        tied = table is rows or bool(mx.array_equal(rows, table))
        weights = DecoderWeights(
            # In 32 bit: logits in 16 tie, and a beam ranks by their differences.
            table=tokens_last(table.astype(mx.float32), tensors.pop(f"{HEAD}.bias").astype(mx.float32)),
            positions=tensors.pop(POSITIONS),
            blocks=tuple(
                source.block(f"{LAYERS}.{layer}", parts.block, heads)
                for layer in range(parts.config.num_layers)
            ),
            norm=source.norm(FINAL),
            heads=heads,
            embedding=None if tied else rows,
            embedding_norm=source.norm(f"{TOP}.layer_norm"),
            head_width=parts.head_width,
        )
        super().__init__(weights, dtype, eos)
        self.projection = source.linear(PROJECTION) if parts.projected else None

    @property
    def parameters(self) -> list[mx.array]:
        """Every array, to evaluate or to count."""
        return [*super().parameters, *arrays_of(self.projection)]

    def project(self, frames: mx.array) -> mx.array:
        """Encoder frames [B, T, d_model] as the decoder attends to them, [B, T, d]."""
        return frames if self.projection is None else self.projection(frames)
