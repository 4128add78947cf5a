"""Canary as transformers stores it: a folder whose `model_type` is canary. The same network as in NeMo's
archive under other names, and another order of positions.

A key that is missing has transformers' default (5.24, models/canary/configuration_canary.py).
"""

import re
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from spool.errors import ModelUnreadable, WeightsMismatch
from worker.models.artifacts.hub_folder import CONFIG, TOKENIZER, HubFolder, is_hub_folder
from worker.models.artifacts.safetensors import Weights
from worker.models.attention.conformer_model import install_parts
from worker.models.attention.generation import Generation
from worker.models.attention.nemo_decoder import (
    DECODER_RENAMES,
    POSITIONS,
    DecoderConfig,
    DecoderParts,
    NemoDecoder,
    decoder_of_hub,
    halve_positions,
)
from worker.models.base import ModelFiles
from worker.models.canary.config import CanaryConfig
from worker.models.canary.model import CanaryModel
from worker.models.canary.tokenizer import TRAINED
from worker.models.configuration import in_file, require
from worker.models.conformer.frames import FrameEncoder
from worker.models.conformer.hub import ENCODER_RENAMES, IGNORED, encoder_of_hub, features_of_hub
from worker.models.front_ends.log_mel import FeatureExtractor
from worker.models.tokenizers.hub import prompt_pieces
from worker.models.weights import NameMap, default_dtype

# A table of positions beside the weights is looked at, and made anew.
TABLE = re.compile(r"^model\.decoder\.(pos_emb|embed_positions|position_embedding)\.\w+$")
NAMES = NameMap(
    re.compile(f"{IGNORED.pattern}|{TABLE.pattern}"),
    (*ENCODER_RENAMES, *DECODER_RENAMES, (r"^(?!proj_out)", "model.")),
)
ENCODER = {"num_hidden_layers": 32, "num_mel_bins": 128, "scale_input": False}
BEFORE = frozenset({"d_model", "decoder_layers", "decoder_ffn_dim", "max_target_positions"})
BEFORE_NAMES = re.compile(r"layernorm_embedding|self_attn_layer_norm|encoder_attn_layer_norm|\.out_proj\.")
TOLERANCE = 1e-3  # of a table in 16 bit


class CanaryFolder:
    """The family of NeMo's attention encoder-decoders, in the hub's layout."""

    def matches(self, files: ModelFiles) -> bool:
        return is_hub_folder(files, "canary")

    def load(self, files: ModelFiles, dtype: mx.Dtype | None = None) -> CanaryModel:
        folder, kind = HubFolder(files.path), dtype or default_dtype()
        with in_file(files.path / CONFIG):
            config, parts = canary_config(folder.config, folder.features)
        generation = Generation(folder, folder.config.get("decoder_config") or {}, parts.rows)
        ends, place = generation.end_rule.ends, str(files.path / TOKENIZER)
        tokenizer = prompt_pieces(folder.tokenizer, parts.rows, ends, place, TRAINED)
        weights, source = folder.weights, str(folder.weights_path)
        check_layout(weights, parts.config, source)
        encoder, tensors = install_parts(config.encoder, parts, weights, kind, source, NAMES)
        tensors[POSITIONS] = halve_positions(parts.config).astype(kind)
        head = NemoDecoder(parts, tensors, kind, ends[0])
        model = CanaryModel(
            config,
            FrameEncoder(FeatureExtractor(config.preprocessor), encoder, kind),
            head,
            tokenizer,
            rows=parts.rows,
            name=files.name,
            files=folder.digests(generation="generation_config.json"),
            generation=generation,
        )
        model.bits = folder.bits
        return model


def canary_config(tree: Mapping[str, Any], features: Mapping[str, Any]) -> tuple[CanaryConfig, DecoderParts]:
    """The configuration, and what a file holds of the decoder. Raises ModelUnreadable for what is not
    computed."""
    if old := sorted(BEFORE & tree.keys()):
        raise ModelUnreadable(
            f"has {old[0]}, so it was converted before transformers 5.24, whose order of positions is not "
            "known; convert it anew, or take the .nemo file"
        )
    section = tree.get("encoder_config")
    encoder = encoder_of_hub(ENCODER if section is None else section)
    own = tree.get("decoder_config") or {}
    parts = decoder_of_hub(
        own,
        "decoder_config.",
        head_dim=128,
        tied=tree.get("tie_word_embeddings", True),
        stored_positions=False,
    )
    require("tie_word_embeddings", tree.get("tie_word_embeddings", True), True, False)
    require("vocab_size", tree.get("vocab_size", 16384), parts.rows)
    require("decoder_config.hidden_size", parts.config.hidden_size, encoder.d_model)
    config = CanaryConfig(
        preprocessor=features_of_hub(features, encoder.feat_in, "feature_extractor"),
        encoder=encoder,
        decoder=parts.config,
        prompt_format="canary2",
        defaults={},
        tokenizer={},
    )
    return config, parts


def check_layout(weights: Weights, config: DecoderConfig, source: str) -> None:
    """Raises WeightsMismatch for names of before transformers 5.24, and for a table of positions in another
    order than its: with it the weights would give other sums."""
    for name in weights.shapes:
        if BEFORE_NAMES.search(name):
            raise WeightsMismatch(
                f"{source}: {name} is a name of before transformers 5.24, whose order of positions is "
                "not known; convert the model anew, or take the .nemo file"
            )
        if TABLE.match(name):
            stored, own = weights.read(name).astype(mx.float32), halve_positions(config)
            scales = (1.0, config.hidden_size**0.5)
            if stored.shape != own.shape or not any(
                bool(mx.allclose(stored, own * scale, atol=TOLERANCE)) for scale in scales
            ):
                raise WeightsMismatch(
                    f"{source}: {name} does not hold all sines and then all cosines, as transformers "
                    "computes positions; take the .nemo file"
                )
