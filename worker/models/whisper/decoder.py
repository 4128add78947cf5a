"""Whisper's decoder: the shared one with Whisper's tensors."""

from collections.abc import Sequence

import mlx.core as mx

from worker.models.attention.blocks import Tensors
from worker.models.attention.decoder import AttentionDecoder, DecoderWeights, tokens_last
from worker.models.whisper.config import SpecialTokens, WhisperDims
from worker.models.whisper.layouts import BLOCK


def decoder_of(
    dims: WhisperDims,
    tensors: dict[str, mx.array],
    dtype: mx.Dtype,
    alignment_heads: Sequence[tuple[int, int]],
) -> AttentionDecoder:
    """tensors: under OpenAI's names; they are taken out of it."""
    source = Tensors(tensors, dtype)
    weights = DecoderWeights(
        table=tokens_last(source.array("decoder.token_embedding.weight")),
        positions=source.array("decoder.positional_embedding"),
        blocks=tuple(
            source.block(f"decoder.blocks.{layer}", BLOCK, dims.n_text_head)
            for layer in range(dims.n_text_layer)
        ),
        norm=source.norm("decoder.ln"),
        heads=dims.n_text_head,
    )
    return AttentionDecoder(weights, dtype, SpecialTokens(dims.n_vocab).eot, alignment_heads)
