"""The sizes of a transducer's networks. Needs no MLX."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PredictionConfig:
    """The prediction network: an embedding and a stack of LSTM layers."""

    pred_hidden: int
    pred_rnn_layers: int = 1


@dataclass(frozen=True, slots=True)
class JointConfig:
    """The joint network. `durations` is empty for RNNT."""

    joint_hidden: int
    activation: str = "relu"
    durations: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TransducerSizes:
    """Of one whose LSTM is projected: predictor (embedding, LSTM, projection) and joint network."""

    embedding: int
    hidden: int
    layers: int
    output: int
    joint: int
