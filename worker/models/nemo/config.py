"""The configuration of a NeMo model, read from its checkpoint and validated.

Reads the sections and keys of NeMo's `model_config.yaml`, which are also those of `config.json` in
`mlx-community/parakeet-*`. Fields have NeMo's names and defaults. A setting that this engine does not
implement is refused with an error that names it. Reads no weights.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import yaml

from spool.errors import ModelUnreadable


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

    @property
    def is_local(self) -> bool:
        """Whether attention reaches `att_context_size` frames and no further, in memory too."""
        return self.self_attention_model == "rel_pos_local_attn"

    @property
    def is_chunked(self) -> bool:
        """Whether attention reaches whole chunks, so that the encoder can run chunk by chunk."""
        return self.att_context_style == "chunked_limited" and self.att_context_size[1] >= 0

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


SUPPORTED_SAMPLE_RATE = 16_000
CONFIG_BYTES_MAX = 16 << 20
SIZE_MAX = 1 << 16  # of any one dimension: beyond it a configuration is broken, not large

Section = TypeVar("Section", PreprocessorConfig, EncoderConfig)
Config = TypeVar("Config")


def read_config(path: Path) -> ModelConfig:
    """Reads `config.json` or `model_config.yaml`. Raises ModelUnreadable naming the file and the cause."""
    try:
        raw = path.read_bytes()
    except OSError as cause:
        raise ModelUnreadable(
            f"{path}: the model's configuration cannot be read: {cause.strerror}"
        ) from cause
    return parse_config(raw, str(path))


def parse_config(raw: bytes, name: str) -> ModelConfig:
    """Parses the text of a configuration."""
    return built_config(raw, name, model_config)


def parse_tree(raw: bytes, name: str) -> Mapping[str, Any]:
    """The sections of a configuration; JSON is tried first, then YAML (safe loader: data alone)."""
    if len(raw) > CONFIG_BYTES_MAX:
        raise ModelUnreadable(f"{name}: a configuration of {len(raw)} bytes is no model's configuration")
    try:
        tree = json.loads(raw) if raw.lstrip().startswith(b"{") else yaml.safe_load(raw)
    except (ValueError, yaml.YAMLError, RecursionError) as cause:
        raise ModelUnreadable(f"{name}: not a readable configuration: {cause}") from cause
    if not isinstance(tree, Mapping):
        raise ModelUnreadable(f"{name}: a model's configuration is a mapping, this is not")
    return tree


def built_config(raw: bytes, name: str, build: Callable[[Mapping[str, Any]], Config]) -> Config:
    """What `build` makes of a configuration's sections. Raises ModelUnreadable naming the file and the
    cause."""
    tree = parse_tree(raw, name)
    try:
        return build(tree)
    except ModelUnreadable as cause:
        raise ModelUnreadable(f"{name}: {cause.message}") from cause
    except (TypeError, ValueError, KeyError, AttributeError) as cause:
        raise ModelUnreadable(f"{name}: a setting is missing or of the wrong kind: {cause}") from cause


def model_config(tree: Mapping[str, Any]) -> ModelConfig:
    """Builds the dataclasses from NeMo's configuration tree. Raises ModelUnreadable for what is not
    computed."""
    if "quantization" in tree:
        raise ModelUnreadable("quantized weights are not supported; take the model in 16 bit")
    if isinstance(tree.get("sortformer_modules"), Mapping):
        raise ModelUnreadable("a Sortformer tells speakers apart and transcribes nothing; use it to diarize")
    for section in ("preprocessor", "encoder", "decoder"):
        if not isinstance(tree.get(section), Mapping):
            raise ModelUnreadable(f"the configuration has no section `{section}`")
    preprocessor, encoder = parse_preprocessor(tree["preprocessor"]), parse_encoder(tree["encoder"])
    is_transducer = isinstance(tree.get("joint"), Mapping)
    return ModelConfig(
        preprocessor=preprocessor,
        encoder=encoder,
        prediction=_prediction(tree["decoder"]) if is_transducer else None,
        joint=_joint(tree) if is_transducer else None,
        has_ctc=not is_transducer or isinstance(tree.get("aux_ctc"), Mapping),
        vocabulary=_vocabulary(tree),
        tokenizer=tree.get("tokenizer") or {},
    )


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


def _prediction(tree: Mapping[str, Any]) -> PredictionConfig:
    require("decoder.normalization_mode", tree.get("normalization_mode"), None)
    require("decoder.blank_as_pad", tree.get("blank_as_pad", True), True)
    network = tree["prednet"]
    hidden = require_size("decoder.prednet.pred_hidden", network["pred_hidden"])
    require("decoder.prednet.rnn_hidden_size", network.get("rnn_hidden_size") or hidden, hidden, -1)
    return PredictionConfig(
        pred_hidden=hidden,
        pred_rnn_layers=require_size("decoder.prednet.pred_rnn_layers", network.get("pred_rnn_layers", 1)),
    )


def _joint(tree: Mapping[str, Any]) -> JointConfig:
    joint = tree["joint"]
    extra = int(joint.get("num_extra_outputs") or 0)
    durations = (tree.get("decoding") or {}).get("durations") or (tree.get("model_defaults") or {}).get(
        "tdt_durations"
    )
    if extra and (not durations or len(durations) != extra):
        raise ModelUnreadable(f"the joint has {extra} duration outputs, the configuration names {durations}")
    network = joint["jointnet"]
    require("joint.jointnet.activation", network.get("activation", "relu"), "relu", "sigmoid", "tanh")
    return JointConfig(
        joint_hidden=require_size("joint.jointnet.joint_hidden", network["joint_hidden"]),
        activation=str(network.get("activation", "relu")),
        durations=tuple(int(duration) for duration in durations or ()) if extra else (),
    )


def _vocabulary(tree: Mapping[str, Any]) -> tuple[str, ...] | None:
    auxiliary = (tree.get("aux_ctc") or {}).get("decoder") or {}
    for section in (tree.get("joint") or {}, tree["decoder"], auxiliary, tree):
        words = section.get("vocabulary") or section.get("labels")
        if words:
            return tuple(str(word) for word in words)
    return None


def require(name: str, value: object, *allowed: object) -> None:
    """Raises ModelUnreadable, naming the setting, where its value is none of those allowed."""
    if value not in allowed:
        choices = " or ".join(repr(choice) for choice in allowed)
        raise ModelUnreadable(f"{name} is {value!r}; this engine computes {choices}")


def require_size(name: str, value: object) -> int:
    """The value, a size of at least 1. Raises ModelUnreadable, naming the setting."""
    if type(value) is not int or not 1 <= value <= SIZE_MAX:
        raise ModelUnreadable(f"{name} is {value!r}, not a size of 1 to {SIZE_MAX}")
    return value
