"""CTC and transducer heads in the form that searches take: blank last.

WeNet's blank is unit 0. Here it is one label more, behind the units, and label 0 cannot be: units keep their
ids, and a softmax over both is the same to the bit.
"""

import mlx.core as mx
from mlx import nn

from kernels.nn.few_rows import RowSteps
from worker.models.heads.ctc import CtcHead
from worker.models.heads.transducer import (
    OUTPUT_LAYER,
    JointNetwork,
    LstmLayer,
    LstmStack,
    LstmState,
    MadeOf,
    PredictionNetwork,
    Transducer,
    entering_of,
)
from worker.models.nemo.config import JointConfig
from worker.models.wenet.config import TransducerSizes
from worker.models.wenet.layers import Reader

MAX_SYMBOLS = 64  # labels of a frame at most, as WeNet's greedy search has it


def _blank_last(weight: mx.array, bias: mx.array) -> tuple[mx.array, mx.array]:
    """weight [V, d] and bias [V], blank first -> [V + 1, d] and [V + 1]: label 0 impossible, blank last."""
    return (
        mx.concatenate([mx.zeros_like(weight[:1]), weight[1:], weight[:1]]),
        mx.concatenate([mx.full((1,), -mx.inf), bias[1:], bias[:1]]),
    )


class CtcOutput(nn.Module):
    """One linear map from frames to labels and blank."""

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        weight, bias = _blank_last(reader.raw("ctc.ctc_lo.weight"), reader.raw("ctc.ctc_lo.bias"))
        self._weight, self._bias = reader.kept(mx.contiguous(weight.T)), reader.kept(bias)

    def __call__(self, frames: mx.array) -> mx.array:
        """[..., d] -> logits [..., V + 1], blank last."""
        return mx.addmm(self._bias, frames, self._weight)


def ctc_head(vocabulary: int, reader: Reader) -> CtcHead:
    """The CTC head of V units."""
    return CtcHead(CtcOutput(reader), vocabulary, sums=True, blank_first=True)


class LstmPredictor(PredictionNetwork):
    """Embedding, LSTM, projection; begins with blank's embedding."""

    def __init__(self, sizes: TransducerSizes, vocabulary: int, reader: Reader) -> None:
        nn.Module.__init__(self)
        stack = LstmStack(sizes.hidden, sizes.layers)
        stack.lstm[0] = LstmLayer(sizes.embedding, sizes.hidden)
        self.prediction = {"embed": nn.Embedding(vocabulary + 1, sizes.embedding), "dec_rnn": stack}
        table = reader.raw("predictor.embed.weight")
        self.prediction["embed"].weight = reader.kept(mx.concatenate([table, table[:1]]))
        for index, layer in enumerate(stack.lstm):
            layer.Wx = reader.array(f"predictor.rnn.weight_ih_l{index}")
            layer.Wh = reader.array(f"predictor.rnn.weight_hh_l{index}")
            biases = (reader.raw(f"predictor.rnn.bias_{side}_l{index}") for side in ("ih", "hh"))
            layer.bias = reader.kept(sum(biases, mx.zeros(())))
        self._projection = reader.linear("predictor.projection")
        self._blank, self._shape = vocabulary, (sizes.layers, sizes.hidden)
        self._entered = MadeOf(entering_of)

    def start(self, batch: int) -> tuple[mx.array, LstmState]:
        """Behind blank alone: [B, output] and the state."""
        zeros = mx.zeros((batch, *self._shape), self._projection.weight.dtype)
        return self.step(mx.full((batch,), self._blank, mx.int32), LstmState(zeros, zeros))

    def step(
        self, tokens: mx.array, state: LstmState, of: mx.array | None = None
    ) -> tuple[mx.array, LstmState]:
        output, state = super().step(tokens, state, of)
        return self._projection(output), state

    def go_on(self, rows: RowSteps, layers: list[LstmState]) -> tuple[mx.array, list[LstmState]]:
        output, after = super().go_on(rows, layers)
        return self._projection(output), after


def transducer_head(
    sizes: TransducerSizes, width: int, vocabulary: int, ctc: CtcHead, reader: Reader
) -> Transducer:
    """Predictor and joint network, and the CTC head that its beam may hear beside them."""
    config = JointConfig(sizes.joint, "tanh")
    joint = JointNetwork(config, width, sizes.output, vocabulary)
    for linear, name in ((joint.enc, "joint.enc_ffn"), (joint.pred, "joint.pred_ffn")):
        linear.weight, linear.bias = reader.array(f"{name}.weight"), reader.array(f"{name}.bias")
    last = joint.joint_net[OUTPUT_LAYER]
    weight, bias = _blank_last(reader.raw("joint.ffn_out.weight"), reader.raw("joint.ffn_out.bias"))
    last.weight, last.bias = reader.kept(weight), reader.kept(bias)
    predictor = LstmPredictor(sizes, vocabulary, reader)
    return Transducer(predictor, joint, config, vocabulary, max_symbols=MAX_SYMBOLS, ctc=ctc)
