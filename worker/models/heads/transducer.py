"""The transducer head: prediction network, joint network, and the object that a search drives.

The prediction network is an embedding (blank is the all-zero row) and a stack of LSTM layers, after
"Sequence Transduction with Recurrent Neural Networks" (Graves, 2012). It computes one step; the search
decides which rows take it.

joint(t, u) = W act(enc_t + pred_u) + b gives one logit per label, one for blank, and for TDT ("Efficient
Sequence Transduction by Jointly Predicting Tokens and Durations", Xu et al., 2023) one per duration. No
softmax is taken here: TDT normalizes labels and durations separately, which is the search's job.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import mlx.core as mx
from mlx import nn

from kernels.nn.elementwise import lstm_cell
from kernels.nn.few_rows import (
    Packed,
    PackedGates,
    RowSteps,
    joint_rows,
    lstm_rows,
    pack_gates,
    pack_rows,
    project_rows,
)
from kernels.runtime.device import fuse
from worker.models.heads.config import JointConfig, PredictionConfig
from worker.models.heads.ctc import CtcHead

Made = TypeVar("Made")


class MadeOf(Generic[Made]):
    """What is made of some weights once, and again when those are no longer the network's."""

    def __init__(self, make: Callable[..., Made]) -> None:
        self._make = make
        self._of: tuple[mx.array, ...] = ()
        self._made: list[Made] = []

    def __call__(self, *weights: mx.array) -> Made:
        """`make(*weights)`."""
        if not self._made or any(a is not b for a, b in zip(self._of, weights, strict=True)):
            self._of, self._made = weights, [self._make(*weights)]
        return self._made[0]


class LstmState(NamedTuple):
    """Hidden and cell state, batch first so that a search can index, gather and mask rows: [B, layers, H]
    both."""

    hidden: mx.array
    cell: mx.array

    def take(self, rows: mx.array) -> "LstmState":
        """The states of `rows` ([N] integers), in their order."""
        return LstmState(mx.take(self.hidden, rows, axis=0), mx.take(self.cell, rows, axis=0))

    def where(self, mask: mx.array, other: "LstmState") -> "LstmState":
        """This state where `mask` ([B] bool) holds, the other elsewhere."""
        chosen = mask[:, None, None]
        return LstmState(mx.where(chosen, self.hidden, other.hidden), mx.where(chosen, self.cell, other.cell))

    def layers(self) -> "list[LstmState]":
        """The states of the layers from the lowest, [B, 1, H] each."""
        if self.hidden.shape[1] == 1:
            return [self]
        parts = zip(*(mx.split(each, self.hidden.shape[1], axis=1) for each in self), strict=True)
        return [LstmState(hidden, cell) for hidden, cell in parts]

    @classmethod
    def of_layers(cls, layers: "list[LstmState]") -> "LstmState":
        """What `layers` gives, as one."""
        if len(layers) == 1:
            return layers[0]
        return cls(*(mx.concatenate(list(each), axis=1) for each in zip(*layers, strict=True)))


