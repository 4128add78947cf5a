"""What a network is made of, in the words of its checkpoint.

The fields are named as NeMo names them in a model's configuration, with NeMo's defaults. Knows no file, no
tensor.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PreprocessorConfig:
    """The log-mel front end. `window_size` and `window_stride` are seconds."""

    sample_rate: int = 16_000
    window_size: float = 0.02
    window_stride: float = 0.01
    window: str = "hann"
    features: int = 64
    n_fft: int | None = None
    normalize: str | None = "per_feature"
    preemph: float | None = 0.97
    mag_power: float = 2.0
    log: bool = True
    log_zero_guard_type: str = "add"
    log_zero_guard_value: float = 2.0**-24
    lowfreq: float = 0.0
    highfreq: float | None = None
    frame_splicing: int = 1
    mel_norm: str = "slaney"

    @property
    def win_length(self) -> int:
        """Samples under one window."""
        return int(self.window_size * self.sample_rate)

    @property
    def hop_length(self) -> int:
        """Samples from one window to the next."""
        return int(self.window_stride * self.sample_rate)

    @property
    def fft_length(self) -> int:
        """Samples of one transform: the power of two that holds a window, unless the config says."""
        return self.n_fft or 1 << (self.win_length - 1).bit_length()


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """NeMo's ConformerEncoder; lengths are encoder frames unless said."""

    feat_in: int
    n_layers: int
    d_model: int
    n_heads: int = 4
    ff_expansion_factor: int = 4
    use_bias: bool = True
    subsampling: str = "striding"
    subsampling_factor: int = 4
    subsampling_conv_channels: int = -1
    causal_downsampling: bool = False
    self_attention_model: str = "rel_pos"
    att_context_size: tuple[int, int] = (-1, -1)
    att_context_style: str = "regular"
    xscaling: bool = True
    untie_biases: bool = True
    pos_emb_max_len: int = 5_000
    conv_kernel_size: int = 31
    conv_norm_type: str = "batch_norm"
    conv_context_size: tuple[int, int] | None = None
    global_tokens: int = 0
    reduction: str | None = None
    feat_out: int = -1

    @property
    def is_local(self) -> bool:
        """Whether attention reaches `att_context_size` frames and no further, in memory too."""
        return self.self_attention_model == "rel_pos_local_attn"

    @property
    def convolution_padding(self) -> tuple[int, int]:
        """Frames of zeros left and right of the depthwise convolution."""
        half = (self.conv_kernel_size - 1) // 2
        return self.conv_context_size or (half, half)


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
class ModelConfig:
    """One model: the parts it has and its vocabulary (None where only a tokenizer file tells it)."""

    preprocessor: PreprocessorConfig
    encoder: EncoderConfig
    prediction: PredictionConfig | None
    joint: JointConfig | None
    has_ctc: bool
    vocabulary: tuple[str, ...] | None
    tokenizer: Mapping[str, Any]

    @property
    def frame_seconds(self) -> float:
        """Seconds from one encoder frame to the next."""
        return self.preprocessor.window_stride * self.encoder.subsampling_factor

    @property
    def is_hybrid(self) -> bool:
        """Whether a CTC head stands beside a transducer."""
        return self.has_ctc and self.joint is not None
