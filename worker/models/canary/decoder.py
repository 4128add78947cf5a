"""Canary's decoder as the shared one: NeMo's tensors by name and shape, fused where one product does for
several.

NeMo divides queries and keys by the fourth root of a head's width each; here the query's weights are divided
by its square root. The head's surplus rows, which round the vocabulary up to a multiple of 8, stay in.
"""

from collections.abc import Mapping

import mlx.core as mx

from worker.models.attention.blocks import AttentionNames, BlockNames, MlpNames, Tensors
from worker.models.attention.decoder import AttentionDecoder, DecoderWeights, tokens_last
from worker.models.attention.layers import arrays_of
from worker.models.canary.config import CanaryConfig
from worker.models.weights import Shape, linear_shapes, norm_shapes

TOP = "transf_decoder._embedding"
LAYERS = "transf_decoder._decoder.layers"
FINAL = "transf_decoder._decoder.final_layer_norm"
HEAD = "log_softmax.mlp.layer0"
TABLE = f"{HEAD}.weight"
PROJECTION = "encoder_decoder_proj"
WAYS = ("query_net", "key_net", "value_net", "out_projection")
BLOCK = BlockNames(
    AttentionNames("layer_norm_1", *(f"first_sub_layer.{way}" for way in WAYS)),
    AttentionNames("layer_norm_2", *(f"second_sub_layer.{way}" for way in WAYS)),
    MlpNames("layer_norm_3", "third_sub_layer.dense_in", "third_sub_layer.dense_out", "relu"),
)
ROUNDED_TO = 8


def round_vocabulary(size: int) -> int:
    """Rows of the head: the vocabulary rounded up to a multiple of 8."""
    return -(-size // ROUNDED_TO) * ROUNDED_TO


def shapes_of(config: CanaryConfig, vocabulary: int) -> dict[str, Shape]:
    """The tensors beside the encoder's, by their names in the file."""
    decoder, rows = config.decoder, round_vocabulary(vocabulary)
    width, inner = decoder.hidden_size, decoder.inner_size
    shapes: dict[str, Shape] = {
        f"{TOP}.token_embedding.weight": (rows, width),
        f"{TOP}.position_embedding.pos_enc": (decoder.max_sequence_length, width),
        **norm_shapes(f"{TOP}.layer_norm", width),
        **norm_shapes(FINAL, width),
        **linear_shapes(HEAD, rows, width),
    }
    for layer in range(decoder.num_layers):
        shapes |= BLOCK.shapes(f"{LAYERS}.{layer}", width, inner)
    return shapes | (linear_shapes(PROJECTION, width, config.encoder.d_model) if config.is_projected else {})


class CanaryHead(AttentionDecoder):
    """An `AttentionHead`, and the projection of encoder frames in front of it."""

    def __init__(
        self, config: CanaryConfig, tensors: Mapping[str, mx.array], dtype: mx.Dtype, eos: int
    ) -> None:
        """tensors: those of `shapes_of`."""
        source, heads = Tensors(tensors, dtype), config.decoder.num_attention_heads
        rows, table = tensors[f"{TOP}.token_embedding.weight"], tensors[TABLE]
        tied = bool(mx.array_equal(rows, table))
        weights = DecoderWeights(
            # In 32 bit: logits in 16 tie, and a beam ranks by their differences.
            table=tokens_last(table.astype(mx.float32), tensors[f"{HEAD}.bias"].astype(mx.float32)),
            positions=tensors[f"{TOP}.position_embedding.pos_enc"],
            blocks=tuple(
                source.block(f"{LAYERS}.{layer}", BLOCK, heads) for layer in range(config.decoder.num_layers)
            ),
            norm=source.norm(FINAL),
            heads=heads,
            embedding=None if tied else rows,
            embedding_norm=source.norm(f"{TOP}.layer_norm"),
        )
        super().__init__(weights, dtype, eos)
        self.projection = source.linear(PROJECTION) if config.is_projected else None

    @property
    def parameters(self) -> list[mx.array]:
        """Every array, to evaluate or to count."""
        return [*super().parameters, *arrays_of(self.projection)]

    def project(self, frames: mx.array) -> mx.array:
        """Encoder frames [B, T, d_model] as the decoder attends to them, [B, T, d]."""
        return frames if self.projection is None else self.projection(frames)
