"""The CTC head: one linear map from an encoder frame to labels and blank ("Connectionist Temporal
Classification", Graves et al., 2006). Knows no search."""

from collections.abc import Callable
from typing import NamedTuple, Self

import mlx.core as mx
import numpy as np
from mlx import nn
from numpy.typing import NDArray

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


class BestLabels(NamedTuple):
    """Of each encoder frame [...]: the likeliest label, int64, and the natural logs of its probability and of
    blank's, float32. A frame whose logits hold a NaN has a NaN for each."""

    labels: NDArray[np.int64]
    log_probs: NDArray[np.float32]
    blank: NDArray[np.float32]

    @classmethod
    def of(cls, logits: mx.array, blank: int) -> Self:
        """Of logits [..., N], where blank is the label `blank`."""
        logits = logits.astype(mx.float32)
        total = log_sum_exp(logits)[..., 0]
        both = (mx.argmax(logits, axis=-1), mx.max(logits, axis=-1) - total, logits[..., blank] - total)
        mx.eval(*both)
        labels, peaks, silence = (np.array(each) for each in both)
        return cls(labels.astype(np.int64), peaks, silence)


class CtcHead:
    """What a search needs of a CTC model. decoder: [..., d_model] -> logits [..., V + 1], blank last. `blank`
    is the id of blank. `sums`: the model's own beam adds all alignments of a prefix up, rather than taking
    the best of them; a search may be asked for either. `blank_unit`: which of its units the model itself has
    for blank, so that it cannot be a label; None for a unit behind them. `in_place`: the decoder's logits are
    [..., V], blank's at this unit."""

    def __init__(
        self,
        decoder: Callable[[mx.array], mx.array],
        blank: int,
        *,
        sums: bool = False,
        blank_unit: int | None = None,
        in_place: bool = False,
    ) -> None:
        self._decoder = decoder
        self.blank = blank
        self.sums = sums
        self.blank_unit = blank_unit
        self._column = blank if blank_unit is None or not in_place else blank_unit

    def log_probs(self, frames: mx.array, blank_penalty: float = 0.0) -> mx.array:
        """Encoder frames [B, T, d_model] -> natural-log probabilities [B, T, V + 1], float32, blank last.
        blank_penalty: subtracted from blank's logit before the softmax, as WeNet does it."""
        logits = self._logits(frames, blank_penalty)
        if self._column != self.blank:
            never = mx.full((*logits.shape[:-1], 1), -mx.inf)
            before, blank, behind = mx.split(logits, [self._column, self._column + 1], axis=-1)
            logits = mx.concatenate([before, never, behind, blank], axis=-1)
        return logits - log_sum_exp(logits)

    def best_labels(self, frames: mx.array, blank_penalty: float = 0.0) -> BestLabels:
        """The best label of each encoder frame of [B, T, d_model]. Half the time of all log-probabilities."""
        best = BestLabels.of(self._logits(frames, blank_penalty), self._column)
        best.labels[best.labels == self._column] = self.blank
        return best

    def _logits(self, frames: mx.array, blank_penalty: float) -> mx.array:
        logits = self._decoder(frames).astype(mx.float32)
        if blank_penalty:
            before, blank, behind = mx.split(logits, [self._column, self._column + 1], axis=-1)
            logits = mx.concatenate([before, blank - blank_penalty, behind], axis=-1)
        return logits
