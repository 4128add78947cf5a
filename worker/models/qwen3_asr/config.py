"""Qwen3-ASR's sizes and tokens by its `config.json` and `generation_config.json`.

Both layouts are read: that of transformers, and the original one, which nests everything under
`thinker_config`. A missing key has transformers' default (5.24.0, configuration_qwen3_asr.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spool.errors import ModelUnreadable
from worker.models.attention.audio_tower import CHUNK_FRAMES, AudioSizes
from worker.models.attention.causal_blocks import CausalSizes
from worker.models.configuration import (
    build_sizes,
    require,
    require_multiple,
    require_number,
    require_size,
    require_tokens,
    section_of,
)

MODEL_TYPE = "qwen3_asr"
ALIGNER = "Qwen3ASRForTokenClassification"
ENDS = (151643, 151645)
MAX_NEW_TOKENS = 512
# Where the configuration has no section for the text model at all.
TEXT = {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16}
TEXT |= {"num_key_value_heads": 8, "max_position_embeddings": 65536}


@dataclass(frozen=True, slots=True)
class QwenConfig:
    """Sizes, and the tokens that the network knows by their numbers. tied: logits are made with the
    embedding. ends: the tokens that end an answer; limit: the longest one, end included. classes: of an
    aligner, None for a model that transcribes, 0 where the configuration does not say."""

    audio: AudioSizes
    text: CausalSizes
    epsilon: float
    theta: float
    tied: bool
    audio_token: int
    timestamp_token: int
    ends: tuple[int, ...]
    limit: int
    length_penalty: float
    classes: int | None
    class_bias: bool


def parse_qwen(config: Mapping[str, Any], generation: Mapping[str, Any]) -> QwenConfig:
    """Raises ModelUnreadable, naming the setting that is not computed or contradicts another."""
    top = section_of(config, "thinker_config") if "thinker_config" in config else config
    audio = section_of(top, "audio_config", {})
    text = {**section_of(top, "text_config", TEXT)}
    if text.get("num_key_value_heads", 0) is None:
        text["num_key_value_heads"] = text.get("num_attention_heads", CausalSizes().num_attention_heads)
    rope = section_of(text, "rope_parameters" if text.get("rope_parameters") else "rope_scaling", {})
    _require_variants(audio, text, rope)
    sizes = build_sizes(AudioSizes, "audio_config", audio), build_sizes(CausalSizes, "text_config", text)
    _check_sizes(*sizes)
    return QwenConfig(
        *sizes,
        epsilon=require_number("text_config.rms_norm_eps", text.get("rms_norm_eps", 1e-6)),
        theta=require_number("rope_theta", rope.get("rope_theta", text.get("rope_theta", 10_000.0))),
        tied=bool(top.get("tie_word_embeddings", text.get("tie_word_embeddings", True))),
        audio_token=require_tokens("audio_token_id", top.get("audio_token_id", 151676))[0],
        timestamp_token=require_tokens("timestamp_token_id", top.get("timestamp_token_id", 151705))[0],
        ends=require_tokens(
            "eos_token_id", generation.get("eos_token_id", top.get("eos_token_id", list(ENDS)))
        ),
        limit=require_size("max_new_tokens", generation.get("max_new_tokens", MAX_NEW_TOKENS)),
        length_penalty=require_number("length_penalty", generation.get("length_penalty", 1.0), least=-100.0),
        classes=_classes(config, top),
        class_bias=bool(top.get("token_classification_bias", False)),
    )


def _require_variants(audio: Mapping[str, Any], text: Mapping[str, Any], rope: Mapping[str, Any]) -> None:
    require("audio_config.n_window", audio.get("n_window", CHUNK_FRAMES // 2), CHUNK_FRAMES // 2)
    require("audio_config.activation_function", audio.get("activation_function", "gelu"), "gelu")
    require("text_config.hidden_act", text.get("hidden_act", "silu"), "silu")
    require("text_config.attention_bias", text.get("attention_bias", False), False)
    require("text_config.use_sliding_window", text.get("use_sliding_window", False), False)
    # Three equal positions for each token: plain rotation.
    kind = rope.get("rope_type", rope.get("type", "default"))
    require("text_config.rope_parameters.rope_type", kind, "default", "mrope")


def _check_sizes(audio: AudioSizes, text: CausalSizes) -> None:
    require_multiple("audio_config.d_model", audio.d_model, 2, audio.encoder_attention_heads)
    require_multiple("audio_config.n_window_infer", audio.n_window_infer, CHUNK_FRAMES)
    require_multiple("text_config.num_attention_heads", text.num_attention_heads, text.num_key_value_heads)
    require_multiple("text_config.head_dim", text.head_dim, 2)
    if audio.output_dim != text.hidden_size:
        raise ModelUnreadable(
            f"audio_config.output_dim is {audio.output_dim}, text_config.hidden_size {text.hidden_size}; "
            "they are one width"
        )


def is_aligner(config: Mapping[str, Any]) -> bool:
    """Whether `architectures` says that a model aligns."""
    kinds = config.get("architectures")
    return isinstance(kinds, list) and kinds[:1] == [ALIGNER]


def _classes(config: Mapping[str, Any], top: Mapping[str, Any]) -> int | None:
    if not is_aligner(config) and "forced_aligner" not in str(top.get("model_type")):
        return None
    labels = top.get("id2label")
    stated = top.get("num_labels", top.get("classify_num", len(labels) if labels else 0))
    return require_size("num_labels", stated) if stated else 0
