"""The configuration of a Sortformer, from NeMo's `model_config.yaml`.

A setting that is not computed here is refused by its name. Reads no weights and needs no MLX.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from spool.errors import ModelUnreadable
from worker.models.configuration import (
    build_config,
    build_transformer,
    require,
    require_sections,
    require_size,
)
from worker.models.conformer.config import (
    EncoderConfig,
    PreprocessorConfig,
    parse_encoder,
    parse_preprocessor,
)

FRAMES_MAX = 1 << 14


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """The transformer behind the encoder: norms after each part, ReLU, no positions."""

    num_layers: int
    hidden_size: int
    inner_size: int
    num_attention_heads: int


@dataclass(frozen=True, slots=True)
class StreamingOptions:
    """How a recording is followed; names and defaults are those of NeMo's `sortformer_modules`.

    Lengths are frames of 80 ms: what the speaker cache and the queue hold, the new frames of a step and what
    it hears on both sides of them, and how many leave the queue at once. `spkcache_sil_frames_per_spk` places
    a speaker stand for silence. The rest decides which frames the cache keeps (`cache.keep_frames`).
    """

    spkcache_len: int = 188
    fifo_len: int = 0
    chunk_len: int = 188
    spkcache_update_period: int = 188
    chunk_left_context: int = 1
    chunk_right_context: int = 1
    spkcache_sil_frames_per_spk: int = 3
    pred_score_threshold: float = 0.25
    scores_boost_latest: float = 0.05
    sil_threshold: float = 0.2
    strong_boost_rate: float = 0.75
    weak_boost_rate: float = 1.5
    min_pos_scores_rate: float = 0.5


PRESETS: dict[str, dict[str, int]] = {
    "low": {
        "chunk_len": 6,
        "chunk_right_context": 7,
        "fifo_len": 188,
        "spkcache_update_period": 144,
        "spkcache_len": 188,
    },
    "high": {
        "chunk_len": 124,
        "chunk_right_context": 1,
        "fifo_len": 124,
        "spkcache_update_period": 124,
        "spkcache_len": 188,
    },
    "very_high": {
        "chunk_len": 340,
        "chunk_right_context": 40,
        "fifo_len": 40,
        "spkcache_update_period": 300,
        "spkcache_len": 188,
    },
}
"""The settings on NVIDIA's model cards, by latency: 1.04, 10 and 30.4 s. The last is the best and the
cheapest: it hears 1.8 frames for each new one, `low` 65."""


@dataclass(frozen=True, slots=True)
class SortformerConfig:
    """One model. streaming: None for a model that was not trained to follow a recording (v1)."""

    preprocessor: PreprocessorConfig
    encoder: EncoderConfig
    transformer: TransformerConfig
    speakers: int
    streaming: StreamingOptions | None

    @property
    def frame_seconds(self) -> float:
        """Seconds from one frame to the next."""
        return self.preprocessor.window_stride * self.encoder.subsampling_factor


def is_sortformer(tree: Mapping[str, Any]) -> bool:
    """Whether a configuration is a Sortformer's."""
    return isinstance(tree.get("sortformer_modules"), Mapping)


def parse_sortformer(raw: bytes, name: str) -> SortformerConfig:
    """Parses a configuration's text. Raises ModelUnreadable naming the file and the setting."""
    return build_config(raw, name, sortformer_config)


def sortformer_config(tree: Mapping[str, Any]) -> SortformerConfig:
    """Builds the dataclasses from NeMo's tree. Raises ModelUnreadable for what is not computed."""
    if not is_sortformer(tree):
        target = str(tree.get("target") or "another family").rpartition(".")[2]
        raise ModelUnreadable(
            f"the configuration has no section `sortformer_modules`: this is no Sortformer, but {target}"
        )
    require_sections(tree, "preprocessor", "encoder", "transformer_encoder")
    modules = tree["sortformer_modules"]
    speakers = require_size("sortformer_modules.num_spks", modules.get("num_spks", 4))
    require("max_num_of_spks", tree.get("max_num_of_spks", speakers), speakers)
    encoder, transformer = parse_encoder(tree["encoder"]), _transformer(tree["transformer_encoder"])
    require("sortformer_modules.fc_d_model", modules.get("fc_d_model", 512), encoder.d_model)
    require("sortformer_modules.tf_d_model", modules.get("tf_d_model", 192), transformer.hidden_size)
    require("encoder.subsampling_factor", encoder.subsampling_factor, 8)
    require("encoder.causal_downsampling", encoder.causal_downsampling, False)
    preprocessor = parse_preprocessor(tree["preprocessor"])
    require("encoder.feat_in", encoder.feat_in, preprocessor.features)
    streams = bool(tree.get("streaming_mode", False))
    return SortformerConfig(
        preprocessor,
        encoder,
        transformer,
        speakers,
        streaming_options(modules, speakers) if streams else None,
    )


def streaming_options(modules: Mapping[str, Any], speakers: int) -> StreamingOptions:
    """The streaming constants of `sortformer_modules`. Raises ModelUnreadable, naming one that cannot be."""
    known = {field.name: field.type for field in fields(StreamingOptions)}
    values = {name: modules[name] for name in known if name in modules}
    options = StreamingOptions(**values)
    least = {"chunk_len": 1, "spkcache_update_period": 1}
    least["spkcache_len"] = (1 + int(options.spkcache_sil_frames_per_spk)) * speakers
    for name, kind in known.items():
        value = getattr(options, name)
        if kind is int and not (type(value) is int and least.get(name, 0) <= value <= FRAMES_MAX):
            raise ModelUnreadable(
                f"sortformer_modules.{name} is {value!r}, not a whole number of {least.get(name, 0)} to "
                f"{FRAMES_MAX}"
            )
        if kind is float and not (type(value) in (int, float) and 0 <= value <= 100):
            raise ModelUnreadable(f"sortformer_modules.{name} is {value!r}, not a number of 0 to 100")
    if not 0 < options.pred_score_threshold < 1:
        raise ModelUnreadable("sortformer_modules.pred_score_threshold has to lie between 0 and 1")
    return options


def _transformer(tree: Mapping[str, Any]) -> TransformerConfig:
    name = "transformer_encoder"
    require(f"{name}.hidden_act", tree.get("hidden_act", "relu"), "relu")
    require(f"{name}.pre_ln", tree.get("pre_ln", False), False)
    require(f"{name}.mask_future", tree.get("mask_future", False), False)
    return build_transformer(TransformerConfig, name, tree)
