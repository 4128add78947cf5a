"""The sizes of a transducer's networks. Needs no MLX."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PredictionConfig:
    """The prediction network: an embedding and a stack of LSTM layers. starts_with_blank: before any label it
    reads blank's row of the embedding, else zeros."""

    pred_hidden: int
    pred_rnn_layers: int = 1
    starts_with_blank: bool = False


@dataclass(frozen=True, slots=True)
class JointConfig:
    """The joint network. `durations` is empty for RNNT. max_symbols: labels of one frame at most, unless a
    search is asked otherwise."""

    joint_hidden: int
    activation: str = "relu"
    durations: tuple[int, ...] = ()
    max_symbols: int = 10


@dataclass(frozen=True, slots=True)
class TransducerSizes:
    """Of one whose LSTM is projected: predictor (embedding, LSTM, projection) and joint network."""

    embedding: int
    hidden: int
    layers: int
    output: int
    joint: int
