"""The configuration of a Canary model, from NeMo's `model_config.yaml` (or the same as `config.json`).

A setting that is not computed here is refused by its name. Reads no weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from worker.models.attention.nemo_decoder import DecoderConfig, DecoderParts
from worker.models.attention.prompt_slots import Format
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

GENERATION_DELTA = 50
ROUNDED_TO = 8


@dataclass(frozen=True, slots=True)
class CanaryConfig:
    """One model. defaults: values of prompt slots. delta: how many more tokens than encoder frames an answer
    may have with its prompt."""

    preprocessor: PreprocessorConfig
    encoder: EncoderConfig
    decoder: DecoderConfig
    prompt_format: Format
    defaults: Mapping[str, str]
    tokenizer: Mapping[str, Any]
    delta: int = GENERATION_DELTA

    @property
    def frame_seconds(self) -> float:
        """Seconds from one encoder frame to the next."""
        return self.preprocessor.window_stride * self.encoder.subsampling_factor

    def parts(self, vocabulary: int) -> DecoderParts:
        """What a file of NeMo's holds of the decoder; its head's rows round the vocabulary up."""
        width, heads = self.decoder.hidden_size, self.decoder.num_attention_heads
        is_projected = self.encoder.d_model != width
        projected = self.encoder.d_model if is_projected else 0
        return DecoderParts(self.decoder, round_vocabulary(vocabulary), width // heads, projected)


def round_vocabulary(size: int) -> int:
    """Rows of the head: the vocabulary rounded up to a multiple of 8."""
    return -(-size // ROUNDED_TO) * ROUNDED_TO


def is_canary(tree: Mapping[str, Any]) -> bool:
    """Whether a configuration is one of NeMo's attention encoder-decoders."""
    return isinstance(tree.get("transf_decoder"), Mapping) and isinstance(tree.get("encoder"), Mapping)


def parse_canary(raw: bytes, name: str) -> CanaryConfig:
    """Parses a configuration's text. Raises ModelUnreadable naming the file and the setting."""
    return build_config(raw, name, canary_config)


def canary_config(tree: Mapping[str, Any]) -> CanaryConfig:
    """Builds the dataclasses from NeMo's tree. Raises ModelUnreadable for what is not computed."""
    require_sections(tree, "preprocessor", "encoder", "transf_decoder", "head", "tokenizer")
    require("prompt_format", tree.get("prompt_format"), "canary", "canary2")
    layers = (tree.get("transf_encoder") or {}).get("num_layers", 0)
    require("transf_encoder.num_layers", layers, 0)
    require("head.num_layers", tree["head"].get("num_layers", 1), 1)
    require("head.log_softmax", tree["head"].get("log_softmax", True), True)
    config = CanaryConfig(
        preprocessor=parse_preprocessor(tree["preprocessor"]),
        encoder=parse_encoder(tree["encoder"]),
        decoder=_decoder(tree["transf_decoder"]),
        prompt_format=tree["prompt_format"],
        defaults=_defaults(tree.get("prompt_defaults")),
        tokenizer=tree["tokenizer"],
        delta=_delta(tree.get("decoding") or {}),
    )
    hidden = (tree.get("model_defaults") or {}).get("lm_dec_hidden", config.decoder.hidden_size)
    require("model_defaults.lm_dec_hidden", hidden, config.decoder.hidden_size)
    return config


def _decoder(section: Mapping[str, Any]) -> DecoderConfig:
    tree = section["config_dict"]
    name = "transf_decoder.config_dict"
    require(f"{name}.hidden_act", tree.get("hidden_act", "relu"), "relu")
    require(f"{name}.pre_ln", tree.get("pre_ln", False), True)
    require("transf_decoder.pre_ln_final_layer_norm", section.get("pre_ln_final_layer_norm", True), True)
    require(f"{name}.learn_positional_encodings", tree.get("learn_positional_encodings", False), False)
    require(f"{name}.num_token_types", tree.get("num_token_types", 0), 0)
    return build_transformer(DecoderConfig, name, tree)


def _defaults(turns: object) -> dict[str, str]:
    """The slots of the user's turn."""
    if not isinstance(turns, list):
        return {}
    for turn in turns:
        if isinstance(turn, Mapping) and turn.get("role") == "user":
            return {str(key): str(value or "") for key, value in (turn.get("slots") or {}).items()}
    return {}


def _delta(decoding: Mapping[str, Any]) -> int:
    for section in ("beam", "greedy"):
        value = (decoding.get(section) or {}).get("max_generation_delta")
        if value is not None:
            return require_size(f"decoding.{section}.max_generation_delta", value)
    return GENERATION_DELTA