class LstmLayer(nn.Module):
    """One LSTM layer, one step. Gates stand in the order of PyTorch's LSTM: input, forget, cell, output."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.Wx = mx.zeros((4 * hidden, inputs))
        self.Wh = mx.zeros((4 * hidden, hidden))
        self.bias = mx.zeros((4 * hidden,))
        self._first = MadeOf(lambda recurrent, entering: pack_gates(recurrent, None, entering))
        self._upper = MadeOf(lambda recurrent, below, bias: pack_gates(recurrent, below, bias[None]))

    def pack(self, entering: mx.array | None) -> PackedGates:
        """For `lstm_rows`; `entering` [V, 4H] of the first layer, None above it."""
        return (
            self._upper(self.Wh, self.Wx, self.bias) if entering is None else self._first(self.Wh, entering)
        )

    def entering(self, x: mx.array) -> mx.array:
        """[B, inputs] -> what the input gives to the gates, [B, 4H]."""
        return mx.addmm(self.bias, x, self.Wx.T)

    def __call__(
        self, entering: mx.array, hidden: mx.array, cell: mx.array, of: mx.array | None
    ) -> tuple[mx.array, mx.array]:
        """[B, 4H], [P, H], [P, H] -> the next hidden and cell state, [B, H] each; row b follows of[b]."""
        recurrent = hidden @ self.Wh.T
        if of is not None:
            recurrent, cell = recurrent[of], cell[of]
        return lstm_cell(entering, recurrent, cell)


class LstmStack(nn.Module):
    """LSTM layers one upon another; `lstm` is the name that checkpoints give the list."""

    def __init__(self, size: int, layers: int) -> None:
        super().__init__()
        self.lstm = [LstmLayer(size, size) for _ in range(layers)]

    def __call__(
        self, entering: mx.array, state: LstmState, of: mx.array | None = None
    ) -> tuple[mx.array, LstmState]:
        """What enters the first layer's gates, [B, 4H], through every layer; returns the top's output [B, H]
        and the new state. Row b goes on from row of[b] of `state`, from its own where `of` is None."""
        hidden, cell = [], []
        for index, layer in enumerate(self.lstm):
            shown, carried = layer(entering, state.hidden[:, index], state.cell[:, index], of)
            hidden.append(shown)
            cell.append(carried)
            if index + 1 < len(self.lstm):
                entering = self.lstm[index + 1].entering(shown)
        if len(self.lstm) == 1:
            return hidden[0], LstmState(hidden[0][:, None], cell[0][:, None])
        return hidden[-1], LstmState(mx.stack(hidden, axis=1), mx.stack(cell, axis=1))

    def go_on(self, entering: mx.array, rows: RowSteps, layers: list[LstmState]) -> list[LstmState]:
        """The layers' states behind `rows`, whose labels give `entering` [V, 4H] to the first one's gates."""
        below, after = None, []
        for index, (layer, state) in enumerate(zip(self.lstm, layers, strict=True)):
            packed = layer.pack(None if index else entering)
            after.append(LstmState(*lstm_rows(packed, rows.upper if index else rows.first, *state, below)))
            below = after[-1].hidden
        return after


def entering_of(embedding: mx.array, weight: mx.array, bias: mx.array) -> mx.array:
    """What each label of an embedding [V, E] gives to a layer's gates, [V, 4H]."""
    table = mx.addmm(bias, embedding, weight.T)
    mx.eval(table)
    return table


