"""CTC and transducer heads of models whose blank is unit 0, in the form that searches take: blank last.

Here blank is one label more, behind the units, and label 0 cannot be: units keep their ids, and a softmax
over both is the same to the bit.
"""

import mlx.core as mx
from mlx import nn

from kernels.nn.few_rows import RowSteps
from worker.models.heads.config import JointConfig, PredictionConfig, TransducerSizes
from worker.models.heads.transducer import OUTPUT_LAYER, JointNetwork, LstmLayer, LstmState, PredictionNetwork


def _blank_last(weight: mx.array, bias: mx.array) -> tuple[mx.array, mx.array]:
    """weight [V, d] and bias [V], blank first -> [V + 1, d] and [V + 1]: label 0 impossible, blank last."""
    return (
        mx.concatenate([mx.zeros_like(weight[:1]), weight[1:], weight[:1]]),
        mx.concatenate([mx.full((1,), -mx.inf, bias.dtype), bias[1:], bias[:1]]),
    )


class CtcOutput(nn.Module):
    """One linear map from frames to labels and blank."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.ctc_lo = nn.Linear(width, vocabulary)

    def fold(self) -> None:
        """Puts blank last; called once the weights are in."""
        last = self.pop("ctc_lo")
        weight, self.bias = _blank_last(last.weight, last.bias)
        self.weight = mx.contiguous(weight.T)

    def __call__(self, frames: mx.array) -> mx.array:
        """[..., d] -> logits [..., V + 1], blank last."""
        return mx.addmm(self.bias, frames, self.weight)


class LstmPredictor(PredictionNetwork):
    """Embedding, LSTM, projection; begins with blank's embedding."""

    def __init__(self, sizes: TransducerSizes, vocabulary: int) -> None:
        super().__init__(PredictionConfig(sizes.hidden, sizes.layers), vocabulary)
        self.prediction["embed"] = nn.Embedding(vocabulary, sizes.embedding)
        self.prediction["dec_rnn"].lstm[0] = LstmLayer(sizes.embedding, sizes.hidden)
        self.projection = nn.Linear(sizes.hidden, sizes.output)
        self._blank, self._shape = vocabulary, (sizes.layers, sizes.hidden)

    def fold(self) -> None:
        """Puts blank last as well; called once the weights are in."""
        table = self.prediction["embed"].weight
        self.prediction["embed"].weight = mx.concatenate([table, table[:1]])

    def start(self, batch: int) -> tuple[mx.array, LstmState]:
        """Behind blank alone: [B, output] and the state."""
        zeros = mx.zeros((batch, *self._shape), self.projection.weight.dtype)
        return self.step(mx.full((batch,), self._blank, mx.int32), LstmState(zeros, zeros))

    def step(
        self, tokens: mx.array, state: LstmState, of: mx.array | None = None
    ) -> tuple[mx.array, LstmState]:
        output, state = super().step(tokens, state, of)
        return self.projection(output), state

    def go_on(self, rows: RowSteps, layers: list[LstmState]) -> tuple[mx.array, list[LstmState]]:
        output, after = super().go_on(rows, layers)
        return self.projection(output), after


class Joint(JointNetwork):
    """Labels in a checkpoint's order until they are folded."""

    def __init__(self, sizes: TransducerSizes, width: int, vocabulary: int) -> None:
        super().__init__(joint_config(sizes), width, sizes.output, vocabulary - 1)

    def fold(self) -> None:
        """Puts blank last; called once the weights are in."""
        last = self.joint_net[OUTPUT_LAYER]
        last.weight, last.bias = _blank_last(last.weight, last.bias)


def joint_config(sizes: TransducerSizes) -> JointConfig:
    """The joint network's sizes."""
    return JointConfig(sizes.joint, "tanh")
