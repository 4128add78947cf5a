"""The encoder: blocks of attention, two layers that pool, and its own guess fed back from the middle
("Relaxing the Conditional Independence Assumption of CTC-based ASR by Conditioning on Intermediate
Predictions", Nozaki and Komatsu, 2021)."""

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.nn.activations import row_exp
from worker.models.conformer.attention import AttentionContext, Positions
from worker.models.conformer.config import EncoderConfig
from worker.models.conformer.encoder import AttContext, ConformerEncoder, length_bucket
from worker.models.conformer.linear import Linear
from worker.models.turns import give_way

NOWHERE = Positions(mx.zeros((0, 0)), 0, kept=False)
"""Distances are the attention's own, the same for every utterance."""
Counts = NDArray[np.int32]


class GraniteEncoder(ConformerEncoder):
    """Features [B, T, 4 mels] to encoder frames [B, T', d_model]. Each pooling layer halves an utterance's
    frames and leaves an odd last one out. Positions within blocks are counted from the start of the utterance
    at each layer's own rate."""

    def __init__(self, config: EncoderConfig, vocabulary: int) -> None:
        super().__init__(config)
        self.out = Linear(config.d_model, vocabulary, exact=True)
        self.out_mid = Linear(vocabulary, config.d_model, exact=True)
        self._middle = config.n_layers // 2 - 1

    def _prepare_frames(
        self,
        features: mx.array,
        lengths: Counts,
        counts: Counts,
        context: AttContext,  # noqa: ARG002 - blocks are it
    ) -> mx.array:
        longest = length_bucket(max(1, int(counts.max(initial=0))))
        room = max(0, self.pre_encode.features_for(longest) - features.shape[1])
        x, valid = self.subsample(mx.pad(features, [(0, 0), (0, room), (0, 0)]), lengths), lengths
        x = x[:, : self.pre_encode.features_for(longest)]
        for number in range(len(self.layers)):
            x, valid = self._run_layer(number, x, valid)
            give_way(x)
        inside = mx.arange(x.shape[1])[None] < mx.array(counts)[:, None]
        return mx.where(inside[:, :, None], x, mx.zeros((), dtype=x.dtype))

    def _one_by_one(
        self,
        features: mx.array,
        lengths: Counts,
        counts: Counts,
        context: AttContext,  # noqa: ARG002 - blocks are it
    ) -> mx.array:
        longest = max(1, int(counts.max(initial=0)))
        rows = {
            row: self.subsample(features[row : row + 1, : lengths[row]], lengths[row : row + 1])
            for row in np.flatnonzero(counts).tolist()
        }
        for number in range(len(self.layers)):
            for row, x in rows.items():
                rows[row], _ = self._run_layer(number, x, np.array([x.shape[1]], np.int32))
                mx.eval(rows[row])
                give_way(rows[row])
        silence = mx.zeros((1, longest, self.config.d_model), self._dtype)
        padded = [
            mx.pad(rows[row], [(0, 0), (0, longest - count), (0, 0)]) if count else silence
            for row, count in enumerate(counts.tolist())
        ]
        return mx.concatenate(padded)

    def _run_layer(self, number: int, x: mx.array, counts: Counts) -> tuple[mx.array, Counts]:
        """One layer of frames [B, T, d_model], `counts` [B] of them valid, and how many are valid then."""
        lengths = mx.array(counts)
        valid = (mx.arange(x.shape[1])[None] < lengths[:, None])[:, :, None]
        x = self.layers[number](x, NOWHERE, AttentionContext(None, lengths, None), valid)
        if number in self.config.pooled_layers:
            counts = counts // 2
        return (self._condition(x) if number == self._middle else x), counts

    def _condition(self, x: mx.array) -> mx.array:
        """Adds what the frames would be labelled as, each by itself."""
        raised, total = row_exp(self.out(x))
        weights = raised / total.astype(raised.dtype)
        out: mx.array = x + self.out_mid(weights)
        return out
