"""The configuration of a NeMo model, read from its checkpoint and validated.

Reads the sections and keys of NeMo's `model_config.yaml`, which are also those of `config.json` in
`mlx-community/parakeet-*`. Fields have NeMo's names and defaults. A setting that this engine does not
implement is refused with an error that names it. Reads no weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spool.errors import ModelUnreadable
from worker.models.configuration import build_config, require, require_sections, require_size
from worker.models.conformer.config import (
    EncoderConfig,
    PreprocessorConfig,
    parse_encoder,
    parse_preprocessor,
)
from worker.models.heads.config import JointConfig, PredictionConfig


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
    return build_config(raw, name, model_config)


def model_config(tree: Mapping[str, Any]) -> ModelConfig:
    """Builds the dataclasses from NeMo's configuration tree. Raises ModelUnreadable for what is not
    computed."""
    if isinstance(tree.get("sortformer_modules"), Mapping):
        raise ModelUnreadable("a Sortformer tells speakers apart and transcribes nothing; use it to diarize")
    if "model_type" in tree and "preprocessor" not in tree:
        raise ModelUnreadable(f"model_type is {tree['model_type']!r}; no family of models has it here")
    require_sections(tree, "preprocessor", "encoder", "decoder")
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
