"""Whisper's decoder: the shared one with Whisper's tensors, and word times by its alignment heads."""

from collections.abc import Mapping, Sequence

import mlx.core as mx

from worker.models.attention.alignment import align_tokens
from worker.models.attention.blocks import Tensors
from worker.models.attention.decoder import AttentionDecoder, DecoderWeights, tokens_last
from worker.models.attention.state import EncodedWindow
from worker.models.base_attention import TokenTimes, Trail
from worker.models.whisper.config import FRAME_SECONDS, SpecialTokens, WhisperDims
from worker.models.whisper.layouts import BLOCK


class WhisperHead(AttentionDecoder):
    """An `AttentionHead`; 448 tokens at most."""

    def __init__(
        self,
        dims: WhisperDims,
        tensors: Mapping[str, mx.array],
        dtype: mx.Dtype,
        alignment_heads: Sequence[tuple[int, int]],
    ) -> None:
        self.dims = dims
        self.ids = SpecialTokens(dims.n_vocab)
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
        super().__init__(weights, dtype, self.ids.eot, alignment_heads)

    def align(
        self,
        encoded: Sequence[EncodedWindow],
        tokens: Sequence[Sequence[int]],
        languages: Sequence[str | None] | None = None,
        tasks: Sequence[str] | None = None,
        trails: Sequence[Trail | None] = (),
    ) -> list[TokenTimes | None]:
        """When each text token of each utterance was spoken, asked in its language (default English) for its
        task (default to transcribe), as openai-whisper's find_alignment does; None where nothing can be
        told. trails: as in `align_tokens`."""
        spoken = languages or [None] * len(encoded)
        prompts = [
            self.ids.prompt(language or "en", task, timestamps=False)
            for language, task in zip(spoken, tasks or ["transcribe"] * len(encoded), strict=True)
        ]
        return align_tokens(self, encoded, prompts, tokens, FRAME_SECONDS, trails)
