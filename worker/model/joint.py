"""The joint network and the transducer that a search drives.

joint(t, u) = W act(enc_t + pred_u) + b, whose outputs are the labels, blank, and for TDT ("Efficient Sequence
Transduction by Jointly Predicting Tokens and Durations", Xu et al., 2023) one logit a duration. No softmax is
taken here: TDT normalises labels and durations apart, which is the search's business.
"""

from collections.abc import Callable

import mlx.core as mx
from mlx import nn

from worker.model.config import JointConfig
from worker.model.prediction import LstmState, PredictionNetwork

ACTIVATIONS: dict[str, Callable[[mx.array], mx.array]] = {
    "relu": lambda x: mx.maximum(x, 0),
    "sigmoid": mx.sigmoid,
    "tanh": mx.tanh,
}
OUTPUT_LAYER = 2  # NeMo numbers activation, dropout and projection 0, 1, 2


class JointNetwork(nn.Module):
    """Projects encoder frames and prediction outputs to one width and joins them."""

    def __init__(self, config: JointConfig, d_model: int, pred_hidden: int, vocabulary_size: int) -> None:
        super().__init__()
        outputs = vocabulary_size + 1 + len(config.durations)
        self.enc = nn.Linear(d_model, config.joint_hidden)
        self.pred = nn.Linear(pred_hidden, config.joint_hidden)
        placeholders: list[nn.Module] = [nn.Identity() for _ in range(OUTPUT_LAYER)]
        self.joint_net = [*placeholders, nn.Linear(config.joint_hidden, outputs)]
        self._activation = ACTIVATIONS[config.activation]

    def join(self, enc_proj: mx.array, pred_proj: mx.array) -> mx.array:
        """[..., J] and [..., J], broadcast against each other -> [..., V + 1 + D] logits."""
        joined: mx.array = self.joint_net[OUTPUT_LAYER](self._activation(enc_proj + pred_proj))
        return joined


class Transducer:
    """What a search needs of a TDT or RNNT model: the prediction network and the joint, one step at a time.

    `durations` are the encoder frames that a TDT step may advance, None on RNNT. `blank` is the id of blank.
    """

    def __init__(
        self, prediction: PredictionNetwork, joint: JointNetwork, config: JointConfig, blank: int
    ) -> None:
        self._prediction = prediction
        self._joint = joint
        self.durations: tuple[int, ...] | None = config.durations or None
        self.blank = blank

    def start(self, batch: int) -> tuple[mx.array, LstmState]:
        """Before any label: projected prediction output [B, J] and the LSTM state ([B, layers, H] twice)."""
        output, state = self._prediction.start(batch)
        return self._joint.pred(output), state

    def step(
        self, tokens: mx.array, state: LstmState, of: mx.array | None = None
    ) -> tuple[mx.array, LstmState]:
        """Reads one label a row ([B] integers): projected prediction output [B, J] and the next state.

        With `of` [B], row b goes on from row of[b] of `state`.
        """
        output, state = self._prediction.step(tokens, state, of)
        return self._joint.pred(output), state

    def project_encoder(self, frames: mx.array) -> mx.array:
        """Encoder frames [..., d_model] -> [..., J]; once an utterance, not once a step."""
        projected: mx.array = self._joint.enc(frames)
        return projected

    def joined(self, enc_proj: mx.array, pred_proj: mx.array) -> mx.array:
        """[..., J] and [..., J] -> logits [..., V + 1 + D]: labels, blank, then the durations of a TDT."""
        return self._joint.join(enc_proj, pred_proj)

    def logits(self, enc_proj: mx.array, pred_proj: mx.array) -> tuple[mx.array, mx.array | None]:
        """[..., J] and [..., J] -> label logits [..., V + 1] (blank last) and duration logits [..., D] or
        None."""
        joined = self._joint.join(enc_proj, pred_proj)
        if self.durations is None:
            return joined, None
        return joined[..., : self.blank + 1], joined[..., self.blank + 1 :]
