"""The settings of the log-mel front end and of the Conformer, and both as NeMo's configurations write them.

Fields have NeMo's names and defaults. A setting that this engine does not implement is refused with an error
that names it. Reads no weights and needs no MLX.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

from spool.errors import ModelUnreadable
from worker.models.configuration import require, require_size

SUPPORTED_SAMPLE_RATE = 16_000
CONVOLUTIONS: dict[str, tuple[tuple[int, int], ...]] = {
    "conv2d": ((3, 2), (3, 2)),
    "conv2d6": ((3, 2), (5, 3)),
    "conv2d8": ((3, 2), (3, 2), (3, 2)),
}
"""Kernel and stride of each convolution of WeNet's subsamplings over time and bands, without padding."""


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
    """A Conformer or a transformer over subsampled features, as NeMo's ConformerEncoder names its parts;
    lengths are encoder frames unless said.

    subsampling: "dw_striding", "conv1d", "linear" (each feature frame is one of the encoder's) or one of
    `CONVOLUTIONS`. self_attention_model: "rel_pos", "rel_pos_local_attn", "rel_pos_unshifted" (WeNet's),
    "rel_pos_blocks" (within blocks of `block` frames), "abs_pos", which adds positions to the frames, or
    "no_pos". head_dim: width of a head, 0 for its share of `d_model`. conv_norm_type: "folded" if the
    checkpoint's convolutions hold their batch norm. conv_kernel_size: 0 for layers without a convolution.
    conv_expansion: how many times as wide as the frames it is inside. conv_biases: whether its pointwise and
    its depthwise parts have one, None for `use_bias`. pooled_layers: those that halve the frames. conv_pads:
    whether the zeros around a recording are those of the depthwise convolution or of the whole convolution
    module. inner: width of the feed-forwards, 0 for `ff_expansion_factor` times `d_model`. any_chunk: trained
    in chunks of every size.
    """

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
    att_contexts: tuple[tuple[int, int], ...] = ()
    xscaling: bool = True
    untie_biases: bool = True
    pos_emb_max_len: int = 5_000
    conv_kernel_size: int = 31
    conv_norm_type: str = "batch_norm"
    conv_context_size: tuple[int, int] | None = None
    global_tokens: int = 0
    reduction: str | None = None
    feat_out: int = -1
    conv_pads: Literal["gate", "input"] = "gate"
    inner: int = 0
    has_feature_norm: bool = False
    has_final_norm: bool = False
    any_chunk: bool = False
    head_dim: int = 0
    block: int = 0
    conv_expansion: int = 1
    conv_biases: tuple[bool, bool] | None = None
    pooled_layers: tuple[int, ...] = ()

    @property
    def head_width(self) -> int:
        return self.head_dim or self.d_model // self.n_heads

    @property
    def conv_width(self) -> int:
        """Channels of the depthwise convolution."""
        return self.d_model * self.conv_expansion

    @property
    def is_local(self) -> bool:
        """Whether attention reaches `att_context_size` frames and no further, in memory too."""
        return self.self_attention_model == "rel_pos_local_attn"

    @property
    def is_shifted(self) -> bool:
        """Whether scores by relative position are shifted to their keys, as in Transformer-XL."""
        return self.self_attention_model in {"rel_pos", "rel_pos_local_attn"}

    @property
    def feed_forward_size(self) -> int:
        return self.inner or self.d_model * self.ff_expansion_factor

    @property
    def is_chunked(self) -> bool:
        """Whether attention reaches whole chunks, so that the encoder can run chunk by chunk."""
        return self.att_context_style == "chunked_limited" and self.att_context_size[1] >= 0

    @property
    def convolution_padding(self) -> tuple[int, int]:
        """Frames of zeros left and right of the depthwise convolution."""
        half = (self.conv_kernel_size - 1) // 2
        return self.conv_context_size or (half, half)

    @property
    def streams(self) -> bool:
        """Whether the encoder sees nothing but whole chunks and the past."""
        causal = (self.conv_kernel_size - 1, 0)
        return self.any_chunk or (
            self.is_chunked and self.causal_downsampling and self.convolution_padding == causal
        )


Section = TypeVar("Section", PreprocessorConfig, EncoderConfig)


def _section(kind: type[Section], tree: Mapping[str, Any]) -> Section:
    known = {field.name for field in fields(kind)}
    return kind(**{key: value for key, value in tree.items() if key in known})


