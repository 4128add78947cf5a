"""The CTC head: one linear map from an encoder frame to labels and blank ("Connectionist Temporal
Classification", Graves et al., 2006). Knows no search."""

from collections.abc import Callable

import mlx.core as mx
from mlx import nn

from worker.models.attention.layers import log_sum_exp


class CtcDecoder(nn.Module):
    """NeMo's ConvASRDecoder: a convolution of width one, held here as the matrix that it is."""

    def __init__(self, d_model: int, vocabulary_size: int) -> None:
        super().__init__()
        self.decoder_layers = [nn.Linear(d_model, vocabulary_size + 1)]

    def __call__(self, frames: mx.array) -> mx.array:
        """[..., d_model] -> logits [..., V + 1], blank last."""
        logits: mx.array = self.decoder_layers[0](frames)
        return logits


class CtcHead:
    """What a search needs of a CTC model. decoder: [..., d_model] -> logits [..., V + 1], blank last. `blank`
    is the id of blank. `sums`: the model's own beam adds all alignments of a prefix up, rather than taking
    the best of them; a search may be asked for either. `blank_unit`: which of its units the model itself has
    for blank, so that it cannot be a label; None for a unit behind them."""

    def __init__(
        self,
        decoder: Callable[[mx.array], mx.array],
        blank: int,
        *,
        sums: bool = False,
        blank_unit: int | None = None,
    ) -> None:
        self._decoder = decoder
        self.blank = blank
        self.sums = sums
        self.blank_unit = blank_unit

    def log_probs(self, frames: mx.array, blank_penalty: float = 0.0) -> mx.array:
        """Encoder frames [B, T, d_model] -> natural-log probabilities [B, T, V + 1], float32, blank last.
        blank_penalty: subtracted from blank's logit before the softmax, as WeNet does it."""
        logits = self._decoder(frames).astype(mx.float32)
        if blank_penalty:
            logits = mx.concatenate([logits[..., :-1], logits[..., -1:] - blank_penalty], axis=-1)
        return logits - log_sum_exp(logits)
