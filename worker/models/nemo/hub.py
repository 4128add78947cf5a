"""Parakeet as transformers stores it: a folder whose `model_type` is parakeet_ctc, parakeet_rnnt or
parakeet_tdt. The same network as NeMo's, under other names.

A key that is missing has transformers' default (5.24, models/parakeet/configuration_parakeet.py).
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from spool.errors import ModelUnreadable
from worker.models.artifacts.hub_folder import CONFIG, TOKENIZER, HubFolder, is_hub_folder
from worker.models.base import ModelFiles
from worker.models.configuration import in_file, require, require_size
from worker.models.conformer.hub import ENCODER_RENAMES, IGNORED, encoder_of_hub, features_of_hub
from worker.models.heads.config import JointConfig, PredictionConfig
from worker.models.nemo.config import ModelConfig
from worker.models.nemo.load import build_model
from worker.models.nemo.model import NemoModel
from worker.models.tokenizers.hub import HubPieces
from worker.models.weights import NameMap, default_dtype

PAD = "<pad>"
TYPES = ("parakeet_ctc", "parakeet_rnnt", "parakeet_tdt")
VOCABULARY = {"parakeet_ctc": 1025, "parakeet_rnnt": 8193, "parakeet_tdt": 8193}
NAMES = NameMap(
    IGNORED,
    (
        *ENCODER_RENAMES,
        (r"^decoder\.decoder_layers\.0\.", "ctc_head."),
        (r"^decoder\.prediction\.embed\.", "decoder.embedding."),
        (r"^decoder\.prediction\.dec_rnn\.lstm\.", "decoder.lstm."),
        (r"^joint\.enc\.", "encoder_projector."),
        (r"^joint\.pred\.", "decoder.decoder_projector."),
        (r"^joint\.joint_net\.2\.", "joint.head."),
    ),
)


class Parakeet:
    """The family of NeMo's FastConformer, in the hub's layout."""

    def matches(self, files: ModelFiles) -> bool:
        return is_hub_folder(files, *TYPES)

    def load(self, files: ModelFiles, dtype: mx.Dtype | None = None) -> NemoModel:
        folder = HubFolder(files.path)
        with in_file(files.path / CONFIG):
            labels, config = parakeet_config(folder.config, folder.features)
        tokenizer = HubPieces(folder.tokenizer, labels, labels + 1, str(files.path / TOKENIZER))
        check_special_tokens(folder, labels)
        weights, source = folder.weights, str(folder.weights_path)
        return build_model(
            config, tokenizer, weights, dtype or default_dtype(), files.name, source, folder.digests(), NAMES
        )


def parakeet_config(tree: Mapping[str, Any], features: Mapping[str, Any]) -> tuple[int, ModelConfig]:
    """The labels without blank, and the configuration. Raises ModelUnreadable for what is not computed."""
    kind = tree["model_type"]
    labels = require_size("vocab_size", tree.get("vocab_size", VOCABULARY[kind])) - 1
    encoder = encoder_of_hub(tree.get("encoder_config") or {})
    is_transducer = kind != "parakeet_ctc"
    # A transducer's pad is a token of the vocabulary, or none.
    blank = "blank_token_id" if is_transducer else "pad_token_id"
    if tree.get(blank, labels if tree.get("vocab_size") is None else VOCABULARY[kind] - 1) != labels:
        raise ModelUnreadable(
            f"{blank} is {tree.get(blank)!r}; this engine reads blank last, which is {labels}"
        )
    return labels, ModelConfig(
        preprocessor=features_of_hub(features, encoder.feat_in, "feature_extractor"),
        encoder=encoder,
        prediction=_prediction(tree) if is_transducer else None,
        joint=_joint(tree, kind) if is_transducer else None,
        has_ctc=not is_transducer,
        vocabulary=None,
        tokenizer={},
    )


def check_special_tokens(folder: HubFolder, labels: int) -> None:
    """Raise ModelUnreadable if pad, blank or decoder are not where the folder says they are. Another model's
    tokenizer may have as many tokens."""
    kind, processor = folder.config["model_type"], folder.optional("processor_config.json")
    decoder = processor.get("decoder_type")
    if decoder is not None and kind != f"parakeet_{decoder}":
        raise ModelUnreadable(
            f"{folder.path / 'processor_config.json'}: decoder_type is {decoder!r}, but {CONFIG} has a "
            f"{kind}: it is another model's"
        )
    stated = [("pad_token", folder.tokenizer_config.get("pad_token"), folder.config.get("pad_token_id"))]
    if kind != "parakeet_ctc":
        stated.append(("blank_token", processor.get("blank_token"), labels))
    for role, token, wanted in stated:
        piece = token.get("content") if isinstance(token, dict) else token
        if not isinstance(piece, str) or wanted is None:
            continue
        found = folder.tokenizer.token_to_id(piece)
        if found != wanted:
            has = f"no token {piece}" if found is None else f"{piece} at {found}"
            raise ModelUnreadable(
                f"{folder.path / TOKENIZER}: the tokenizer has {has}, but the model's {role} is token "
                f"{wanted}: it is another model's"
            )
    pad, specials = folder.config.get("pad_token_id"), folder.tokenizer.get_added_tokens_decoder()
    # A TDT's tokenizer may have an RNNT's blank as well, but an RNNT's pad is its blank.
    for place, special in specials.items():
        if special.special and special.content == PAD and pad not in (None, place):
            raise ModelUnreadable(
                f"{folder.path / TOKENIZER}: the tokenizer has {PAD} at {place}, but the model's pad is "
                f"token {pad}: it is another model's"
            )


def _prediction(tree: Mapping[str, Any]) -> PredictionConfig:
    return PredictionConfig(
        require_size("decoder_hidden_size", tree.get("decoder_hidden_size", 640)),
        require_size("num_decoder_layers", tree.get("num_decoder_layers", 2)),
        starts_with_blank=True,
    )


def _joint(tree: Mapping[str, Any], kind: str) -> JointConfig:
    activation = tree.get("hidden_act", "relu")
    require("hidden_act", activation, "relu", "sigmoid", "tanh")
    durations = tree.get("durations", [0, 1, 2, 3, 4]) if kind == "parakeet_tdt" else []
    if not isinstance(durations, list) or any(type(each) is not int or each < 0 for each in durations):
        raise ModelUnreadable(f"durations are {durations!r}, not a list of frames")
    return JointConfig(
        require_size("decoder_hidden_size", tree.get("decoder_hidden_size", 640)),
        activation,
        tuple(durations),
        max_symbols=require_size("max_symbols_per_step", tree.get("max_symbols_per_step", 10)),
    )