def parse_preprocessor(tree: Mapping[str, Any]) -> PreprocessorConfig:
    """The section `preprocessor`. Raises ModelUnreadable for what is not computed."""
    values = dict(tree)
    rate = int(values.get("sample_rate", SUPPORTED_SAMPLE_RATE))
    for seconds, samples in (("window_size", "n_window_size"), ("window_stride", "n_window_stride")):
        if values.get(samples):
            values[seconds] = values[samples] / rate
    if values.get("normalize") in ("NA", "None", ""):
        values["normalize"] = None
    guard = values.get("log_zero_guard_value", 2.0**-24)
    if isinstance(guard, str):
        raise ModelUnreadable(f"log_zero_guard_value `{guard}` is not supported, only a number is")
    config = _section(PreprocessorConfig, values)
    for name in ("features", "win_length", "hop_length", "fft_length"):
        require_size(f"preprocessor.{name}", getattr(config, name))
    if config.win_length > config.fft_length:
        raise ModelUnreadable(
            f"preprocessor: a window of {config.win_length} samples does not fit an FFT of "
            f"{config.fft_length}"
        )
    require("preprocessor.sample_rate", config.sample_rate, SUPPORTED_SAMPLE_RATE)
    require("preprocessor.normalize", config.normalize, "per_feature", "all_features", None)
    require("preprocessor.window", config.window, "hann")
    require("preprocessor.mel_norm", config.mel_norm, "slaney")
    require("preprocessor.exact_pad", bool(tree.get("exact_pad", False)), False)
    require("preprocessor.frame_splicing", config.frame_splicing, 1)
    require("preprocessor.log", config.log, True)
    require("preprocessor.log_zero_guard_type", config.log_zero_guard_type, "add", "clamp")
    return config


def parse_encoder(tree: Mapping[str, Any]) -> EncoderConfig:
    """The section `encoder`. Raises ModelUnreadable for what is not computed."""
    values = dict(tree)
    contexts = _contexts(values.get("att_context_size"))
    values |= {"att_context_size": contexts[0], "att_contexts": contexts}
    values["conv_context_size"] = _padding(values.get("conv_context_size"), values)
    config = _section(EncoderConfig, values)
    require("encoder.subsampling", config.subsampling, "dw_striding")
    require("encoder.self_attention_model", config.self_attention_model, "rel_pos", "rel_pos_local_attn")
    require("encoder.att_context_style", config.att_context_style, "regular", "chunked_limited")
    require("encoder.conv_norm_type", config.conv_norm_type, "batch_norm", "layer_norm")
    require("encoder.global_tokens", config.global_tokens, 0)
    require("encoder.reduction", config.reduction, None)
    require("encoder.feat_out", config.feat_out, -1, config.d_model)
    require("encoder.subsampling_factor", config.subsampling_factor, 2, 4, 8, 16)
    for name in ("feat_in", "n_layers", "d_model", "n_heads", "ff_expansion_factor", "conv_kernel_size"):
        require_size(f"encoder.{name}", getattr(config, name))
    if config.d_model % config.n_heads:
        raise ModelUnreadable(f"encoder.d_model {config.d_model} is no multiple of n_heads {config.n_heads}")
    if config.is_local and min(config.att_context_size) < 1:
        raise ModelUnreadable(
            f"local attention needs a context, att_context_size is {config.att_context_size}"
        )
    return config


def _contexts(value: object) -> tuple[tuple[int, int], ...]:
    """The contexts that the encoder was trained for, the checkpoint's default first."""
    if not value:
        return ((-1, -1),)
    if not isinstance(value, Sequence):
        raise ModelUnreadable(f"encoder.att_context_size {value!r} is not a pair")
    pairs = value if isinstance(value[0], list) else [value]
    for pair in pairs:
        if len(pair) != 2:
            raise ModelUnreadable(f"encoder.att_context_size {pair} is not a pair")
    return tuple((int(left), int(right)) for left, right in pairs)


def _padding(value: object, encoder: Mapping[str, Any]) -> tuple[int, int] | None:
    if value is None:
        return None
    kernel = int(encoder.get("conv_kernel_size", 31))
    if value == "causal":
        return (kernel - 1, 0)
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise ModelUnreadable(f"encoder.conv_context_size {value!r} is not a pair")
    left, right = int(value[0]), int(value[1])
    if left + right + 1 != kernel:
        raise ModelUnreadable(f"encoder.conv_context_size {value} does not fit a kernel of {kernel}")
    return (left, right)
