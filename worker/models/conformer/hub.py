"""The Conformer and its features as transformers stores them: `encoder_config` of a `parakeet_encoder`, the
settings of its feature extractor, and the names of its tensors.

A key that is missing has transformers' default (5.24, models/parakeet/configuration_parakeet.py and
feature_extraction_parakeet.py). Reads no weights.
"""

import re
from collections.abc import Mapping
from typing import Any

from spool.errors import ModelUnreadable
from worker.models.configuration import require, require_number, require_size
from worker.models.conformer.config import (
    EncoderConfig,
    PreprocessorConfig,
    parse_encoder,
    parse_preprocessor,
)

IGNORED = re.compile(r"num_batches_tracked$|^preprocessor\.featurizer\.")
ENCODER_RENAMES = (
    (r"^encoder\.pre_encode\.conv\.", "encoder.subsampling.layers."),
    (r"^encoder\.pre_encode\.out\.", "encoder.subsampling.linear."),
    (r"^(encoder\..*)\.self_attn\.linear_([qkv])\.", r"\1.self_attn.\2_proj."),
    (r"^(encoder\..*)\.self_attn\.linear_out\.", r"\1.self_attn.o_proj."),
    (r"^(encoder\..*)\.self_attn\.linear_pos\.", r"\1.self_attn.relative_k_proj."),
    (r"^(encoder\..*)\.self_attn\.pos_bias_", r"\1.self_attn.bias_"),
    (r"^(encoder\..*)\.conv\.batch_norm\.", r"\1.conv.norm."),
)
DEFAULTS: Mapping[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 8,
    "intermediate_size": 4096,
    "attention_bias": True,
    "convolution_bias": True,
    "conv_kernel_size": 9,
    "subsampling_factor": 8,
    "subsampling_conv_channels": 256,
    "num_mel_bins": 80,
    "scale_input": True,
}


def encoder_of_hub(tree: Mapping[str, Any]) -> EncoderConfig:
    """The section `encoder_config`. Raises ModelUnreadable for what is not computed."""
    require("encoder_config.model_type", tree.get("model_type", "parakeet_encoder"), "parakeet_encoder")
    require("encoder_config.hidden_act", tree.get("hidden_act", "silu"), "silu", "swish")
    require("encoder_config.subsampling_conv_kernel_size", tree.get("subsampling_conv_kernel_size", 3), 3)
    require("encoder_config.subsampling_conv_stride", tree.get("subsampling_conv_stride", 2), 2)
    values = {name: tree.get(name, default) for name, default in DEFAULTS.items()}
    for name, value in values.items():
        if isinstance(DEFAULTS[name], bool):
            require(f"encoder_config.{name}", value, True, False)
        else:
            require_size(f"encoder_config.{name}", value)
    width, heads, kernel = (
        values[name] for name in ("hidden_size", "num_attention_heads", "conv_kernel_size")
    )
    if width % heads or kernel % 2 == 0:
        raise ModelUnreadable(
            f"encoder_config: hidden_size {width} must be a multiple of num_attention_heads {heads}, and "
            f"conv_kernel_size {kernel} odd"
        )
    require("encoder_config.num_key_value_heads", tree.get("num_key_value_heads", heads), heads)
    require("encoder_config.head_dim", tree.get("head_dim", width // heads), width // heads)
    return parse_encoder(
        {
            "feat_in": values["num_mel_bins"],
            "n_layers": values["num_hidden_layers"],
            "d_model": width,
            "n_heads": heads,
            "inner": values["intermediate_size"],
            "use_bias": values["attention_bias"],
            "conv_biases": (values["convolution_bias"], values["convolution_bias"]),
            "subsampling": "dw_striding",
            "subsampling_factor": values["subsampling_factor"],
            "subsampling_conv_channels": values["subsampling_conv_channels"],
            "conv_kernel_size": kernel,
            "xscaling": values["scale_input"],
        }
    )


def features_of_hub(tree: Mapping[str, Any], mels: int, name: str) -> PreprocessorConfig:
    """The settings of a feature extractor for an encoder that takes `mels` bands. `name`: what to call the
    settings. Raises ModelUnreadable for what is not computed."""
    bands = require_size(f"{name}.feature_size", tree.get("feature_size", mels))
    if bands != mels:
        raise ModelUnreadable(f"{name}.feature_size is {bands}, but config.json's num_mel_bins is {mels}")
    require(f"{name}.sampling_rate", tree.get("sampling_rate", 16_000), 16_000)
    window, hop, transform = (
        require_size(f"{name}.{key}", tree.get(key, default))
        for key, default in (("win_length", 400), ("hop_length", 160), ("n_fft", 512))
    )
    if window > transform or transform % 2:
        raise ModelUnreadable(
            f"{name}: a window of {window} samples does not fit an even n_fft of {transform}"
        )
    return parse_preprocessor(
        {
            "sample_rate": 16_000,
            "n_window_size": window,
            "n_window_stride": hop,
            "n_fft": transform,
            "features": bands,
            "preemph": require_number(f"{name}.preemphasis", tree.get("preemphasis", 0.97), least=-1.0),
            "normalize": "per_feature",
        }
    )
