"""What a WeNet model is: the sizes that its weights have, and what `train.yaml` says beside them.

Sizes come from the weights, and the configuration must agree with them. What a configuration asks for and
this family does not compute is refused by the setting's name. Reads no file.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from spool.errors import ModelUnreadable, WeightsMismatch
from worker.models.configuration import Tree
from worker.models.conformer.config import CONVOLUTIONS, EncoderConfig
from worker.models.front_ends.filter_bank import FEATURES
from worker.models.heads.config import TransducerSizes
from worker.models.weights import Shape

HOP_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class DecoderSizes:
    """One attention decoder; `name` is the beginning of its tensors' names."""

    name: str
    heads: int
    layers: int
    inner: int


@dataclass(frozen=True, slots=True)
class WenetConfig:
    """One model. decoders: from left to right, and perhaps from right to left."""

    vocabulary: int
    sos: int
    eos: int
    encoder: EncoderConfig
    decoders: tuple[DecoderSizes, ...]
    transducer: TransducerSizes | None

    @property
    def frame_seconds(self) -> float:
        """Seconds from one encoder frame to the next."""
        return HOP_SECONDS * self.encoder.subsampling_factor


COMPUTED: dict[str, tuple[object, ...]] = {
    "encoder": ("conformer", "transformer"),
    "decoder": ("transformer", "bitransformer"),
    "model": ("asr_model", "transducer"),
    "ctc": ("ctc",),
    "ctc_conf.ctc_blank_id": (0,),
    "input_dim": (FEATURES,),
    "dataset_conf.feats_type": ("fbank",),
    "dataset_conf.fbank_conf.num_mel_bins": (FEATURES,),
    "dataset_conf.fbank_conf.frame_shift": (10,),
    "dataset_conf.fbank_conf.frame_length": (25,),
    "dataset_conf.resample_conf.resample_rate": (16_000,),
    "encoder_conf.input_layer": tuple(CONVOLUTIONS),
    "encoder_conf.normalize_before": (True,),
    "encoder_conf.macaron_style": (True,),
    "encoder_conf.use_cnn_module": (True,),
    "encoder_conf.activation_type": ("swish",),
    "encoder_conf.static_chunk_size": (0, -1),
    "encoder_conf.layer_norm_type": ("layer_norm",),
    "encoder_conf.mlp_type": ("position_wise_feed_forward",),
    "decoder_conf.tie_word_embedding": (False,),
}
"""The values of settings that this family computes, the default first. The encoder has to be named."""
COMPUTED_OF_TRANSDUCERS: dict[str, tuple[object, ...]] = {
    "predictor": ("rnn",),
    "predictor_conf.rnn_type": ("lstm",),
    "predictor_conf.bias": (True,),
    "joint": ("transducer_joint",),
    "joint_conf.joint_mode": ("add",),
    "joint_conf.activation": ("tanh",),
    "joint_conf.prejoin_linear": (True,),
    "joint_conf.postjoin_linear": (False,),
}


def read_tree(text: bytes, source: str) -> Tree:
    """`train.yaml` as a mapping. Raises ModelUnreadable."""
    try:
        tree = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as cause:
        raise ModelUnreadable(f"{source}: not readable as YAML: {cause}") from cause
    if not isinstance(tree, dict):
        raise ModelUnreadable(f"{source}: holds no settings")
    return tree


def read_config(tree: Tree, shapes: Mapping[str, Shape], units: int, source: str) -> WenetConfig:
    """The model of these settings and tensors. Raises ModelUnreadable and WeightsMismatch."""
    _refuse_unknown(tree, source)
    try:
        encoder = _encoder(tree, shapes)
        vocabulary = shapes["ctc.ctc_lo.weight"][0]
        decoders = _decoders(tree, shapes)
        transducer = _transducer(shapes) if tree.get("model") == "transducer" else None
    except KeyError as cause:
        raise WeightsMismatch(f"{source}: the weights hold no tensor {cause}") from cause
    except (IndexError, TypeError, ValueError, AttributeError) as cause:
        raise ModelUnreadable(f"{source}: a setting or a tensor has an unexpected form: {cause}") from cause
    config = _section(tree, "encoder_conf")
    _agree(
        source,
        ("output_dim", tree.get("output_dim"), vocabulary),
        ("units.txt", units, vocabulary),
        ("encoder_conf.output_size", config.get("output_size"), encoder.d_model),
        ("encoder_conf.attention_heads", config.get("attention_heads"), encoder.n_heads),
        ("encoder_conf.num_blocks", config.get("num_blocks"), encoder.n_layers),
        ("encoder_conf.linear_units", config.get("linear_units"), encoder.inner),
        ("encoder_conf.cnn_module_kernel", config.get("cnn_module_kernel"), encoder.conv_kernel_size or None),
    )
    special = _section(_section(tree, "tokenizer_conf"), "special_tokens")
    last = vocabulary - 1
    sos, eos = int(special.get("<sos>", last)), int(special.get("<eos>", special.get("<sos>", last)))
    if not (0 <= sos < vocabulary and 0 <= eos < vocabulary) or special.get("<blank>", 0) != 0:
        raise ModelUnreadable(f"{source}: tokenizer_conf.special_tokens: <blank> must be 0, the others units")
    return WenetConfig(vocabulary, sos, eos, encoder, decoders, transducer)


