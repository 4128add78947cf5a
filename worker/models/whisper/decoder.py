"""Whisper's decoder: the shared one with Whisper's tensors, and word times by its alignment heads."""

from collections.abc import Mapping, Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.models.attention.blocks import Tensors
from worker.models.attention.decoder import AttentionDecoder, DecoderWeights, tokens_last
from worker.models.attention.layers import log_sum_exp
from worker.models.attention.state import EncodedWindow, Memory
from worker.models.base_attention import TokenTimes
from worker.models.whisper.alignment import FRAMES_MIN, time_tokens
from worker.models.whisper.config import SpecialTokens, WhisperDims
from worker.models.whisper.names import BLOCK


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
        self.alignment_heads = tuple(alignment_heads)
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
        super().__init__(weights, dtype, self.ids.eot)

    def align(
        self,
        encoded: Sequence[EncodedWindow],
        tokens: Sequence[Sequence[int]],
        languages: Sequence[str | None] | None = None,
        tasks: Sequence[str] | None = None,
    ) -> list[TokenTimes | None]:
        """When each text token of each utterance was spoken, asked in its language (default English) for its
        task (default to transcribe), as openai-whisper's find_alignment does; None where nothing can be
        told."""
        spoken = languages or [None] * len(encoded)
        prompts = [
            self.ids.prompt(language or "en", task, timestamps=False)
            for language, task in zip(spoken, tasks or ["transcribe"] * len(encoded), strict=True)
        ]
        usable = [index for index, text in enumerate(tokens) if text and encoded[index].length >= FRAMES_MIN]
        # Window by window: what stands in the matrix must not know the batch.
        heard = [self._hear(encoded[index], prompts[index], tokens[index]) for index in usable]
        answers = time_tokens(
            [products for products, _ in heard],
            [len(prompts[index]) - 1 for index in usable],
            [shares for _, shares in heard],
        )
        times: list[TokenTimes | None] = [None] * len(encoded)
        for index, answer in zip(usable, answers, strict=True):
            times[index] = answer
        return times

    def _hear(
        self, window: EncodedWindow, prompt: Sequence[int], text: Sequence[int]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Products of the alignment heads over the window's own frames, [heads, rows, frames], and each text
        token's probability among text tokens."""
        rows = np.array([[*prompt, *text, self.eos]], np.int32)
        forced = self.force(Memory.of([window]), rows, keep=[layer for layer, _ in self.alignment_heads])
        products = [
            forced.products[layer][0, mx.array(heads)]
            for layer in range(len(self.blocks))
            if (heads := [head for at, head in self.alignment_heads if at == layer])
        ]
        logits = self.logits(forced.hidden[0, len(prompt) - 1 : -2])[:, : self.eos]
        shares = mx.exp(logits - log_sum_exp(logits))
        chosen = mx.take_along_axis(shares, mx.array(list(text), mx.int32)[:, None], axis=-1)
        heard = mx.concatenate(products).astype(mx.float32)[:, :, : window.length]
        return np.array(heard), np.array(chosen[:, 0])