class PredictionNetwork(nn.Module):
    """Embedding and LSTM stack. `vocabulary_size` leaves blank out; blank's id is `vocabulary_size`."""

    def __init__(self, config: PredictionConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.prediction = {
            "embed": nn.Embedding(vocabulary_size + 1, config.pred_hidden),
            "dec_rnn": LstmStack(config.pred_hidden, config.pred_rnn_layers),
        }

        self._entered = MadeOf(entering_of)
        self._starts_with_blank = config.starts_with_blank

    def _entering(self) -> mx.array:
        """What each label gives to the first layer's gates, [V + 1, 4H]: a product a label once, instead of
        one a step."""
        first = self.prediction["dec_rnn"].lstm[0]
        return self._entered(self._embedding, first.Wx, first.bias)

    @property
    def _embedding(self) -> mx.array:
        table: mx.array = self.prediction["embed"].weight
        return table

    def start(self, batch: int) -> tuple[mx.array, LstmState]:
        """The step before any label: zeros in place of an embedding, or blank's, from the zero state. [B, H]
        and the state."""
        stack = self.prediction["dec_rnn"]
        table = self._embedding
        zeros = mx.zeros((batch, len(stack.lstm), table.shape[1]), dtype=table.dtype)
        read = mx.broadcast_to(table[-1], zeros[:, 0].shape) if self._starts_with_blank else zeros[:, 0]
        output, state = stack(stack.lstm[0].entering(read), LstmState(zeros, zeros))
        return output, state

    def step(
        self, tokens: mx.array, state: LstmState, of: mx.array | None = None
    ) -> tuple[mx.array, LstmState]:
        """One label a row, [B] integers (blank allowed: a zero embedding). [B, H] and the next state.

        With `of` [B], row b goes on from row of[b] of a state of fewer rows, whose product is made once.
        """
        output, state = self.prediction["dec_rnn"](self._entering()[tokens], state, of)
        return output, state

    def go_on(self, rows: RowSteps, layers: list[LstmState]) -> tuple[mx.array, list[LstmState]]:
        """As `step`, of rows of which some read a label; the output [N, 1, H] of the others means nothing."""
        after = self.prediction["dec_rnn"].go_on(self._entering(), rows, layers)
        return after[-1].hidden, after


def _joining(activation: Callable[[mx.array], mx.array]) -> Callable[[mx.array, mx.array], mx.array]:
    """The activation of a sum."""
    return fuse(lambda frames, predictions: activation(frames + predictions))


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
        self._activation = config.activation
        self._joining = _joining(ACTIVATIONS[config.activation])
        self._packed_output: MadeOf[Packed] = MadeOf(pack_rows)
        self._packed_pred: MadeOf[Packed] = MadeOf(pack_rows)

    def join(self, enc_proj: mx.array, pred_proj: mx.array) -> mx.array:
        """[..., J] and [..., J], broadcast against each other -> [..., V + 1 + D] logits."""
        joined: mx.array = self.joint_net[OUTPUT_LAYER](self._joining(enc_proj, pred_proj))
        return joined

    def join_rows(self, enc_proj: mx.array, pred_proj: mx.array, pairs: mx.array) -> mx.array:
        """As `kernels.nn.few_rows.joint_rows`, [N, V + 1 + D]."""
        last = self.joint_net[OUTPUT_LAYER]
        return joint_rows(
            enc_proj, pred_proj, pairs, self._packed_output(last.weight, last.bias), self._activation
        )

    def project(self, fresh: mx.array, before: mx.array, pairs: mx.array) -> mx.array:
        """`pred` of some rows beside kept ones, as `kernels.nn.few_rows.project_rows`, [N, J]."""
        return project_rows(fresh, before, pairs, self._packed_pred(self.pred.weight, self.pred.bias))


class Transducer:
    """What a search needs of a TDT or RNNT model: the prediction network and the joint, one step at a time.

    `durations` are the encoder frames that a TDT step may advance, None on RNNT. `blank` is the id of blank.
    `max_symbols`: labels of one frame at most, unless a search is asked otherwise. `ctc`: a CTC head over the
    same labels, None for none; where there is one, the beam goes frame by frame and may hear both.
    """

    def __init__(
        self,
        prediction: PredictionNetwork,
        joint: JointNetwork,
        config: JointConfig,
        blank: int,
        *,
        max_symbols: int = 10,
        ctc: CtcHead | None = None,
    ) -> None:
        self.ctc = ctc
        self.max_symbols = max_symbols
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

    def go_on(
        self, rows: RowSteps, output: mx.array, layers: list[LstmState]
    ) -> tuple[mx.array, list[LstmState]]:
        """Projected prediction output [N, J] and state of rows that go on from rows of `output` [P, J] and
        the `layers` of a state, for a CPU: rows that read nothing cost no product."""
        fresh, after = self._prediction.go_on(rows, layers)
        return self._joint.project(fresh, output, rows.kept), after

    def project_encoder(self, frames: mx.array) -> mx.array:
        """Encoder frames [..., d_model] -> [..., J]; once an utterance, not once a step."""
        projected: mx.array = self._joint.enc(frames)
        return projected

    def joint_logits(self, enc_proj: mx.array, pred_proj: mx.array) -> mx.array:
        """[..., J] and [..., J] -> logits [..., V + 1 + D]: labels, blank, then the durations of a TDT."""
        return self._joint.join(enc_proj, pred_proj)

    def join_rows(self, enc_proj: mx.array, pred_proj: mx.array, pairs: mx.array) -> mx.array:
        """Of encoder rows [F, J] and predictions [P, J], those that `pairs` [2, N] names -> [N, V + 1 + D];
        zeros where the encoder's row is -1. For a CPU: rows that nobody needs cost nothing."""
        return self._joint.join_rows(enc_proj, pred_proj, pairs)

    def logits(self, enc_proj: mx.array, pred_proj: mx.array) -> tuple[mx.array, mx.array | None]:
        """[..., J] and [..., J] -> label logits [..., V + 1] (blank last) and duration logits [..., D] or
        None."""
        return self.split_scores(self._joint.join(enc_proj, pred_proj))

    def split_scores(self, joined: mx.array) -> tuple[mx.array, mx.array | None]:
        """`joined` [..., V + 1 + D] as `logits` gives it."""
        if self.durations is None:
            return joined, None
        return joined[..., : self.blank + 1], joined[..., self.blank + 1 :]