def _section(tree: Tree, name: str) -> Tree:
    value = tree.get(name)
    return value if isinstance(value, Mapping) else {}


def _refuse_unknown(tree: Tree, source: str) -> None:
    """Raises ModelUnreadable, naming the first setting that this family does not compute."""
    encoder = _section(tree, "encoder_conf")
    conformer = tree.get("encoder") == "conformer"
    positions = ("rel_pos", "abs_pos") if conformer else ("abs_pos",)
    known = COMPUTED | {
        "encoder_conf.n_kv_head": (None, encoder.get("attention_heads")),
        "encoder_conf.pos_enc_layer_type": positions,
    }
    if tree.get("model") == "transducer":
        known |= COMPUTED_OF_TRANSDUCERS
    for name, values in known.items():
        value = _setting(tree, name, None if name == "encoder" else values[0])
        if value not in values:
            supported = ", ".join(str(each) for each in values if each is not None)
            raise ModelUnreadable(f"{source}: {name}: {value!r} is not supported, only {supported}")


def _setting(tree: Tree, name: str, default: object) -> object:
    *sections, last = name.split(".")
    for section in sections:
        tree = _section(tree, section)
    return tree.get(last, default)


def _agree(source: str, *rows: tuple[str, Any, int | None]) -> None:
    wrong = [
        f"{name} is {said}, the weights have {held}"
        for name, said, held in rows
        if said is not None and held is not None and said != held
    ]
    if wrong:
        raise WeightsMismatch(f"{source}: the weights do not fit the configuration: {'; '.join(wrong)}")


def _count(shapes: Mapping[str, Shape], prefix: str, suffix: str) -> int:
    layers = 0
    while f"{prefix}.{layers}.{suffix}" in shapes:
        layers += 1
    return layers


def _encoder(tree: Tree, shapes: Mapping[str, Shape]) -> EncoderConfig:
    config = _section(tree, "encoder_conf")
    first = "encoder.encoders.0"
    conformer = tree["encoder"] == "conformer"
    relative = conformer and config.get("pos_enc_layer_type", "rel_pos") == "rel_pos"
    heads = (
        shapes[f"{first}.self_attn.pos_bias_u"][0] if relative else int(config.get("attention_heads") or 4)
    )
    layer = str(config.get("input_layer", "conv2d"))
    kernel = shapes[f"{first}.conv_module.depthwise_conv.weight"][-1] if conformer else 0
    causal = bool(config.get("causal", False))
    return EncoderConfig(
        feat_in=FEATURES,
        n_layers=_count(shapes, "encoder.encoders", "self_attn.linear_q.weight"),
        d_model=shapes["encoder.after_norm.weight"][0],
        n_heads=heads,
        inner=shapes[f"{first}.feed_forward.w_1.weight"][0],
        subsampling=layer,
        subsampling_factor=math.prod(stride for _, stride in CONVOLUTIONS[layer]),
        self_attention_model="rel_pos_unshifted" if relative else "abs_pos",
        att_context_style="chunked_limited",
        conv_kernel_size=kernel,
        conv_context_size=(kernel - 1, 0) if causal and conformer else None,
        conv_norm_type="batch_norm" if f"{first}.conv_module.norm.running_mean" in shapes else "layer_norm",
        conv_pads="input",
        has_feature_norm="encoder.global_cmvn.mean" in shapes,
        has_final_norm=True,
        any_chunk=relative and causal and bool(config.get("use_dynamic_chunk")),
    )


def _decoders(tree: Tree, shapes: Mapping[str, Shape]) -> tuple[DecoderSizes, ...]:
    two = tree.get("decoder") == "bitransformer"
    names = ("decoder.left_decoder", "decoder.right_decoder") if two else ("decoder",)
    heads = int(_section(tree, "decoder_conf").get("attention_heads") or 4)
    return tuple(
        DecoderSizes(
            name,
            heads,
            _count(shapes, f"{name}.decoders", "norm1.weight"),
            shapes[f"{name}.decoders.0.feed_forward.w_1.weight"][0],
        )
        for name in names
        if f"{name}.after_norm.weight" in shapes
    )


def _transducer(shapes: Mapping[str, Shape]) -> TransducerSizes:
    return TransducerSizes(
        embedding=shapes["predictor.embed.weight"][1],
        hidden=shapes["predictor.rnn.weight_hh_l0"][1],
        layers=sum(name.startswith("predictor.rnn.weight_hh_l") for name in shapes),
        output=shapes["predictor.projection.weight"][0],
        joint=shapes["joint.enc_ffn.weight"][0],
    )
