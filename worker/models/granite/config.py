"""The configuration of Granite Speech 5 TurboCTC, with transformers' names and defaults. Reads no weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spool.errors import ModelUnreadable
from worker.models.configuration import require, require_size
from worker.models.conformer.config import EncoderConfig
from worker.models.front_ends.delta_mel import RATE, DeltaMel

MODEL_TYPE = "granite_speech5_ctc"
HOP_MAX = 1000
FLOOR_MAX = 100.0

Tree = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GraniteConfig:
    """One model. blank: its unit; is_tied: the head is the encoder's own output layer."""

    features: DeltaMel
    encoder: EncoderConfig
    vocabulary: int
    blank: int
    is_tied: bool

    @property
    def frame_seconds(self) -> float:
        """Seconds from one encoder frame to the next."""
        return (2 * self.features.hop << len(self.encoder.pooled_layers)) / RATE


def parse_granite(tree: Tree, features: Tree) -> GraniteConfig:
    """Builds the dataclasses from config.json and the feature extractor's settings. Raises ModelUnreadable
    for what is not computed and for what contradicts itself."""
    sizes = tree.get("encoder_config", {})
    if not isinstance(sizes, Mapping):
        raise ModelUnreadable("encoder_config is no section of settings")
    front, encoder = _parse_features(features), _parse_encoder(sizes)
    vocabulary = require_size("vocab_size", tree.get("vocab_size", 16_384))
    require("encoder_config.vocab_size", sizes.get("vocab_size", 16_384), vocabulary)
    require("tie_word_embeddings", tree.get("tie_word_embeddings", True), True, False)
    require("encoder_config.attention_bias", sizes.get("attention_bias", True), True, False)
    blank = tree.get("pad_token_id", 0)
    if type(blank) is not int or not 0 <= blank < vocabulary:
        raise ModelUnreadable(f"pad_token_id, which is blank, is {blank!r} in a vocabulary of {vocabulary}")
    if encoder.feat_in != front.width:
        raise ModelUnreadable(
            f"encoder_config.num_mel_bins is {encoder.feat_in // 4}, that of the features is {front.mels}"
        )
    return GraniteConfig(front, encoder, vocabulary, blank, bool(tree.get("tie_word_embeddings", True)))


def _parse_features(tree: Tree) -> DeltaMel:
    require("sampling_rate", tree.get("sampling_rate", RATE), RATE)
    keys = {"mels": "num_mel_bins", "transform": "n_fft", "window": "win_length", "hop": "hop_length"}
    keys |= {"slope": "delta_win_length"}
    usual = DeltaMel()
    sizes = {name: require_size(key, tree.get(key, getattr(usual, name))) for name, key in keys.items()}
    floor = tree.get("logmel_floor_db", usual.floor)
    if not isinstance(floor, int | float) or not 0 < floor <= FLOOR_MAX:
        raise ModelUnreadable(f"logmel_floor_db is {floor!r}, not a number of decades up to {FLOOR_MAX:g}")
    if sizes["window"] > sizes["transform"] or sizes["transform"] % 2:
        raise ModelUnreadable(
            f"a window of {sizes['window']} samples does not fit an even transform of {sizes['transform']}"
        )
    if sizes["slope"] < 3 or sizes["hop"] > HOP_MAX:
        raise ModelUnreadable(
            f"delta_win_length is {sizes['slope']} and hop_length {sizes['hop']}; this engine computes 3 or "
            f"more, and up to {HOP_MAX}"
        )
    return DeltaMel(**sizes, floor=float(floor))


def _parse_encoder(tree: Tree) -> EncoderConfig:
    def size(name: str, default: int) -> int:
        value = tree.get(name)
        return require_size(f"encoder_config.{name}", default if value is None else value)

    width, heads, layers = (
        size("hidden_size", 1024),
        size("num_attention_heads", 8),
        size("num_hidden_layers", 16),
    )
    inner, kernel = size("intermediate_size", 4096), size("conv_kernel_size", 7)
    block, reach = size("context_size", 128), size("max_position_embeddings", 512)
    pooled = tree.get("subsample_layers")
    pooled = [0, 1] if pooled is None else pooled
    if not isinstance(pooled, list) or not all(type(at) is int and 0 <= at < layers for at in pooled):
        raise ModelUnreadable(f"encoder_config.subsample_layers is {pooled!r}, not some of {layers} layers")
    if len(set(pooled)) < len(pooled):
        raise ModelUnreadable(f"encoder_config.subsample_layers {pooled} names a layer twice")
    require("encoder_config.num_key_value_heads", size("num_key_value_heads", heads), heads)
    require("encoder_config.hidden_act", tree.get("hidden_act", "silu"), "silu", "swish")
    if kernel % 2 == 0:
        raise ModelUnreadable(f"encoder_config.conv_kernel_size is {kernel}, an even number")
    if block > reach:
        raise ModelUnreadable(
            f"encoder_config.context_size {block} is more than max_position_embeddings {reach}"
        )
    if tree.get("head_dim") is None and width % heads:
        raise ModelUnreadable(f"encoder_config.hidden_size {width} is no multiple of {heads} heads")
    return EncoderConfig(
        feat_in=4 * size("num_mel_bins", 80),
        n_layers=layers,
        d_model=width,
        n_heads=heads,
        head_dim=size("head_dim", width // heads),
        inner=inner,
        use_bias=bool(tree.get("attention_bias", True)),  # of the feed-forwards, in spite of its name
        subsampling="linear",
        self_attention_model="rel_pos_blocks",
        block=block,
        pos_emb_max_len=reach,
        xscaling=False,
        conv_kernel_size=kernel,
        conv_expansion=size("conv_expansion_factor", 2),
        conv_biases=(True, False),
        pooled_layers=tuple(pooled),
    )
